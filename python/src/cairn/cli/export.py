"""`cairn export`: the state of a batch as Parquet files.

Layer: cli, over `cairn.export`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import (
    CheckpointCommand,
    Place,
    Stores,
    with_apply,
    with_batch,
    with_files,
    with_partitions,
    with_place,
    with_stores,
)
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_move
from cairn.correcting import export as write_files

if TYPE_CHECKING:
    from cairn.offline.exchange.exporting import ExportedFile

FIELDS = (
    Field("operator", "integer", "its operator's number"),
    Field("store", "string", "Spark's name of the store"),
    Field("family", "string", "Spark's name of the column family"),
    Field("partition", "integer or null", "whose rows the file has; null: of all"),
    Field("rows", "integer or null", "how many; of a list, one per element; null: not known yet"),
    Field("bytes", "integer or null", "size of the file; null: as above"),
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
@with_apply("Write the files. The query may run.")
@with_output
def export(
    place: Place,
    output: Output,
    *,
    target: Place,
    batch: int | None,
    stores: Stores,
    partitions: tuple[int, ...],
    is_applied: bool,
) -> None:
    """Write the state of a batch as Parquet files; without --apply, show which.

    All stores and families, or some.
    A folder per family has a file per partition. The columns are those of `cairn show`, and of a
    list the place of each element. `cairn import` takes the files: their metadata say whose rows
    they are. LOCATION is only read. Exit code 3: there is something to write.
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
        dry_run=not is_applied,
        progress=show_move,
    )
    output.write_fields(FIELDS, map(_row, written))
    if written and not is_applied:
        click.echo("Nothing was written. Add --apply.", err=True)
        click.get_current_context().exit(Exit.FINDINGS)


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
