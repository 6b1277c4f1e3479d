"""Changelogs: read back whole, or an error; never with fewer or other rows."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.checksum import crc32c
from cairn.errors import (
    BusyError,
    CorruptError,
    DataError,
    ForeignObjectError,
    FormatVersionError,
    InternalError,
)
from cairn.format import changelog
from cairn.format.arrow_message import check_record_batch
from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.header import Base, ChangelogHeader, ColumnFamily
from cairn.ids import Attempt, CheckpointId, StoreId, VersionRef

STORE = StoreId(0, 3)
REF = VersionRef(1, CheckpointId("u" + "1" * 32))
FAMILY = ColumnFamily(
    id=0,
    name="default",
    multi=False,
    internal=False,
    ordered=False,
    key_type="int",
    value_type="int",
    key_encoder="NoPrefix",
)
HEADER = ChangelogHeader(
    store=STORE,
    ref=REF,
    attempt=Attempt("run", 1, 2, 3, 4),
    base=Base(0, None),
    lineage=(REF,),
    counts={0: 1},
    column_families=(FAMILY,),
    max_cf_id=0,
    written_at_ms=5,
)


def batch(*rows: tuple[int, int, bytes, bytes | None]) -> pa.RecordBatch:
    """Return a batch; one tuple per row."""
    columns: list[Any] = [
        pa.array([row[index] for row in rows], field.type)
        for index, field in enumerate(CHANGELOG_SCHEMA)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CHANGELOG_SCHEMA)


BATCHES = [
    batch(*((1, 0, struct.pack(">I", key), b"value %d" % key) for key in range(start, start + 50)))
    for start in (0, 50, 100)
]
DATA = changelog.encode(HEADER, BATCHES)


def sealed(data: bytes) -> bytes:
    """Return ``data`` with a matching checksum, as a faulty writer would store it."""
    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


def decode(data: bytes) -> changelog.Changelog:
    """Decode as a loader of version 1 does."""
    return changelog.decode(data, object_name="o", store=STORE, version=1)


def test_changelog_reads_back() -> None:
    """The ordinary case."""
    found = decode(DATA)

    assert found.header == HEADER
    assert found.table.equals(pa.Table.from_batches(BATCHES))
    assert found.size_bytes == len(DATA)


@pytest.mark.parametrize("operator", [-1, -(2**63), 2**63 - 1])
def test_every_operator_id_of_spark_reads_back(operator: int) -> None:
    """Spark's ids are signed 64-bit numbers: what was committed must load."""
    store = StoreId(operator, 3)
    data = changelog.encode(replace(HEADER, store=store), BATCHES)

    found = changelog.decode(data, object_name="o", store=store, version=1)

    assert found.header.store == store


def test_commit_without_writes_reads_back() -> None:
    """Partitions without input commit too."""
    found = decode(changelog.encode(HEADER, []))

    assert found.table.num_rows == 0


def test_long_batches_are_split() -> None:
    """The specification bounds a batch, so that a reader needs bounded memory."""
    rows = changelog.MAX_BATCH_ROWS + 1
    keys = pa.array([b"%d" % key for key in range(rows)], pa.binary())
    ops = pa.array([1] * rows, pa.uint8())
    long = pa.RecordBatch.from_arrays(
        [ops, ops.cast(pa.uint16()), keys, keys], schema=CHANGELOG_SCHEMA
    )

    found = decode(changelog.encode(HEADER, [long]))

    assert [piece.num_rows for piece in found.table.to_batches()] == [rows - 1, 1]
    assert found.table["key"].to_pylist() == keys.to_pylist()


@pytest.mark.parametrize("length", range(0, len(DATA), 64))
def test_object_cut_at_every_64th_byte_is_corrupt(length: int) -> None:
    """An Arrow stream cut between two batches reads as a shorter one, without an error."""
    with pytest.raises(CorruptError) as raised:
        decode(DATA[:length])

    assert raised.value.object_name == "o"
    assert raised.value.store == str(STORE)
    assert raised.value.version == 1
    assert raised.value.next_step


@settings(max_examples=300)
@given(position=st.integers(0, len(DATA) - 1), flip=st.integers(1, 255))
def test_flipped_byte_is_an_error(position: int, flip: int) -> None:
    """A byte that the network or a disk changed must not reach a row."""
    corrupt = bytearray(DATA)
    corrupt[position] ^= flip

    with pytest.raises(DataError):
        decode(bytes(corrupt))


def test_bytes_after_the_trailer_are_an_error() -> None:
    """Two concatenated objects are not a changelog."""
    with pytest.raises(DataError):
        decode(DATA + DATA)


