"""`cairn gc`: what nothing in a checkpoint of Cairn's needs; with --apply it is deleted.

Layer: cli, over `cairn.gc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.changing import gc as plan_gc
from cairn.cli.exit_codes import Exit
from cairn.cli.options import CheckpointCommand, Place, with_apply, with_place
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_partitions

if TYPE_CHECKING:
    from cairn.offline.gc import Orphan

FIELDS = (
    Field("operator", "integer", "the operator"),
    Field("partition", "integer", "the partition"),
    Field("store", "string", "Spark's name of the store"),
    Field("bytes", "integer", "its size; 0 of a pin"),
    Field("object", "string", "the object"),
    Field("reason", "string", "why nothing needs it"),
    Field("deleted", "boolean", "whether it is deleted"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_apply("Delete these objects. Stop the query first.")
@click.option(
    "--grace",
    "grace_s",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Younger objects stay: a task may be about to use them. Default: an hour, as in a query.",
)
@with_output
def gc(place: Place, output: Output, *, is_applied: bool, grace_s: int | None) -> None:
    """Show what nothing in a checkpoint of Cairn's needs; with --apply, delete it.

    These are objects that failed attempts and former runs have left. A running query deletes them
    by itself, at most a day later. All batches stay that Spark's logs have. Exit code 3: there is
    something to delete.
    """
    with plan_gc(
        place.location,
        grace_s=grace_s,
        storage_options=place.options,
        progress=show_partitions,
    ) as plan:
        orphans = plan.apply(show_partitions) if is_applied else plan.orphans
        output.write_fields(FIELDS, [_row(one, is_deleted=is_applied) for one in orphans])
        if orphans and not is_applied:
            size = sum(one.size_bytes for one in orphans)
            click.echo(
                f"{len(orphans):,} objects, {size:,} bytes. Nothing was deleted. Stop the query, "
                "and add --apply.",
                err=True,
            )
        if plan.hold is not None and not is_applied:
            click.echo(
                f"{plan.hold.message}. With --apply its entry goes if it has ended.", err=True
            )
    if (orphans or plan.hold is not None) and not is_applied:
        click.get_current_context().exit(Exit.FINDINGS)


def _row(one: Orphan, *, is_deleted: bool) -> list[Any]:
    place = one.place
    return [
        place.operator,
        place.partition,
        place.store,
        one.size_bytes,
        one.object_name,
        one.reason,
        is_deleted,
    ]
