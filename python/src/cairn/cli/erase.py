"""`cairn erase`: a key leaves the state and all its versions.

Layer: cli, over `cairn.erase`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import (
    CheckpointCommand,
    Place,
    with_apply,
    with_key,
    with_local_dir,
    with_place,
    with_processes,
)
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_move, show_partitions
from cairn.correcting import erase as plan_erasure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cairn.offline.erasing.erase import ErasedStore, ErasePlan

FIELDS = (
    Field("operator", "integer", "its operator's number"),
    Field("store", "string", "Spark's name of the store"),
    Field("partition", "integer", "the partition"),
    Field("family", "string or null", "Spark's name of the column family; null: older versions"),
    Field("keys", "integer or null", "how many are removed from the last version"),
    Field("objects", "integer", "objects of the store's versions that have the key"),
    Field("erased", "boolean", "whether it is done"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_key
@click.option(
    "--operator",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of the only operator that is meant. Default: all.",
)
@click.option("--savepoints", "deletes_savepoints", is_flag=True, help="Delete savepoints, too.")
@with_apply("Erase the key. Stop the query first. This cannot be undone.")
@with_processes
@with_local_dir
@with_output
def erase(
    place: Place,
    output: Output,
    *,
    key: dict[str, Any],
    operator: int | None,
    deletes_savepoints: bool,
    is_applied: bool,
    processes: int | None,
    local_dir: Path | None,
) -> None:
    """Erase a key from every store, family and retained version; without --apply, show where it is.

    LOCATION, a checkpoint of Cairn's, gets a batch without input, whose state lacks all rows whose
    key has these values: also timers, lists, maps and the indexes of the same key. Then all older
    objects of the stores that had the key are deleted: the query cannot go back behind that batch.
    Savepoints that need these objects stop the command, unless --savepoints deletes them.

    Files of sources and sinks, the values of other keys, and versions that the bucket keeps of
    deleted objects, are not erased. A command that was cut off is repeated. Exit code 3: there is
    something to erase.
    """
    with plan_erasure(
        place.location,
        key=key,
        operator=operator,
        storage_options=place.options,
        convert=_converted,
        progress=show_partitions,
    ) as plan:
        _explain(plan)
        if is_applied:
            done = plan.apply(
                deletes_savepoints=deletes_savepoints,
                processes=processes,
                local_dir=local_dir,
                progress=show_move,
            )
            output.write_fields(FIELDS, [row for one in done for row in _rows(one, is_done=True)])
            return
        output.write_fields(
            FIELDS, [row for one in plan.stores for row in _rows(one, is_done=False)]
        )
        if plan.stores or plan.is_committed:
            click.echo("Nothing was erased. Stop the query, and add --apply.", err=True)
            click.get_current_context().exit(Exit.FINDINGS)


def _converted(value: Any, kind: Any) -> Any:  # noqa: ANN401 - any value of JSON
    from cairn.cli.typed_values import typed_value  # noqa: PLC0415 - it imports pyarrow

    return typed_value(value, kind, "a column of the key")


def _explain(plan: ErasePlan) -> None:
    """Say what a table of stores does not."""
    if plan.is_committed:
        click.echo(
            "The batch without the key is there; older objects are left to delete.", err=True
        )
    elif not plan.stores:
        click.echo("No object has this key.", err=True)
    if plan.others:
        names = ", ".join(f"{operator}/{name}" for operator, name in plan.others)
        click.echo(f"Not erased, since their keys do not have these columns: {names}.", err=True)
    if plan.savepoints:
        click.echo(f"Savepoints that have to be deleted: {', '.join(plan.savepoints)}.", err=True)
    if plan.stores:
        click.echo(
            f"All versions of these stores before that of batch {plan.batch + 1} are deleted, so "
            "that the query cannot go back behind it.",
            err=True,
        )


def _rows(one: ErasedStore, *, is_done: bool) -> Iterator[list[object]]:
    place: list[object] = [one.operator, one.store, one.partition]
    for family, keys in one.keys.items():
        yield [*place, family, keys, one.objects, is_done]
    if not one.keys:
        yield [*place, None, None, one.objects, is_done]
