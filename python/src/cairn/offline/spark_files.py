"""Spark's files of a batch that another checkpoint needs to go on behind it.

Layer: offline.  Spec: docs/spark-formats.md. Files of Hadoop's (``.<name>.crc``) are none of them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from cairn.checkpoint import spark_logs
from cairn.errors import CorruptError, MissingError
from cairn.format.fields import as_list, as_object, as_text, parse_object
from cairn.format.spark_log import PARTITIONS, PROVIDER, batch_of
from cairn.reader.saved_files import SavedFiles
from cairn.reader.spark.operators import schema_key
from cairn.reader.spark.schema_files import schema_keys
from cairn.storage.local import path_of_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.format.spark_log import OffsetEntry
    from cairn.reader.batch import BatchView
    from cairn.reader.spark.operators import Operator
    from cairn.storage.base import ObjectInfo, ObjectStore

QUERY_ID = "metadata"
SOURCES_PREFIX = "sources/"
_FILE_BYTES_MAX = 1 << 30
_METADATA_V2 = re.compile(r"state/([0-9]+)/_metadata/v2/[0-9]+", re.ASCII)
_S3 = ("s3a", "s3", "s3n")


def operator_files(view: BatchView) -> Iterator[str]:
    """Yield the files of the operators up to a batch: their metadata, and the schemas.

    Costs two LISTs per operator; per store without families a GET of a byte.

    Args:
        view: the batch.
    """
    for operator in view.operators:
        yield from _metadata_files(view, operator)
        folder = f"state/{operator.id}/_stateSchema/"
        named = {key for store in operator.stores for key in store.schema_keys}
        listed = {
            info.key for info in view.objects.list(folder) if _first_batch(info.key) <= view.batch
        }
        yield from sorted(named | listed)
        for store in operator.stores:
            if not store.schema_keys:
                yield from (
                    key for key in schema_keys(operator, store) if _is_there(view.objects, key)
                )


def _metadata_files(view: BatchView, operator: Operator) -> Iterator[str]:
    folder = f"state/{operator.id}/_metadata/"
    for info in view.objects.list(folder):
        name = info.key.removeprefix(folder)
        batch = batch_of(name.removeprefix("v2/")) if name.startswith("v2/") else None
        if name == "metadata" or (batch is not None and batch <= view.batch):
            yield info.key


def _is_there(objects: ObjectStore, key: str) -> bool:
    try:
        objects.get_start(key, 1)
    except MissingError:
        return False
    return True


def _first_batch(key: str) -> int:
    """Return the batch in the name of a schema file; 0 if it has none."""
    return batch_of(key.rpartition("/")[2].partition("_")[0]) or 0


def stored_objects(view: BatchView) -> ObjectStore:
    """Return the checkpoint of a batch, also of a savepoint's."""
    objects = view.objects
    return objects.checkpoint if isinstance(objects, SavedFiles) else objects


def source_files(checkpoint: ObjectStore) -> list[ObjectInfo]:
    """Return the files of the sources: what earlier batches have read; one LIST."""
    return list(checkpoint.list(SOURCES_PREFIX))


def moved_file(checkpoint: ObjectStore, key: str, target_url: str) -> bytes:
    """Return the bytes that a file has at another location; names of files in it are moved, too.

    Raises:
        MissingError: it is gone.
        CorruptError: it is metadata of an operator, and cannot be read.
    """
    data = checkpoint.get(key, max_bytes=_FILE_BYTES_MAX).data
    match = _METADATA_V2.fullmatch(key)
    if match is None:
        return data
    try:
        return _moved_metadata(data, int(match[1]), target_url)
    except CorruptError as error:
        raise error.with_context(object_name=checkpoint.object_url(key)) from error.__cause__


