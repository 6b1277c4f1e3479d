"""Frames: every written frame can be read, and anything else is refused."""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import DiskFullError, ProtocolError
from cairn.protocol import frames
from cairn.protocol.frames import Header
from cairn.protocol.session_id import SessionId

U16, U32, U64 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@given(
    st.builds(
        Header,
        kind=st.integers(0, 255),
        flags=U16,
        session=U64,
        sequence=U64,
        applied=U64,
        rows=U32,
        payload_bytes=st.integers(0, frames.MAX_PAYLOAD_BYTES),
    )
)
def test_a_header_is_read_as_it_was_written(header: Header) -> None:
    """A header has forty bytes for all values."""
    data = frames.encode_header(header)

    assert len(data) == frames.HEADER_BYTES == 40
    assert data[:4] == b"CRNF"
    assert frames.decode_header(b"xx" + data, 2) == header


@given(U32, U32)
def test_a_session_is_read_as_it_was_written(instance: int, number: int) -> None:
    """The instance is in the upper half: sessions of one instance ascend by their number."""
    session = SessionId(instance, number)

    assert session.pack() == (instance << 32) + number
    assert SessionId.unpack(session.pack()) == session


@pytest.mark.parametrize(("at", "value"), [(0, 0), (4, 2), (39, 0xFF)])
def test_another_magic_protocol_or_size_is_refused(at: int, value: int) -> None:
    """The start of the next frame would be unknown."""
    data = bytearray(frames.encode_header(Header(1, 0, 0, 0, 0, 0, 0)))
    data[at] = value

    with pytest.raises(ProtocolError):
        frames.decode_header(data)


def test_a_payload_cut_anywhere_is_refused() -> None:
    """A frame must never be read as fewer rows."""
    batch = pa.record_batch(
        [pa.array([0, 1], pa.uint16()), pa.array([b"a", b"bb"], pa.binary())],
        schema=frames.GET_SCHEMA,
    )
    payload = batch.serialize().to_pybytes()
    assert frames.decode_rows(payload, frames.GET_SCHEMA).equals(batch)

    for end in range(0, len(payload), 8):
        with pytest.raises(ProtocolError):
            frames.decode_rows(payload[:end], frames.GET_SCHEMA)


def test_an_error_crosses_the_channel_with_all_fields() -> None:
    """The shim decides by kind and code, and shows the rest."""
    error = DiskFullError("full", store="0/1/default", version=7, next_step="free space")

    read = json.loads(frames.encode_error(error))

    assert read == error.to_dict()
    assert read["kind"] == "retry"


def lookup_frame(payload: bytes, rows: int) -> bytes:
    """Return a whole LOOKUP."""
    header = Header(frames.LOOKUP, 0, 9, 8, 7, rows, len(payload))
    return frames.encode_header(header) + payload


def decoded_at_once(frame: bytes, more: bytes = b"") -> tuple[int, int, int, int, bytes] | None:
    """Decode what was received in a buffer that has other bytes behind it."""
    return frames.decode_lookup_of_one(memoryview(frame + more + bytes(100)), len(frame + more))


@given(U16, st.lists(st.binary(max_size=200), min_size=1, max_size=64))
def test_a_lookup_is_read_as_it_was_written(cf: int, keys: list[bytes]) -> None:
    """The keys of one request are separated by their lengths alone."""
    payload = struct.pack(f"<H{len(keys)}I", cf, *map(len, keys)) + b"".join(keys)

    assert frames.decode_lookup(payload, len(keys)) == (cf, keys)
    frame = lookup_frame(payload, len(keys))
    assert decoded_at_once(frame) == ((9, 8, 7, cf, keys[0]) if len(keys) == 1 else None)
    for end in range(len(frame)):
        assert decoded_at_once(frame[:end]) is None
    for end in range(len(payload)):
        with pytest.raises(ProtocolError):
            frames.decode_lookup(payload[:end], len(keys))


def test_a_lookup_over_its_limits_is_refused() -> None:
    """It is answered on the direct path, so it must stay short."""
    at_limit = frames.MAX_LOOKUP_BYTES - 6
    longest = struct.pack("<HI", 0, at_limit) + b"k" * at_limit
    assert decoded_at_once(lookup_frame(longest, 1)) == (9, 8, 7, 0, b"k" * at_limit)

    for payload, rows in (
        (struct.pack("<H65I", 0, *[0] * 65), 65),
        (struct.pack("<H", 0), 0),
        (struct.pack("<HI", 0, at_limit + 1) + b"k" * (at_limit + 1), 1),
        (struct.pack("<HI", 0, 3) + b"kk", 1),
        (struct.pack("<HI", 0, 3) + b"kkkk", 1),
    ):
        with pytest.raises(ProtocolError):
            frames.decode_lookup(payload, rows)
        assert decoded_at_once(lookup_frame(payload, rows)) is None


def test_only_a_single_whole_lookup_is_answered_at_once() -> None:
    """All other frames need the general path, which checks them one by one."""
    payload = struct.pack("<HI", 1, 1) + b"k"
    frame = lookup_frame(payload, 1)

    assert decoded_at_once(frame) == (9, 8, 7, 1, b"k")
    assert decoded_at_once(frame, frame) is None
    assert decoded_at_once(b"CRNX" + frame[4:]) is None
    assert decoded_at_once(frame[:4] + b"\x02" + frame[5:]) is None
    for field, value in (("kind", frames.GET), ("flags", 1), ("rows", 2), ("payload_bytes", 6)):
        header = frames.decode_header(frame)._replace(**{field: value})
        assert decoded_at_once(frames.encode_header(header) + payload) is None


@given(
    U64,
    U64,
    U64,
    st.tuples(st.sampled_from([0, 3]), st.none())
    | st.tuples(st.sampled_from([1, 2]), st.binary(max_size=20)),
)
def test_the_reply_to_one_key_is_the_general_reply(
    session: int, sequence: int, applied: int, row: tuple[int, bytes | None]
) -> None:
    """It is built at once for speed."""
    payload = frames.encode_lookup_reply([row[0]], [row[1]])
    header = Header(0x86, 0, session, sequence, applied, 1, len(payload))

    frame = frames.encode_reply_to_one(session, sequence, applied, row)

    assert frame == frames.encode_header(header) + payload
