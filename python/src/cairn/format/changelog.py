"""Changelog: all writes of one version, as one immutable object.

Layer: format (bytes only; ``checkpoint.commit_point`` stores it).
Spec: docs/checkpoint-format.md#changelog.

    changelog := arrow trailer
    arrow     := Arrow IPC stream (schema, record batches of 1..65536 rows, end-of-stream), zstd
    schema    := op: uint8 not null, cf: uint16 not null, key: binary not null, value: binary
    metadata  := {"cairn.magic": "CAIRN-CHANGELOG", "cairn.format": format, "cairn.header": JSON}
    format    := "2" if there are VOID rows, otherwise "1"
    trailer   := magic[8] = "CAIRNEND"  u32 format  u64 rows  u64 arrow_bytes  u32 crc32c

Little-endian. ``crc32c`` covers every byte before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cairn.checksum import crc32c
from cairn.errors import (
    BusyError,
    CairnError,
    CorruptError,
    ForeignObjectError,
    FormatVersionError,
    InternalError,
    unexpected,
)
from cairn.format.arrow_message import check_record_batch
from cairn.format.header import ChangelogHeader
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT, OP_VOID
from cairn.memory import available_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Indexes = np.ndarray[Any, np.dtype[np.int64]]

    from cairn.ids import StoreId, Version

_PLAIN_FORMAT = 1
_FORMAT_WITH_VOID_ROWS = 2
_FORMATS = {_PLAIN_FORMAT: OP_DROP_CF, _FORMAT_WITH_VOID_ROWS: OP_VOID}
"""The known formats, with the highest op of each."""
MAX_BATCH_ROWS = 65_536
MAX_DECODED_BYTES = 1 << 32
"""Keys and values of one commit have less than 2 GiB each."""
MAX_OBJECT_BYTES = 2 * MAX_DECODED_BYTES
"""With op, family and offsets of each row, if nothing of it can be compressed."""
_MAX_ROW_OVERHEAD_BYTES = 64
"""Op, family, offsets, and bitmaps with their padding, in a batch of one row."""
_ALWAYS_DECODED_BYTES = 64 << 20
"""Up to here, the memory that is left is not looked at."""
_ONE_THREAD_ROWS = 16_384
"""Up to here, waking other threads takes longer than they save."""
_WRITE_OPTIONS = {
    use_threads: pa.ipc.IpcWriteOptions(compression="zstd", use_threads=use_threads)
    for use_threads in (False, True)
}
_INDEX_BYTES = 4  # of a VOID row

_FIELDS: list[pa.Field[Any]] = [
    pa.field("op", pa.uint8(), nullable=False),
    pa.field("cf", pa.uint16(), nullable=False),
    pa.field("key", pa.binary(), nullable=False),
    pa.field("value", pa.binary()),
]
CHANGELOG_SCHEMA: pa.Schema = pa.schema(_FIELDS)

_MAGIC = b"CAIRN-CHANGELOG"
_TRAILER_MAGIC = b"CAIRNEND"
_TRAILER_BODY = struct.Struct("<8sIQQ")
_CRC = struct.Struct("<I")
_TRAILER_BYTES = _TRAILER_BODY.size + _CRC.size
_MESSAGE_START = struct.Struct("<4si")
"""Of an Arrow IPC message: continuation, length of the metadata that follows."""
_CONTINUATION = b"\xff\xff\xff\xff"
"""The first bytes of every Arrow IPC message."""
_SNIFFED_BYTES = 1 << 16
"""How much of an object without a trailer is searched for the magic; the schema comes first."""
_SCHEMA_BYTES = CHANGELOG_SCHEMA.serialize().size
_END_OF_STREAM = struct.pack("<4si", _CONTINUATION, 0)
_RESTORE = "restore the object from the bucket's versions, or restart from the version before"


@dataclass(frozen=True, slots=True)
class Changelog:
    """A changelog as read: its header, the rows that count, the object's length.

    Attributes:
        table: has ``CHANGELOG_SCHEMA``; at most one op per key.
    """

    header: ChangelogHeader
    table: pa.Table
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows as they are in the object: messages of record batches, without schema and end."""

    messages: pa.Buffer
    row_count: int


