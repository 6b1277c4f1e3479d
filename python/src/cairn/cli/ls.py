"""`cairn ls`: what a checkpoint has: stores, batches, or the objects of the stores.

Layer: cli, over `Checkpoint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.cli.options import CheckpointCommand, Place, with_batch, with_place
from cairn.cli.output import Field, Fields, Output, with_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cairn.reader.checkpoint import Checkpoint, StoreInfo

STORE_FIELDS: Fields = (
    Field("operator", "integer", "number of the stateful operator"),
    Field("operator_name", "string or null", "Spark's name of its kind; null before Spark 4.0"),
    Field("name", "string", "short name of the rows, unique within the operator"),
    Field("store", "string", "Spark's name of the store"),
    Field("family", "string", "Spark's name of the column family"),
    Field("is_list", "boolean", "whether a key has several rows"),
    Field("provider", "string", "whose files the state is in: cairn, rocksdb or hdfs"),
    Field("format", "integer", "Spark's checkpoint format, 1 or 2"),
    Field("partitions", "integer", "number of partitions"),
    Field("batch", "integer", "the batch that is described"),
    Field("first_batch", "integer", "oldest batch in the logs; its state may be gone"),
    Field("last_batch", "integer", "newest committed batch"),
    Field("columns", "array of strings", "columns of the rows"),
    Field(
        "problem", "string or null", "why the rows cannot be read; null if they can", is_whole=True
    ),
)
ALL_FIELDS: Fields = (
    Field("is_internal", "boolean", "whether the operator has it for itself; with --all"),
)
COUNT_FIELDS: Fields = (
    Field("keys", "integer or null", "number of keys, if they can be read; with --count"),
)
BATCH_FIELDS = (
    Field("batch", "integer", "number of the batch"),
    Field("watermark", "string", "watermark that the batch leaves to the next one"),
    Field("provider", "string", "whose files the state is in: cairn, rocksdb or hdfs"),
    Field("format", "integer", "Spark's checkpoint format, 1 or 2"),
    Field("partitions", "integer or null", "number of partitions; null before Spark 2.2"),
)
FILE_FIELDS = (
    Field("operator", "integer", "number of the stateful operator"),
    Field("store", "string", "Spark's name of the store"),
    Field("partition", "integer", "number of the partition"),
    Field("objects", "integer", "objects of all retained batches"),
    Field("bytes", "integer", "their size"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_batch
@click.option(
    "--all", "is_all", is_flag=True, help="List the stores too that an operator has for itself."
)
@click.option(
    "--count",
    "is_count",
    is_flag=True,
    help="Count the keys. Cairn's stores have the number: one small object per partition is read. "
    "Stores of Spark's providers are read whole.",
)
@click.option("--batches", "is_batches", is_flag=True, help="List the batches: two GETs per batch.")
@click.option(
    "--files",
    "is_files",
    is_flag=True,
    help="List objects and bytes per store and partition: one LIST per 1,000 objects on S3.",
)
@with_output
def ls(
    place: Place,
    batch: int | None,
    output: Output,
    *,
    is_all: bool,
    is_count: bool,
    is_batches: bool,
    is_files: bool,
) -> None:
    """List the stores of a checkpoint, or its batches, or the objects of the stores.

    The list of stores costs some requests per operator, however large the state is.
    """
    if is_batches + is_files + (is_all or is_count) > 1:
        raise click.UsageError("--batches, --files, and --all or --count exclude each other.")
    with place.open() as checkpoint:
        if is_batches:
            output.write_fields(BATCH_FIELDS, _batches(checkpoint))
        elif is_files:
            files = checkpoint.files_at(batch)
            output.write_fields(
                FILE_FIELDS,
                ((one.operator, one.store, one.partition, one.objects, one.bytes) for one in files),
            )
        else:
            fields = STORE_FIELDS
            fields += (ALL_FIELDS if is_all else ()) + (COUNT_FIELDS if is_count else ())
            rows = _stores(checkpoint, batch, is_all=is_all, is_count=is_count)
            output.write_fields(fields, rows)


def _stores(
    checkpoint: Checkpoint, batch: int | None, *, is_all: bool, is_count: bool
) -> Iterator[list[Any]]:
    batches = checkpoint.batches
    view = checkpoint.view(batch)
    operators = {one.operator: one for one in checkpoint.operators_at(view.batch)}
    stores: Iterable[StoreInfo] = checkpoint.stores_at(view.batch)
    for one in stores:
        if one.is_internal and not is_all:
            continue
        operator = operators[one.operator]
        row: list[Any] = [one.operator, operator.name, one.name, one.store, one.family]
        row += [one.is_list, view.provider, view.checkpoint_format, operator.partitions]
        row += [view.batch, batches[0], batches[-1], list(one.columns), one.problem]
        if is_all:
            row.append(one.is_internal)
        if is_count:
            row.append(None if one.problem else _count(checkpoint, one, view.batch))
        yield row


def _count(checkpoint: Checkpoint, one: StoreInfo, batch: int) -> int:
    return checkpoint.state(one.operator, one.name, batch=batch).count_keys()


def _batches(checkpoint: Checkpoint) -> Iterator[list[Any]]:
    from cairn.cli.cells import time_text  # noqa: PLC0415 - it imports pyarrow

    for one in checkpoint.describe_batches():
        watermark = time_text(one.watermark_ms)
        yield [one.batch, watermark, one.provider, one.checkpoint_format, one.partitions]
