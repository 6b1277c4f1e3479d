"""Frames: every written frame can be read, and anything else is refused."""

from __future__ import annotations

import json

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
