"""`cairn history`: the batches that changed a key.

Layer: cli, over `Checkpoint.history`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cairn.cli.options import CheckpointCommand, Place, Stores, with_key, with_place, with_stores
from cairn.cli.output import Field, Output, with_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cairn.reader.checkpoint import Checkpoint

FIELDS = (
    Field("batch", "integer", "batch that changed the key"),
    Field("change", "string", "first, added, removed or changed; first: what was before is gone"),
    Field("before", "array of objects", "rows of the key before the batch; several of a list"),
    Field("after", "array of objects", "rows of the key after the batch"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_stores
@with_key
@click.option("--first", type=click.IntRange(min=0), metavar="N", help="First batch that is read.")
@click.option("--last", type=click.IntRange(min=0), metavar="N", help="Last batch that is read.")
@with_output
def history(
    place: Place,
    stores: Stores,
    key: dict[str, Any],
    first: int | None,
    last: int | None,
    output: Output,
) -> None:
    """Show the batches that changed a key, with its rows before and after.

    One store is searched: without --operator that of operator 0; --store is needed if the operator
    has several. All batches whose state is still there are read, each as get reads one.
    """
    batches = (first or 0, sys.maxsize if last is None else last)
    with place.open() as checkpoint:
        output.write_fields(FIELDS, _rows(checkpoint, stores, key, batches))


def _rows(
    checkpoint: Checkpoint, stores: Stores, key: dict[str, Any], batches: tuple[int, int]
) -> Iterator[list[Any]]:
    from cairn.cli.selection import key_of  # noqa: PLC0415 - it imports pyarrow

    operator, store, family = stores.operator or 0, stores.store, stores.family
    # A store that does not exist is an error now; at an earlier batch it may have been absent.
    own_key = key_of(key, checkpoint.state(operator, store, family))
    for one in checkpoint.history(
        own_key, operator=operator, store=store, family=family, batches=batches
    ):
        change = "changed"
        if one.before is None:
            change = "first"
        elif not one.before.num_rows:
            change = "added"
        elif not one.after.num_rows:
            change = "removed"
        yield [one.batch, change, _objects(one.before), _objects(one.after)]


def _objects(rows: pa.Table | None) -> list[dict[str, Any]]:
    from cairn.cli.cells import plain  # noqa: PLC0415 - it imports pyarrow

    if rows is None:
        return []
    return [
        dict(zip(rows.schema.names, row, strict=True))
        for batch in rows.to_batches()
        for row in zip(*map(plain, batch.columns), strict=True)
    ]
