"""Lists in RocksDB: chunks under one key, found by seeking.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst. Plain functions over rocksdict's iterators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.rocks import keys as layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rocksdict import RdictIter

LONG_LIST_CHUNKS = 32
"""A longer list is rewritten as one chunk when the owner has time: a read steps over each."""
_ROW_OVERHEAD_BYTES = 16


def chunks_of(seeker: RdictIter, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks, key and value, of the list whose chunk keys begin with ``start``.

    Raises:
        Exception: rocksdict's, at a corrupt block.
    """
    seeker.seek(start)
    while seeker.valid():
        key: bytes = seeker.key()
        if not key.startswith(start):
            return
        yield key, seeker.value()
        seeker.next()
    # An iterator that is not valid is at the end, or at a block that it cannot read.
    seeker.status()


def has_list(seeker: RdictIter, start: bytes) -> bool:
    """Return whether there is a chunk whose key begins with ``start``."""
    return next(chunks_of(seeker, start), None) is not None


@dataclass
class ListPage:
    """Whole lists in ascending key order, and the RocksDB key of the last chunk taken."""

    keys: list[bytes]
    chunks: list[list[bytes]]
    last: bytes | None


def read_list_page(
    rows: Iterable[tuple[bytes, bytes]], limit_rows: int, limit_bytes: int
) -> ListPage:
    """Gather chunks into lists until a limit is reached; the last list is whole."""
    page = ListPage([], [], None)
    current = b""
    size = 0
    for rocks_key, value in rows:
        group = rocks_key[: -layout.CHUNK_SUFFIX_BYTES]
        if page.last is None or group != current:
            if len(page.keys) >= limit_rows or size >= limit_bytes:
                break
            current = group
            page.keys.append(layout.key_of_chunk(rocks_key))
            page.chunks.append([])
        page.chunks[-1].append(value)
        size += len(value) + _ROW_OVERHEAD_BYTES
        page.last = rocks_key
    return page