def _moved_metadata(data: bytes, operator: int, target_url: str) -> bytes:
    """Return an operator's metadata with the schema files of the new place: Spark opens these."""
    what = "the operator's metadata"
    try:
        version, _, text = data.decode().partition("\n")
    except UnicodeDecodeError as error:
        raise CorruptError(f"{what} is not UTF-8") from error
    fields: dict[str, Any] = dict(parse_object(text, what))
    stores = []
    for value in as_list(fields.get("stateStoreInfo"), "stateStoreInfo"):
        store = dict(as_object(value, "stateStoreInfo"))
        if "stateSchemaFilePaths" in store:
            paths = as_list(store["stateSchemaFilePaths"], "stateSchemaFilePaths")
            store["stateSchemaFilePaths"] = [_moved(one, operator, target_url) for one in paths]
        if "stateSchemaFilePath" in store:  # before the release of Spark 4.0
            one = _moved(store["stateSchemaFilePath"], operator, target_url)
            store["stateSchemaFilePath"] = one
        stores.append(store)
    fields["stateStoreInfo"] = stores
    dumped = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return f"{version}\n{dumped}".encode()


def repartitioned_metadata(checkpoint: ObjectStore, key: str, partitions: int) -> bytes:
    """Return an operator's metadata of version 2 with another number of partitions.

    Raises:
        MissingError: it is gone.
        CorruptError: it cannot be read.
    """
    data = checkpoint.get(key, max_bytes=_FILE_BYTES_MAX).data
    what = "the operator's metadata"
    version, _, text = data.decode(errors="replace").partition("\n")
    try:
        fields: dict[str, Any] = dict(parse_object(text, what))
        fields["stateStoreInfo"] = [
            {**as_object(store, "stateStoreInfo"), "numPartitions": partitions}
            for store in as_list(fields.get("stateStoreInfo"), "stateStoreInfo")
        ]
    except CorruptError as error:
        raise error.with_context(object_name=checkpoint.object_url(key)) from error.__cause__
    dumped = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return f"{version}\n{dumped}".encode()


def _moved(path: object, operator: int, target_url: str) -> str:
    text = as_text(path, "a schema file")
    return f"{spark_location(target_url, text)}/{schema_key(text, operator)}"


def spark_location(url: str, like: str) -> str:
    """Return a location as Spark writes it into its files.

    Args:
        url: the location.
        like: a path of the former location: a scheme of S3's stays.
    """
    scheme = url.partition(":")[0].lower() if ":" in url.partition("/")[0] else ""
    if scheme in {"", "file"}:
        return f"file:{path_of_url(url).absolute()}"
    if scheme in _S3:
        former = like.partition(":")[0].lower()
        return f"{former if former in _S3 else _S3[0]}:{url.partition(':')[2]}".rstrip("/")
    return url.rstrip("/")


# -- the plans beside that of the batch ------------------------------------------------------------


def plan_before(view: BatchView) -> OffsetEntry | None:
    """Return the plan of the batch before: without it Spark does not start behind a batch.

    If it is gone, that of the batch itself takes its place: Spark gives both to the sources of the
    first data source API, to ask for what the committed batch has read, and uses no row of it.
    ``None``: there was no batch before.
    """
    if view.batch == 0:
        return None
    try:
        return spark_logs.read_planned(view.objects, view.batch - 1).entry
    except MissingError:
        return view.conf.entry


def next_plan(view: BatchView) -> OffsetEntry | None:
    """Return the plan of the batch after, if there is one: the query repeats it as it was planned.

    That of a batch that changes the state's form is none: the state before it has the other form.

    Raises:
        InUseError: a command changes the checkpoint.
    """
    try:
        entry = spark_logs.read_planned(view.objects, view.batch + 1).entry
    except (MissingError, CorruptError):
        return None  # not planned, or cut: then Spark has not run it
    return entry if leads_on(view.conf.entry, entry) else None


def leads_on(planned: OffsetEntry, following: OffsetEntry) -> bool:
    """Return whether a batch is planned for state as the batch before has left it."""
    return not following.metadata.get("controlBatchInfo") and all(
        planned.conf.get(name) == following.conf.get(name) for name in (PARTITIONS, PROVIDER)
    )
