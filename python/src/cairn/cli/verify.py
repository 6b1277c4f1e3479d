"""`cairn verify`: what is wrong with a checkpoint, what it means, and what mends it.

Layer: cli, over `Checkpoint.verify`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import CheckpointCommand, Place, with_place
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_partitions

if TYPE_CHECKING:
    from cairn.reader.findings import Finding

FIELDS = (
    Field("severity", "string", "error, warning or note"),
    Field("rule", "string", "the rule that is broken: docs/reader.md has all"),
    Field("operator", "integer or null", "where in the state; null: in the logs"),
    Field("partition", "integer or null", "the partition; null: all"),
    Field("store", "string or null", "Spark's name of the store; null: all"),
    Field("batch", "integer or null", "the batch; null: none in particular"),
    Field("message", "string", "what was found"),
    Field("object", "string or null", "the object, if it is one"),
    Field("meaning", "string", "what it means"),
    Field("cure", "string", "what to do"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_output
def verify(place: Place, output: Output) -> None:
    """Show what is wrong with a checkpoint, what it means and what mends it; exit 3 if anything is.

    All rows of the newest batch are read, and its SSTs compared with their checksums; of other
    batches, names and sizes of objects are compared, and small changelogs are verified. Nothing is
    changed.
    """
    with place.open() as checkpoint:
        # All are known before the first is shown: the command has read everything by then.
        findings = list(checkpoint.verify(show_partitions))
        output.write_fields(FIELDS, map(_row, findings))
    if findings:
        click.get_current_context().exit(Exit.FINDINGS)


def _row(found: Finding) -> list[Any]:
    where = found.place
    place = (None, None, None) if where is None else (where.operator, where.partition, where.store)
    return [
        found.severity,
        found.rule,
        *place,
        found.batch,
        found.message,
        found.object_name,
        found.meaning,
        found.cure,
    ]
