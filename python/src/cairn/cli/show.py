"""`cairn show`: the rows of a store, or its columns.

Layer: cli, over `Checkpoint.state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.cli.options import (
    CheckpointCommand,
    Place,
    Stores,
    with_batch,
    with_limit,
    with_partitions,
    with_place,
    with_stores,
)
from cairn.cli.output import Field, Output, with_output_or_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

SCHEMA_FIELDS = (
    Field("column", "string", "name of the column"),
    Field("type", "string", "its Arrow type"),
    Field("is_key", "boolean", "whether it is a part of the key"),
    Field("is_opaque", "boolean", "whether it has bytes for the program alone: Kryo, Java"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_batch
@with_stores
@with_partitions
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="Column that is shown; may be repeated. Default: all.",
)
@with_limit
@click.option("--schema", "is_schema", is_flag=True, help="Show the columns, not the rows.")
@with_output_or_file
def show(
    place: Place,
    batch: int | None,
    stores: Stores,
    partitions: tuple[int, ...],
    columns: tuple[str, ...],
    limit: int | None,
    output: Output,
    *,
    is_schema: bool,
) -> None:
    """Show the rows of a store: the columns of the key, those of the value, and the partition.

    Without --operator it is operator 0; --store is needed if the operator has several kinds of
    rows.
    """
    with place.open() as checkpoint:
        state = checkpoint.state(stores.operator or 0, stores.store, stores.family, batch)
        if is_schema:
            keys, opaque = set(state.key_columns), set(state.opaque_columns)
            fields = (
                (one.name, str(one.type), one.name in keys, one.name in opaque)
                for one in state.schema
            )
            output.write_fields(SCHEMA_FIELDS, fields)
        else:
            reader = state.reader(columns or None, partitions or None)
            output.write(reader.schema, limited(reader, limit))


def limited(reader: pa.RecordBatchReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first rows; what follows is not read."""
    left = limit
    with reader:
        while left is None or left > 0:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            # Arrow takes no number of rows beyond 64 bits.
            yield batch if left is None else batch.slice(0, min(left, batch.num_rows))
            left = None if left is None else left - batch.num_rows