@pytest.mark.parametrize("data", [b"PK\x03\x04" * 40, b"{}", b"hello, not a changelog" * 9])
def test_foreign_bytes_are_foreign(data: bytes) -> None:
    """The error for a foreign file must not call it corrupt."""
    with pytest.raises(ForeignObjectError):
        decode(data)


def test_a_lack_of_memory_is_not_called_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person would restore an object that is good."""

    def no_memory(_: object) -> None:
        raise pa.ArrowMemoryError

    monkeypatch.setattr(pa.ipc, "open_stream", no_memory)
    with pytest.raises(BusyError, match="workerMemory"):
        decode(DATA)


def test_a_few_bytes_that_claim_much_memory_are_corrupt() -> None:
    """A hostile changelog, whole by its checksum, must not take the memory of the worker."""
    value = b"v" * 70_007
    data = bytearray(changelog.encode(HEADER, [batch((1, 0, b"k", value))]))

    at = data.rindex(struct.pack("<q", len(value)))  # before the values: the last buffer
    data[at : at + 8] = struct.pack("<q", 1 << 40)

    with pytest.raises(CorruptError, match=r"cannot decompress|more bytes than a commit"):
        decode(sealed(bytes(data)))


def test_rows_that_need_more_memory_than_is_left_are_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Linux would end the worker, with all its stores: a few kilobytes stand for gigabytes."""
    data = changelog.encode(HEADER, [batch((1, 0, b"k", bytes(80 << 20)))])
    assert len(data) < 10_000
    monkeypatch.setattr(changelog, "available_bytes", lambda: 70 << 20)
    monkeypatch.setattr(pa.ipc, "open_stream", None)

    with pytest.raises(
        BusyError, match=r"need 83,\d{3},\d{3} bytes .* 73,400,320 are left"
    ) as found:
        decode(data)

    assert found.value.object_name == "o"
    assert "memoryOverhead" in str(found.value.next_step)


def test_rows_are_decoded_where_the_memory_that_is_left_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only Linux tells it."""
    data = changelog.encode(HEADER, [batch((1, 0, b"k", bytes(80 << 20)))])
    monkeypatch.setattr(changelog, "available_bytes", lambda: None)

    assert decode(data).table.num_rows == 1


def test_sizes_are_those_of_the_decoded_rows() -> None:
    """The check before decoding must not refuse honest rows, nor miss any."""
    rows = [(1, 0, b"k%d" % n, b"v" * n) for n in range(300)]
    for compression in ("zstd", None):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, CHANGELOG_SCHEMA, options=options) as out:
            out.write_batch(batch(*rows[:100]))
            out.write_batch(batch(*rows[100:]))
        stream = sink.getvalue()

        _, *messages = pa.ipc.MessageReader.open_stream(stream)
        sizes = [check_record_batch(one, may_compress=True) for one in messages]

        decoded = list(pa.ipc.open_stream(stream))
        assert [size[0] for size in sizes] == [one.num_rows for one in decoded]
        for (_, size), one in zip(sizes, decoded, strict=True):
            assert one.nbytes <= size <= one.nbytes + 8 * 64


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_sizes_of_damaged_messages_are_an_error_or_small(position: int, flip: int) -> None:
    """A hostile object has a checksum of its own: its messages may say anything."""
    data = bytearray(changelog.encode(HEADER, [batch((1, 0, b"k", b"v" * 100))]))
    data[position % (len(data) - 36)] ^= flip
    default = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(default)
    pa.set_memory_pool(counted)

    try:
        with suppress(DataError):
            assert decode(sealed(bytes(data))).table.nbytes < 1 << 20
    finally:
        pa.set_memory_pool(default)
    assert (counted.max_memory() or 0) < 1 << 20


def test_newer_format_is_not_called_corrupt() -> None:
    """The remedy is a newer release, not a backup."""
    newer = bytearray(DATA)
    newer[-24:-20] = struct.pack("<I", 2)

    with pytest.raises(FormatVersionError):
        decode(sealed(bytes(newer)))


def test_other_row_count_is_corrupt() -> None:
    """The trailer's row count is checked."""
    other = bytearray(DATA)
    other[-20:-12] = struct.pack("<Q", 149)

    with pytest.raises(CorruptError):
        decode(sealed(bytes(other)))


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        ({"store": StoreId(0, 4)}, ForeignObjectError),
        ({"version": 2}, CorruptError),
    ],
)
def test_another_version_than_the_expected_one_is_refused(
    expected: dict[str, Any], error: type[DataError]
) -> None:
    """An object copied to another name would load the wrong state."""
    with pytest.raises(error):
        changelog.decode(DATA, object_name="o", **expected)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((5, 0, b"k", b"v"), FormatVersionError),
        ((0, 0, b"k", b"v"), FormatVersionError),
        ((1, 0, b"k", None), CorruptError),
        ((2, 0, b"k", b"v"), CorruptError),
        ((4, 0, b"k", None), CorruptError),
    ],
)
def test_rows_against_the_grammar_are_refused(
    row: tuple[int, int, bytes, bytes | None], error: type[DataError]
) -> None:
    """Rows are checked even if the checksum matches."""
    with pytest.raises(error):
        decode(changelog.encode(HEADER, [batch(row)]))


