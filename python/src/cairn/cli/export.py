"""`cairn export`: the state of a batch as Parquet files.

Layer: cli, over `cairn.export`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.cli.options import (
    CheckpointCommand,
    Place,
    Stores,
    with_batch,
    with_files,
    with_partitions,
    with_place,
    with_stores,
)
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_partitions
from cairn.correcting import export as write_files

if TYPE_CHECKING:
    from cairn.offline.exchange.exporting import ExportedFile

FIELDS = (
    Field("operator", "integer", "its operator's number"),
    Field("store", "string", "Spark's name of the store"),
    Field("family", "string", "Spark's name of the column family"),
    Field("partition", "integer or null", "whose rows the file has; null: of all"),
    Field("rows", "integer", "how many; of a list, one per element"),
    Field("bytes", "integer", "size of the file"),
    Field("file", "string", "the file", is_whole=True),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_files(
    "--to", "A folder or URL for the files, or a local file *.parquet for one kind of rows."
)
@with_batch
@with_stores
@with_partitions
@with_output
def export(
    place: Place,
    output: Output,
    *,
    target: Place,
    batch: int | None,
    stores: Stores,
    partitions: tuple[int, ...],
) -> None:
    """Write the state of a batch as Parquet files: all stores and families, or some.

    A folder per family has a file per partition. The columns are those of `cairn show`, and of a
    list the place of each element. `cairn import` takes the files: their metadata say whose rows
    they are. LOCATION is only read.
    """
    written = write_files(
        place.location,
        to=target.location,
        operator=stores.operator,
        store=stores.store,
        family=stores.family,
        batch=batch,
        partitions=partitions or None,
        storage_options=place.options,
        to_storage_options=target.options,
        progress=show_partitions,
    )
    output.write_fields(FIELDS, map(_row, written))


def _row(one: ExportedFile) -> list[object]:
    return [
        one.operator,
        one.store,
        one.family,
        one.partition,
        one.rows,
        one.size_bytes,
        one.object_name,
    ]
