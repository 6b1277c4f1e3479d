"""The chunks of lists in a snapshot of Cairn's, as the reader joins them."""

from __future__ import annotations

import pyarrow as pa

from cairn.reader.stores.cairn import joined_chunks
from cairn.rocks import keys as layout

LISTS = 3
ONE_CHUNK = ["key", "value"]


def chunk(key: bytes, version: int, value: bytes) -> pa.RecordBatch:
    """Return one chunk, as a scan of the snapshot's files has it."""
    cells = (layout.chunk_keys(LISTS, [key], version), [value])
    return pa.RecordBatch.from_arrays([pa.array(one, pa.binary()) for one in cells], ONE_CHUNK)


def test_the_chunks_of_a_list_become_one_in_their_order() -> None:
    """Chunks come in batches: that of the last list of one may go on in the next."""
    batches = [
        chunk(b"a", 1, b"1"),
        chunk(b"a", 2, b"2"),
        chunk(b"b", 1, b"3"),
        chunk(b"c", 1, b"4"),
        chunk(b"c", 9, b"5"),
    ]

    found = [
        row
        for entries in joined_chunks(iter(batches))
        for row in zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
    ]

    assert found == [(b"a", b"12"), (b"b", b"3"), (b"c", b"45")]