def encode_rows(
    batches: Sequence[pa.RecordBatch], *, use_threads: bool | None = None
) -> EncodedRows:
    """Return rows in the form in which ``encode`` takes them without further work.

    Args:
        batches: as for ``encode``.
        use_threads: whether other threads may compress columns too; by default, if the rows are
            so many that this is faster.

    Raises:
        InternalError: as ``encode``.
    """
    row_count = sum(batch.num_rows for batch in batches)
    sink = pa.BufferOutputStream()
    with_threads = row_count > _ONE_THREAD_ROWS if use_threads is None else use_threads
    options = _WRITE_OPTIONS[with_threads]
    with pa.ipc.new_stream(sink, CHANGELOG_SCHEMA, options=options) as out:
        for batch in _pieces(batches):
            out.write_batch(batch)
    stream = sink.getvalue()
    size = stream.size - _SCHEMA_BYTES - len(_END_OF_STREAM)
    return EncodedRows(stream.slice(_SCHEMA_BYTES, size), row_count)


def encode(
    header: ChangelogHeader,
    rows: Iterable[pa.RecordBatch | EncodedRows],
    void_rows: Indexes | None = None,
) -> bytes:
    """Return the object's bytes.

    Args:
        header: the version's header.
        rows: columns of ``CHANGELOG_SCHEMA``, any number of rows, some perhaps encoded already; at
            most one op per key counts; ``value`` is null exactly where the op takes none.
        void_rows: the indexes of the rows that do not count, ascending; puts and deletes only.

    Raises:
        InternalError: a batch has another schema, or nulls in a column that allows none.
    """
    encoded = [one if isinstance(one, EncodedRows) else encode_rows([one]) for one in rows]
    format_version = _PLAIN_FORMAT
    if void_rows is not None and len(void_rows):
        format_version = _FORMAT_WITH_VOID_ROWS
        encoded.append(encode_rows([_as_void_rows(void_rows)]))
    schema = CHANGELOG_SCHEMA.with_metadata(
        {
            b"cairn.magic": _MAGIC,
            b"cairn.format": str(format_version).encode(),
            b"cairn.header": header.to_json().encode(),
        }
    )
    row_count = sum(one.row_count for one in encoded)
    # The schema is a message of its own: those of record batches do not depend on its metadata.
    parts: list[pa.Buffer | bytes] = [schema.serialize()]
    parts += [one.messages for one in encoded]
    parts.append(_END_OF_STREAM)
    arrow_bytes = sum(len(part) for part in parts)
    parts.append(_TRAILER_BODY.pack(_TRAILER_MAGIC, format_version, row_count, arrow_bytes))
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    parts.append(_CRC.pack(checksum))
    return b"".join(parts)


def _as_void_rows(indexes: Indexes) -> pa.RecordBatch:
    count = len(indexes)
    keys = indexes.astype("<u4")
    offsets = np.arange(count + 1, dtype=np.int32) * _INDEX_BYTES
    columns: list[pa.Array[Any]] = [
        pa.array(np.full(count, OP_VOID, np.uint8)),
        pa.array(np.zeros(count, np.uint16)),
        pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(offsets.data), pa.py_buffer(keys.data)]
        ),
        pa.nulls(count, pa.binary()),
    ]
    return pa.record_batch(columns, schema=CHANGELOG_SCHEMA)


def decode(
    data: bytes | memoryview | pa.Buffer,
    *,
    object_name: str,
    store: StoreId | None = None,
    version: Version | None = None,
) -> Changelog:
    """Return the header of a whole changelog, and the rows that count.

    Args:
        data: the whole object; the returned rows keep it alive.
        object_name: name of the object in errors.
        store: the expected store; ``None`` accepts any.
        version: the expected version; ``None`` accepts any.

    Raises:
        CorruptError: bytes contradict checksum, length or grammar, or the version is another one.
        FormatVersionError: a newer format.
        ForeignObjectError: not a changelog of Cairn, or another store's.
        BusyError: its rows need more memory than is left; nothing was decoded.
    """
    try:
        changelog = _decode(memoryview(data))
        header = changelog.header
        if store is not None and header.store != store:
            raise ForeignObjectError(f"it belongs to store {header.store}")
        if version is not None and header.ref.version != version:
            raise CorruptError(f"it holds version {header.ref.version}")
    except CairnError as error:
        error.with_context(
            store=None if store is None else str(store),
            version=version,
            object_name=object_name,
            next_step=_RESTORE,
        )
        raise
    return changelog


