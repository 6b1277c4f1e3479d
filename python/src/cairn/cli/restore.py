"""`cairn restore`: what lets a query go on behind an earlier batch; with --apply it is done.

Layer: cli, over `cairn.restore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.changing import restore as plan_restore
from cairn.cli.options import CheckpointCommand, Place, with_apply, with_local_dir, with_place
from cairn.cli.output import Output, with_output
from cairn.cli.repair import FIELDS, carry_out
from cairn.cli.streams import show_partitions

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FIELDS", "restore"]


@click.command(cls=CheckpointCommand)
@with_place
@click.option(
    "--to-batch",
    type=click.IntRange(min=0),
    metavar="N",
    help="The query goes on behind this batch, and repeats the one after it with the same input.",
)
@click.option("--savepoint", metavar="NAME", help="The batch of this savepoint instead.")
@with_apply("Carry the steps out. Stop the query first.")
@with_local_dir
@with_output
def restore(
    place: Place,
    output: Output,
    *,
    is_applied: bool,
    local_dir: Path | None,
    to_batch: int | None,
    savepoint: str | None,
) -> None:
    """Let a query of Cairn's go on from an earlier batch; without --apply, show what that takes.

    The entries of later batches are removed from Spark's logs, and kept in the folder cairn-log of
    the checkpoint; those of a savepoint's batch are put back where they are gone. No state is
    deleted: `cairn gc` does that, or the query, later. The sink gets the rows of the repeated
    batches a second time. With --to-batch, a snapshot with damaged objects gets a new one beside
    it, as by `cairn repair`.

    All rows of the batch are read. Exit code 3: there is something to do, or left.
    """
    if (to_batch is None) == (savepoint is None):
        raise click.UsageError("Name a batch by --to-batch, or a savepoint by --savepoint.")
    with plan_restore(
        place.location,
        to_batch=to_batch,
        savepoint=savepoint,
        storage_options=place.options,
        progress=show_partitions,
    ) as plan:
        carry_out(plan, output, is_applied=is_applied, local_dir=local_dir)
