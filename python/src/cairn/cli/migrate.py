"""`cairn migrate`: the state of a query in the files of another provider.

Layer: cli, over `cairn.migrate`.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import (
    CheckpointCommand,
    Place,
    with_apply,
    with_local_dir,
    with_place,
    with_processes,
    with_target_or_none,
)
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_move
from cairn.moving import migrate as plan_migration

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = (
    Field("operator", "integer", "its operator's number"),
    Field("store", "string", "Spark's name of the store"),
    Field("family", "string or null", "Spark's name of the column family; null: all"),
    Field("partitions", "integer", "how many"),
    Field("keys", "integer or null", "their number, the same on both sides; null: not moved yet"),
    Field("digest", "string or null", "of the rows, the same on both sides; null: not moved yet"),
)
_PROVIDERS = ("cairn", "rocksdb", "hdfs")


@click.command(cls=CheckpointCommand)
@with_place
@with_target_or_none
@click.option(
    "--provider",
    type=click.Choice(_PROVIDERS),
    required=True,
    help="Whose files the state will be in.",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Change this checkpoint, by a batch without input, in place of --to.",
)
@with_apply("Move the state. Stop the query first.")
@with_processes
@with_local_dir
@with_output
def migrate(
    place: Place,
    output: Output,
    *,
    target: Place | None,
    provider: str,
    in_place: bool,
    is_applied: bool,
    processes: int | None,
    local_dir: Path | None,
) -> None:
    """Move the state of a query to another state store provider; without --apply, show what moves.

    The query is stopped, moved, and goes on from the checkpoint at --to, under the provider that
    its offset log then names: with its state, offsets, watermark and id, and with the batch that
    was planned, if there is one. LOCATION is only read. Every store is read back, and its rows are
    compared; the result is printed, and kept in the folder cairn-log of the new checkpoint.

    With --in-place the same checkpoint gets a batch without input, whose state is in the files of
    the other provider. Nothing is deleted.

    A command that was cut off is repeated: it goes on with the stores that are left. Exit code 3:
    nothing was moved yet.
    """
    if (target is None) != in_place:
        raise click.UsageError("name the new checkpoint by --to, or give --in-place.")
    with plan_migration(
        place.location,
        to=None if target is None else target.location,
        provider=provider,
        storage_options=place.options,
        target_options=None if target is None else target.options,
    ) as plan:
        if not is_applied:
            stores = sorted({(one.operator, one.store) for one in plan.stores})
            rows = [
                [*store, None, sum((one.operator, one.store) == store for one in plan.stores)]
                for store in stores
            ]
            output.write_fields(FIELDS, [[*row, None, None] for row in rows])
            click.echo(
                f"Nothing was moved. Batch {plan.batch} would move from {plan.former} to "
                f"{plan.provider}. Stop the query, and add --apply.",
                err=True,
            )
            click.get_current_context().exit(Exit.FINDINGS)
        moved = plan.apply(processes=processes, local_dir=local_dir, progress=show_move)
    output.write_fields(FIELDS, [list(astuple(one)) for one in moved])
