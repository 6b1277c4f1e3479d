"""`cairn undo-repartition`: takes back the entry that a refused repartition left in Spark's logs.

Layer: cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.cli.options import CheckpointCommand, Place, with_apply, with_place
from cairn.cli.streams import write_line

if TYPE_CHECKING:
    from cairn.checkpoint.spark_logs import UnfinishedRepartition


@click.command(cls=CheckpointCommand)
@with_place
@with_apply("Delete the listed entries of Spark's logs. Stop the query first.")
def undo_repartition(place: Place, *, is_applied: bool) -> None:
    """Take back a refused offline repartition, so that the query starts again.

    Without --apply nothing is deleted: the command prints what it found and what it would delete.
    """
    from cairn.checkpoint.spark_logs import find_unfinished_repartition, take_back  # noqa: PLC0415
    from cairn.location import open_location  # noqa: PLC0415

    with open_location(place.location, place.options) as store:
        found = find_unfinished_repartition(store)
        if found is None:
            write_line(f"{place.location} has no unfinished repartition; nothing to take back.")
            return
        write_line(_description(place.location, found))
        if not is_applied:
            write_line("Nothing was deleted. Stop the query, and repeat the command with --apply.")
            return
        take_back(store, found)
        write_line(f"Deleted: {', '.join(found.keys)}. The query can be started again.")


def _description(checkpoint: str, found: UnfinishedRepartition) -> str:
    entry, base = found.entry, found.base
    lines = [
        f"{checkpoint} has an unfinished repartition.",
        f"Partitions: {base.partitions} before, {entry.partitions} wanted.",
        f"Last batch with state: {base.batch}.",
    ]
    lines += [f"To delete: {key}" for key in found.keys]
    deleted = [*((commit.key, commit.text) for commit in found.skipped), (entry.key, entry.text)]
    lines += [f"Content of {key}:\n{text.rstrip()}" for key, text in deleted]
    return "\n".join(lines)