def peek_header(
    start: bytes, *, store: StoreId | None = None, version: Version | None = None
) -> ChangelogHeader | None:
    """Return the header at the start of a changelog, not verified by the trailer.

    Good for planning: what is then read must be verified, and the header compared with the
    verified one. Nothing may be deleted because of it, unless its id is one that is known.

    Args:
        start: the first bytes of the object.
        store: as for ``decode``.
        version: as for ``decode``.

    Returns:
        ``None`` if the header does not fit into ``start``, or is not that of the expected
        changelog: read the whole object, and ``decode`` names the error.
    """
    if len(start) < _MESSAGE_START.size:
        return None
    _, message_bytes = _MESSAGE_START.unpack_from(start)
    if not 0 < message_bytes <= len(start) - _MESSAGE_START.size:
        return None
    try:
        metadata = pa.ipc.read_schema(pa.py_buffer(start)).metadata or {}
        header = ChangelogHeader.from_json(metadata.get(b"cairn.header", b""))
    except (pa.ArrowException, OSError, ValueError, CairnError):
        return None
    is_ours = metadata.get(b"cairn.magic") == _MAGIC
    is_known = metadata.get(b"cairn.format") in {str(known).encode() for known in _FORMATS}
    is_expected = store in (None, header.store) and version in (None, header.ref.version)
    return header if is_ours and is_known and is_expected else None


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batches`` in pieces of 1 to ``MAX_BATCH_ROWS`` rows."""
    for batch in batches:
        piece = batch if batch.schema.equals(CHANGELOG_SCHEMA) else _with_schema(batch)
        if any(piece.column(index).null_count for index in range(3)):
            raise InternalError("op, cf or key of a batch has nulls")
        for start in range(0, piece.num_rows, MAX_BATCH_ROWS):
            yield piece.slice(start, MAX_BATCH_ROWS)


def _with_schema(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with other promises about nulls."""
    schema = batch.schema
    if schema.names != CHANGELOG_SCHEMA.names or schema.types != CHANGELOG_SCHEMA.types:
        raise InternalError(f"a batch does not have the changelog's schema: {schema}")
    return pa.RecordBatch.from_arrays(batch.columns, schema=CHANGELOG_SCHEMA)


def _decode(view: memoryview) -> Changelog:
    format_version, rows, arrow_bytes = _check_trailer(view)
    try:
        stream = pa.py_buffer(view[:arrow_bytes])
        _check_messages(stream, rows)
        reader = pa.ipc.open_stream(stream)
        metadata = reader.schema.metadata or {}
        table = pa.Table.from_batches(list(reader), reader.schema)
        table.validate(full=True)
    except MemoryError as error:  # Arrow's is an ArrowException, too
        raise unexpected(error) from error
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise CorruptError("the Arrow stream cannot be read") from error
    if metadata.get(b"cairn.magic") != _MAGIC:
        raise ForeignObjectError("an Arrow stream, but not a changelog of Cairn")
    if metadata.get(b"cairn.format") != str(format_version).encode():
        raise FormatVersionError(
            f"its schema has format {metadata.get(b'cairn.format')!r}, its trailer {format_version}"
        )
    if not table.schema.equals(CHANGELOG_SCHEMA):
        raise CorruptError("its schema is not that of a changelog")  # its names may be no UTF-8
    header = ChangelogHeader.from_json(metadata.get(b"cairn.header", b""))
    table = table.replace_schema_metadata(None)
    _check_ops(table, _FORMATS[format_version])
    if format_version == _FORMAT_WITH_VOID_ROWS:
        table = _without_void_rows(table)
    return Changelog(header, table, len(view))


def _check_messages(stream: pa.Buffer, rows: int) -> None:
    """Refuse what no writer can have written, before Arrow reserves memory for it.

    Raises:
        CorruptError: a length is impossible, or there are more rows or bytes than in a commit.
        BusyError: the rows need more memory than is left.
    """
    row_count = size = 0
    for index, message in enumerate(pa.ipc.MessageReader.open_stream(stream)):
        if not index:
            continue  # the first one is the schema
        batch_rows, batch_bytes = check_record_batch(message, may_compress=True)
        if not 0 < batch_rows <= MAX_BATCH_ROWS:
            raise CorruptError(f"it has a batch of {batch_rows} rows")
        row_count, size = row_count + batch_rows, size + batch_bytes
        if size > MAX_DECODED_BYTES + rows * _MAX_ROW_OVERHEAD_BYTES:
            raise CorruptError("its rows would have more bytes than a commit can have")
    if row_count != rows:
        raise CorruptError(f"{row_count} rows, but the trailer says {rows}")
    left = None if size <= _ALWAYS_DECODED_BYTES else available_bytes()
    if left is not None and size > left:
        raise BusyError(
            f"its {rows} rows need {size:,} bytes of memory, and {left:,} are left here",
            next_step="let Spark retry the task; if it happens again, give the machine or the "
            "container more memory (spark.executor.memoryOverhead)",
        )


