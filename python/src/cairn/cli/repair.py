"""`cairn repair`: what would mend a checkpoint of Cairn's; with --apply it is done.

Layer: cli, over `cairn.repair`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.changing import repair as plan_repair
from cairn.cli.exit_codes import Exit
from cairn.cli.options import CheckpointCommand, Place, with_apply, with_local_dir, with_place
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_partitions, show_steps

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.offline.repair import RepairPlan, Step
    from cairn.offline.restore import SavepointPlan

FIELDS = (
    Field(
        "action",
        "string",
        "take-snapshot, remove-entry, put-back, set-aside, not-needed or none: docs/reader.md",
    ),
    Field("operator", "integer or null", "where in the state; null: in the logs"),
    Field("partition", "integer or null", "the partition; null: all"),
    Field("store", "string or null", "Spark's name of the store; null: all"),
    Field("batch", "integer or null", "the batch"),
    Field("object", "string or null", "the object that is damaged, or goes"),
    Field("reason", "string", "why; or what mends it, if the command does not", is_whole=True),
    Field("done", "boolean", "whether it is done"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_apply("Carry the steps out. Stop the query first.")
@with_local_dir
@with_output
def repair(place: Place, output: Output, *, is_applied: bool, local_dir: Path | None) -> None:
    """Show what would mend a checkpoint of Cairn's; with --apply, mend it.

    A snapshot with damaged objects gets a new one beside it, if the state can still be read in
    another way. If it cannot, the query goes back to the last batch whose state is whole: the
    entries of later batches are removed from Spark's logs, and the query repeats these batches.
    What is removed is kept in the folder cairn-log of the checkpoint, with a record.

    All rows of the newest batch are read. Exit code 3: there is something to mend, or left that the
    newest batch or the logs need.
    """
    with plan_repair(
        place.location, storage_options=place.options, progress=show_partitions
    ) as plan:
        carry_out(plan, output, is_applied=is_applied, local_dir=local_dir)


def carry_out(
    plan: RepairPlan | SavepointPlan, output: Output, *, is_applied: bool, local_dir: Path | None
) -> None:
    """Print a plan, after it was carried out if it shall be; exit 3 if something is left to do."""
    left = plan.left
    if is_applied:
        left = plan.apply(local_dir=local_dir, progress=show_steps)
    rows = [_row(step, is_done=is_applied) for step in plan.steps]
    output.write_fields(FIELDS, [*rows, *(_row(step, is_done=False) for step in left)])
    if plan.steps and not is_applied:
        click.echo("Nothing was changed. Stop the query, and add --apply.", err=True)
    is_left = any(step.action == "none" for step in left)
    if is_left or (plan.steps and not is_applied):
        click.get_current_context().exit(Exit.FINDINGS)


def _row(step: Step, *, is_done: bool) -> list[Any]:
    where = step.place
    place = (None, None, None) if where is None else (where.operator, where.partition, where.store)
    return [step.action, *place, step.batch, step.object_name, step.reason, is_done]
