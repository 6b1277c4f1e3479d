"""`cairn repartition`: the state of a query in another number of partitions.

Layer: cli, over `cairn.repartition`.
"""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import (
    CheckpointCommand,
    Place,
    with_apply,
    with_place,
    with_processes,
)
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_move
from cairn.moving import repartition as plan_repartition

FIELDS = (
    Field("operator", "integer", "its operator's number"),
    Field("store", "string", "Spark's name of the store"),
    Field("family", "string or null", "Spark's name of the column family; null: all"),
    Field("partitions", "integer", "how many it has: without --apply the present number"),
    Field("keys", "integer or null", "their number, as before; null: not read yet"),
    Field("digest", "string or null", "of the rows, as before; null: not read yet"),
)


@click.command(cls=CheckpointCommand)
@with_place
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="The number of partitions that the query will have.",
)
@with_apply("Change the number of partitions. Stop the query first.")
@with_processes
@click.option(
    "--local-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder on the local disk, as large as the rows of the largest operator, compressed, and "
    "a new partition per process. Default: the folder of temporary files.",
)
@with_output
def repartition(
    place: Place,
    output: Output,
    *,
    partitions: int,
    is_applied: bool,
    processes: int | None,
    local_dir: Path | None,
) -> None:
    """Give the state of a query another number of partitions; without --apply, show what changes.

    The query is stopped, and goes on from the same location: with its state, offsets, watermark and
    id. It gets a batch without input, whose state has the same rows in the partitions that the hash
    of their keys says, as after Spark's own offline repartition, which does not take Cairn's state.
    All rows are compared. Nothing is deleted.

    A command that was cut off is repeated: until it ends nothing has changed. Exit code 3: nothing
    has changed yet.
    """
    with plan_repartition(
        place.location, partitions=partitions, storage_options=place.options
    ) as plan:
        if not is_applied:
            rows = [[*store, None, plan.before, None, None] for store in plan.stores]
            output.write_fields(FIELDS, rows)
            click.echo(
                f"Nothing was changed. Batch {plan.batch} has {plan.before} partitions, the next "
                f"one would have {plan.partitions}. Stop the query, and add --apply.",
                err=True,
            )
            click.get_current_context().exit(Exit.FINDINGS)
        moved = plan.apply(processes=processes, local_dir=local_dir, progress=show_move)
    output.write_fields(FIELDS, [list(astuple(one)) for one in moved])
