"""Time and randomness, as arguments.

Layer: clock (above errors only). The only module that uses ``time`` and ``random``: all others
take a ``Clock`` or an ``Entropy``, so that a test can choose them and does not have to wait.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

# Linux's CLOCK_MONOTONIC stands still while the machine is suspended; that of macOS does not.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """Return the wall clock's time, in UTC; it may jump."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since an arbitrary start; the value never decreases.

        It counts the time during which the machine is suspended: sweeps on other machines go on.
        """

    def sleep(self, seconds: float) -> None:
        """Block for ``seconds``."""


class Entropy(Protocol):
    """A source of randomness."""

    def token(self, byte_count: int) -> str:
        """Return ``2 * byte_count`` hexadecimal digits that no other call returns."""

    def jitter(self) -> float:
        """Return a number in [0, 1) that spreads retries."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall clock's time, in UTC."""
        return datetime.now(UTC)

    def monotonic_ns(self) -> int:
        """Return the machine's monotonic nanoseconds."""
        return time.clock_gettime_ns(_MONOTONIC)

    def sleep(self, seconds: float) -> None:
        """Block this thread for ``seconds``."""
        time.sleep(seconds)


class SystemEntropy:
    """The machine's randomness; safe in processes that were forked from one another."""

    def token(self, byte_count: int) -> str:
        """Return hexadecimal digits of the machine's random source."""
        return secrets.token_hex(byte_count)

    def jitter(self) -> float:
        """Return a pseudo-random number in [0, 1)."""
        return random.random()  # noqa: S311 - spreads retries, not a secret


class FakeClock:
    """A clock of tests: it moves only by ``advance`` and ``sleep``. Thread-safe."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._start = start
        self._elapsed_ns = 0

    def now(self) -> datetime:
        """Return the start plus the time that has passed."""
        with self._lock:
            return self._start + timedelta(microseconds=self._elapsed_ns / 1000)

    def monotonic_ns(self) -> int:
        """Return the time that has passed."""
        with self._lock:
            return self._elapsed_ns

    def sleep(self, seconds: float) -> None:
        """Advance the clock by ``seconds`` and return at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Advance the clock by ``seconds``."""
        with self._lock:
            self._elapsed_ns += round(seconds * 1_000_000_000)


SYSTEM_CLOCK: Clock = SystemClock()
SYSTEM_ENTROPY: Entropy = SystemEntropy()
