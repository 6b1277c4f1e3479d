"""`cairn clone`: what makes a new query from a batch of another one; with --apply it is made.

Layer: cli, over `cairn.clone`.
"""

from __future__ import annotations

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import (
    CheckpointCommand,
    Place,
    batch_number,
    with_apply,
    with_place,
    with_target,
)
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_copies
from cairn.moving import clone as plan_clone

FIELDS = (
    Field("batch", "integer", "the new query goes on behind this batch"),
    Field("savepoint", "string or null", "the savepoint that keeps it; null: a batch of the logs"),
    Field("provider", "string", "whose state it is: cairn, rocksdb or hdfs"),
    Field("objects", "integer", "how many objects of the state are copied"),
    Field("bytes", "integer", "their size"),
    Field("target", "string", "the new query's checkpointLocation"),
    Field("done", "boolean", "whether it is done"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_target
@click.option(
    "--keep-id",
    is_flag=True,
    help="The new query has the other one's id. Only if that never runs again: docs/moving.md.",
)
@with_apply("Copy. The query may run.")
@with_output
def clone(
    place: Place,
    output: Output,
    *,
    target: Place,
    keep_id: bool,
    is_applied: bool,
) -> None:
    """Make a new query from a batch of another one; without --apply, show what that takes.

    LOCATION may end in @N, a batch, or @NAME, a savepoint; default: the newest batch. (If the name
    of the folder has an @, end it with a slash.) Cairn's checkpoints are cloned, and those of
    Spark's own providers. Only the objects that lead to the batch are copied, by the storage itself
    where it can. If the command is killed, repeat it: it goes on.
    Exit code 3: there is something to copy.
    """
    location, batch, savepoint = chosen(place.location)
    with plan_clone(
        location,
        to=target.location,
        batch=batch,
        savepoint=savepoint,
        keep_id=keep_id,
        storage_options=place.options,
        target_options=target.options,
    ) as plan:
        if is_applied:
            plan.apply(show_copies)
        row = [plan.batch, plan.savepoint, plan.provider, len(plan.objects), plan.bytes]
        output.write_fields(FIELDS, [[*row, target.location, is_applied]])
    if not is_applied:
        click.echo("Nothing was copied. Add --apply.", err=True)
        click.get_current_context().exit(Exit.FINDINGS)


def chosen(location: str) -> tuple[str, int | None, str | None]:
    """Return location, batch and savepoint of a LOCATION with ``@``."""
    before, _, name = location.rpartition("@")
    if not name or "/" in name or not before or before.endswith("/"):
        return location, None, None
    if name.isascii() and name.isdecimal():
        return before, batch_number(name), None
    return before, None, name
