"""Commits without rows: what a store writes for a batch that changes nothing in it.

Layer: reader. Their sizes do not tell: a header has a lineage, which grows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from cairn.errors import DataError, RowTooLargeError
from cairn.format.changelog import TRAILER_BYTES, peek_row_count
from cairn.reader.spark.compression import decompress
from cairn.reader.stores.changelog import Changelog
from cairn.reader.stores.records import read_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cairn.reader.spark.logs import Provider
    from cairn.storage.base import ObjectInfo, ObjectStore

_THREADS: Final = 8
_LOOKED_AT_BYTES: Final = 1 << 16
"""A changelog of Spark's that is larger has rows."""


def empty_share(
    objects: ObjectStore, provider: Provider, sampled: Sequence[ObjectInfo]
) -> tuple[float, float]:
    """Return the share of changelogs without rows, of their number and of their bytes.

    Costs a GET per changelog, of Cairn's of a few bytes.

    Args:
        objects: at the checkpoint's location.
        provider: whose changelogs these are.
        sampled: those that are looked at; objects that are gone or damaged are passed over.
    """
    is_empty = _is_empty_of_cairn if provider == "cairn" else _is_empty_of_spark
    with ThreadPoolExecutor(_THREADS, "cairn-cost") as threads:
        answers = list(threads.map(partial(is_empty, objects), sampled))
    known = [
        (info.size_bytes, answer)
        for info, answer in zip(sampled, answers, strict=True)
        if answer is not None
    ]
    size = sum(bytes_ for bytes_, _ in known)
    if not size:
        return 0.0, 0.0
    empty = [bytes_ for bytes_, answer in known if answer]
    return len(empty) / len(known), sum(empty) / size


def _is_empty_of_cairn(objects: ObjectStore, info: ObjectInfo) -> bool | None:
    offset = max(info.size_bytes - TRAILER_BYTES, 0)
    try:
        rows = peek_row_count(objects.get_range(info.key, offset, TRAILER_BYTES))
    except DataError:
        return None
    return None if rows is None else rows == 0


def _is_empty_of_spark(objects: ObjectStore, info: ObjectInfo) -> bool | None:
    if info.size_bytes > _LOOKED_AT_BYTES:
        return False
    try:
        data = objects.get(info.key, max_bytes=_LOOKED_AT_BYTES).data
        chunks = decompress(data, object_name=info.key)
        is_tagged = False
        if info.key.endswith(".changelog"):
            header = Changelog.open(chunks)
            chunks, is_tagged = header.records, header.is_tagged
        records = read_records(chunks, is_tagged=is_tagged, record_bytes=_LOOKED_AT_BYTES)
        return next(records, None) is None
    except RowTooLargeError:
        return False
    except DataError:
        return None