def _without_void_rows(table: pa.Table) -> pa.Table:
    """Return the rows that count.

    Raises:
        CorruptError: a VOID row names no earlier put or delete, or they are not in order.
    """
    ops = table["op"].to_numpy()
    count = int(np.count_nonzero(ops == OP_VOID))
    end = len(ops) - count
    names: list[Any] = table["key"].slice(end).to_pylist()
    is_last = count > 0 and not (ops[:end] == OP_VOID).any()
    if not is_last or any(len(name) != _INDEX_BYTES for name in names):
        raise CorruptError("its VOID rows are not at its end, or have no index")
    voids = np.frombuffer(b"".join(names), "<u4").astype(np.int64)
    is_ascending = bool((np.diff(voids) > 0).all())
    if not is_ascending or voids[-1] >= end or ops[voids].max() > OP_DELETE:
        raise CorruptError("its VOID rows do not name earlier puts and deletes in order")
    counts = np.ones(end, np.bool_)
    counts[voids] = False
    return table.slice(0, end).filter(pa.array(counts))


def _check_trailer(view: memoryview) -> tuple[int, int, int]:
    """Verify the checksum of all bytes; return the trailer's format, rows and arrow_bytes."""
    if len(view) < _TRAILER_BYTES:
        raise _without_trailer(view)
    split = len(view) - _TRAILER_BYTES
    magic, format_version, rows, arrow_bytes = _TRAILER_BODY.unpack_from(view, split)
    if magic != _TRAILER_MAGIC:
        raise _without_trailer(view)
    (checksum,) = _CRC.unpack_from(view, len(view) - _CRC.size)
    if checksum != crc32c(view[: -_CRC.size]):
        raise CorruptError("its bytes differ from the checksum in the trailer")
    if format_version not in _FORMATS:
        raise FormatVersionError(
            f"changelog format {format_version} is newer than {max(_FORMATS)}",
            next_step="use a release of Cairn that is as new as the one that wrote it",
        )
    if arrow_bytes != split:
        raise CorruptError(f"{split} bytes of Arrow, but the trailer says {arrow_bytes}")
    return format_version, rows, arrow_bytes


def _without_trailer(view: memoryview) -> CairnError:
    """Return the error for an object without a trailer: a part of a changelog, or foreign."""
    start = bytes(view[:_SNIFFED_BYTES])
    if not start or _MAGIC in start:
        return CorruptError(f"it is truncated: it ends after {len(view)} bytes without its trailer")
    if len(view) < _SNIFFED_BYTES and _CONTINUATION.startswith(start[: len(_CONTINUATION)]):
        return CorruptError(f"an Arrow stream of {len(view)} bytes without its trailer")
    return ForeignObjectError(
        "not a changelog of Cairn",
        next_step="move it away; only Cairn and Spark may write into a checkpoint",
    )


def _check_ops(table: pa.Table, highest_known: int) -> None:
    """Refuse unknown ops, and values that are null or not null against the op's rule."""
    op, value = table["op"], table["value"]
    if any(table[name].null_count for name in ("op", "cf", "key")):
        raise CorruptError("op, cf or key has nulls")
    if not table.num_rows:
        return
    ends = pc.min_max(op)
    highest = ends["max"].as_py()
    if ends["min"].as_py() < OP_PUT or highest > highest_known:
        raise FormatVersionError("it has ops that this release does not know")
    if highest == OP_PUT:
        is_valued = value.null_count == 0
    else:
        takes_value = pc.or_(_is(op, OP_PUT), _is(op, OP_APPEND))
        is_valued = pc.all(pc.equal(takes_value, pc.is_valid(value))).as_py()
    if not is_valued:
        raise CorruptError(
            "a value is null where its op needs one, or present where its op takes none"
        )
    if highest >= OP_DROP_CF:
        lengths = pc.binary_length(table["key"].filter(_is(op, OP_DROP_CF)))
        if (pc.max(lengths).as_py() or 0) > 0:
            raise CorruptError("a row that drops a column family has a key")


def _is(ops: pa.ChunkedArray[Any], op: int) -> Any:  # noqa: ANN401 -- Arrow's type hints are wrong
    return pc.equal(ops, pa.scalar(op, pa.uint8()))
