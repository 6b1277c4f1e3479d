"""Changelog: all writes of one version, as one immutable object, one row per key.

Layer: format (bytes only; ``checkpoint.commit_point`` stores it).
Spec: docs/checkpoint-format.md#changelog.

    changelog := arrow trailer
    arrow     := Arrow IPC stream (schema, record batches of 1..65536 rows, end-of-stream), zstd
    schema    := op: uint8 not null, cf: uint16 not null, key: binary not null, value: binary
    metadata  := {"cairn.magic": "CAIRN-CHANGELOG", "cairn.format": "1", "cairn.header": JSON}
    trailer   := magic[8] = "CAIRNEND"  u32 format = 1  u64 rows  u64 arrow_bytes  u32 crc32c

Little-endian. ``crc32c`` covers every byte before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from cairn.format.ops import OP_APPEND, OP_DROP_CF, OP_PUT
from cairn.memory import available_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cairn.ids import StoreId, Version

_FORMAT_VERSION = 1
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
TRAILER_BYTES = _TRAILER_BODY.size + _CRC.size
_MESSAGE_START = struct.Struct("<4si")
"""Of an Arrow IPC message: continuation, length of the metadata that follows."""
_CONTINUATION = b"\xff\xff\xff\xff"
"""The first bytes of every Arrow IPC message."""
_SNIFFED_BYTES = 1 << 16
"""How much of an object without a trailer is searched for the magic; the schema comes first."""
_RESTORE = "restore the object from the bucket's versions, or restart from the version before"


@dataclass(frozen=True, slots=True)
class Changelog:
    """A changelog as read: its header, its rows, the object's length.

    Attributes:
        table: has ``CHANGELOG_SCHEMA``; a key occurs once in its family.
    """

    header: ChangelogHeader
    table: pa.Table
    size_bytes: int


def encode(header: ChangelogHeader, batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return the object's bytes.

    Args:
        header: the version's header.
        batches: columns of ``CHANGELOG_SCHEMA``, any number of rows, one per key of a family;
            ``value`` is null exactly where the op takes none.

    Raises:
        InternalError: a batch has another schema, or nulls in a column that allows none.
    """
    schema = CHANGELOG_SCHEMA.with_metadata(
        {
            b"cairn.magic": _MAGIC,
            b"cairn.format": str(_FORMAT_VERSION).encode(),
            b"cairn.header": header.to_json().encode(),
        }
    )
    row_count = sum(batch.num_rows for batch in batches)
    sink = pa.BufferOutputStream()
    options = _WRITE_OPTIONS[row_count > _ONE_THREAD_ROWS]
    with pa.ipc.new_stream(sink, schema, options=options) as out:
        for batch in _pieces(batches):
            out.write_batch(batch)
    stream = sink.getvalue()
    trailer = _TRAILER_BODY.pack(_TRAILER_MAGIC, _FORMAT_VERSION, row_count, stream.size)
    checksum = crc32c(trailer, crc32c(stream))
    return b"".join([stream, trailer, _CRC.pack(checksum)])


def decode(
    data: bytes | memoryview | pa.Buffer,
    *,
    object_name: str,
    store: StoreId | None = None,
    version: Version | None = None,
) -> Changelog:
    """Return the header and the rows of a whole changelog.

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
    is_known = metadata.get(b"cairn.format") == str(_FORMAT_VERSION).encode()
    is_expected = store in (None, header.store) and version in (None, header.ref.version)
    return header if is_ours and is_known and is_expected else None


def peek_row_count(end: bytes) -> int | None:
    """Return the number of rows that the trailer says, not verified by its checksum.

    Args:
        end: the last ``TRAILER_BYTES`` bytes of the object, or more.

    Returns:
        ``None`` if this is not the end of a changelog of this format.
    """
    if len(end) < TRAILER_BYTES:
        return None
    magic, version, rows, _ = _TRAILER_BODY.unpack_from(end, len(end) - TRAILER_BYTES)
    return int(rows) if (magic, version) == (_TRAILER_MAGIC, _FORMAT_VERSION) else None


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
    rows, arrow_bytes = _check_trailer(view)
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
    if metadata.get(b"cairn.format") != str(_FORMAT_VERSION).encode():
        raise FormatVersionError(
            f"its schema has format {metadata.get(b'cairn.format')!r}, its trailer "
            f"{_FORMAT_VERSION}"
        )
    if not table.schema.equals(CHANGELOG_SCHEMA):
        raise CorruptError("its schema is not that of a changelog")  # its names may be no UTF-8
    header = ChangelogHeader.from_json(metadata.get(b"cairn.header", b""))
    table = table.replace_schema_metadata(None)
    _check_ops(table)
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


def _check_trailer(view: memoryview) -> tuple[int, int]:
    """Verify the checksum of all bytes; return the trailer's rows and arrow_bytes."""
    if len(view) < TRAILER_BYTES:
        raise _without_trailer(view)
    split = len(view) - TRAILER_BYTES
    magic, format_version, rows, arrow_bytes = _TRAILER_BODY.unpack_from(view, split)
    if magic != _TRAILER_MAGIC:
        raise _without_trailer(view)
    (checksum,) = _CRC.unpack_from(view, len(view) - _CRC.size)
    if checksum != crc32c(view[: -_CRC.size]):
        raise CorruptError("its bytes differ from the checksum in the trailer")
    if format_version != _FORMAT_VERSION:
        raise FormatVersionError(
            f"changelog format {format_version} is not {_FORMAT_VERSION}",
            next_step="use a release of Cairn that is as new as the one that wrote it",
        )
    if arrow_bytes != split:
        raise CorruptError(f"{split} bytes of Arrow, but the trailer says {arrow_bytes}")
    return rows, arrow_bytes


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


def _check_ops(table: pa.Table) -> None:
    """Refuse unknown ops, and values that are null or not null against the op's rule."""
    op, value = table["op"], table["value"]
    if any(table[name].null_count for name in ("op", "cf", "key")):
        raise CorruptError("op, cf or key has nulls")
    if not table.num_rows:
        return
    ends = pc.min_max(op)
    highest = ends["max"].as_py()
    if ends["min"].as_py() < OP_PUT or highest > OP_DROP_CF:
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
    if highest == OP_DROP_CF:
        lengths = pc.binary_length(table["key"].filter(_is(op, OP_DROP_CF)))
        if (pc.max(lengths).as_py() or 0) > 0:
            raise CorruptError("a row that drops a column family has a key")


def _is(ops: pa.ChunkedArray[Any], op: int) -> Any:  # noqa: ANN401 -- Arrow's type hints are wrong
    return pc.equal(ops, pa.scalar(op, pa.uint8()))