def test_batch_of_another_schema_is_a_bug() -> None:
    """A batch without the four columns cannot be a changelog."""
    with pytest.raises(InternalError):
        changelog.encode(HEADER, [pa.record_batch({"op": pa.array([1])})])


def test_lineage_that_does_not_end_here_is_corrupt() -> None:
    """A lineage with a gap would replay to another state."""
    with pytest.raises(CorruptError):
        replace(HEADER, lineage=())
    with pytest.raises(CorruptError):
        replace(HEADER, lineage=(VersionRef(1, CheckpointId("u" + "2" * 32)),))


def ref(version: int) -> VersionRef:
    """Return a version."""
    return VersionRef(version, CheckpointId(f"u{version:032x}"))


def test_lineage_may_leave_out_empty_commits() -> None:
    """They have no object; what is listed still ascends from the base to the version."""
    header = replace(
        HEADER, ref=ref(9), base=Base(2, ref(2).checkpoint_id), lineage=(ref(5), ref(9))
    )

    assert ChangelogHeader.from_json(header.to_json().encode()) == header
    for base, lineage in (
        (header.base, (ref(9), ref(5))),
        (header.base, (ref(5), ref(5), ref(9))),
        (header.base, (ref(2), ref(9))),
        # The first version after an empty state has an object.
        (Base(2, None), (ref(5), ref(9))),
    ):
        with pytest.raises(CorruptError, match="lineage"):
            replace(header, base=base, lineage=lineage)


def test_header_is_read_from_the_first_bytes() -> None:
    """A load plans by it while the rows are still on their way."""
    first = next(
        length
        for length in range(len(DATA))
        if changelog.peek_header(DATA[:length], store=STORE, version=1) is not None
    )

    assert first < len(DATA) // 2
    for length in (first, first + 1, len(DATA)):
        assert changelog.peek_header(DATA[:length], store=STORE, version=1) == HEADER
    assert changelog.peek_header(DATA, version=2) is None
    assert changelog.peek_header(DATA, store=StoreId(9, 9)) is None
    assert changelog.peek_header(DATA) == HEADER


@pytest.mark.parametrize("data", [b"", b"x" * 100, b"\xff" * 4 + b"\x10\0\0\0" + b"\xff" * 100])
def test_no_header_is_read_from_foreign_bytes(data: bytes) -> None:
    """The whole object is read then, and named in the error."""
    assert changelog.peek_header(data) is None


@given(position=st.integers(0, len(DATA) - 1), flip=st.integers(1, 255))
def test_header_with_a_flipped_byte_is_none_or_a_guess(position: int, flip: int) -> None:
    """Reading bytes that nothing has verified must not fail in another way."""
    data = bytearray(DATA)
    data[position] ^= flip

    header = changelog.peek_header(bytes(data), store=STORE, version=1)

    assert header is None or header.store == STORE


def test_an_impossible_length_is_refused_before_memory_is_reserved() -> None:
    """Arrow reserves what a compressed buffer states at once: a flipped byte took terabytes."""
    rows = [(1, 0, b"key", b"v" * 123_457)]
    data = bytearray(changelog.encode(HEADER, [batch(*rows)]))
    at = data.rindex(struct.pack("<q", 123_457))
    data[at : at + 8] = struct.pack("<q", 1 << 41)

    with pytest.raises(CorruptError, match="cannot decompress to 2199023255552"):
        decode(sealed(bytes(data)))


def test_offsets_outside_the_data_are_refused() -> None:
    """Arrow follows them without a look at the length: the worker ended, or read other memory."""
    rows = batch((1, 0, b"a", b"value"), (1, 0, b"b", b""))
    offsets = pa.py_buffer(struct.pack("<iii", 0, 1 << 20, 5))
    value = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"value")])
    broken = pa.RecordBatch.from_arrays([*rows.columns[:3], value], schema=CHANGELOG_SCHEMA)

    with pytest.raises(CorruptError, match="cannot be read"):
        decode(changelog.encode(HEADER, [broken]))
