"""CRC32C is the published one; tests can choose time and randomness."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from cairn.checksum import crc32c, crc32c_file
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, FakeClock


def test_crc32c_is_castagnoli() -> None:
    """RFC 3720 B.4: another polynomial would reject every object ever written."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(b"") == 0


def test_crc32c_continues_and_takes_any_buffer() -> None:
    """Checksums are computed piece by piece, over buffers of several types."""
    data = bytes(range(256))

    assert crc32c(data[100:], crc32c(data[:100])) == crc32c(data)
    assert crc32c(memoryview(data)) == crc32c(pa.py_buffer(data)) == crc32c(bytearray(data))


def test_crc32c_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    """A file is read in pieces, and the last piece is short."""
    data = bytes(range(256)) * 5000
    (tmp_path / "f").write_bytes(data)
    (tmp_path / "empty").touch()

    assert crc32c_file(tmp_path / "f") == crc32c(data)
    assert crc32c_file(tmp_path / "empty") == 0


def test_a_fake_clock_moves_only_by_sleep_and_advance() -> None:
    """Tests of timeouts do not wait."""
    clock = FakeClock()
    start = clock.now()

    clock.sleep(1.5)
    clock.advance(0.25)

    assert clock.now() - start == timedelta(seconds=1.75)
    assert clock.monotonic_ns() == 1_750_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere another clock counts a suspension")
def test_the_system_counts_the_time_of_a_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps on other machines go on: an upload would take its files for young."""
    monkeypatch.setattr(time, "clock_gettime_ns", {time.CLOCK_BOOTTIME: 7}.__getitem__)

    assert SYSTEM_CLOCK.monotonic_ns() == 7


def test_the_system_returns_utc_and_new_tokens() -> None:
    """Local time would make ages wrong by hours; equal tokens would give two attempts one id."""
    assert SYSTEM_CLOCK.now().utcoffset() == timedelta(0)
    assert SYSTEM_CLOCK.monotonic_ns() <= SYSTEM_CLOCK.monotonic_ns()
    tokens = {SYSTEM_ENTROPY.token(8) for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) == 16 for token in tokens)
    assert 0 <= SYSTEM_ENTROPY.jitter() < 1
