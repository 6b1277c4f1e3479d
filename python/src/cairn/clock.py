"""Time and chance, the two things a test must be able to choose.

Layer: clock (above errors only). The one caller of ``time`` and ``random`` in the package: all
others take a ``Clock`` or an ``Entropy`` as an argument, so that a test needs no waiting.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """Return the wall clock's time, in UTC; it may jump."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds from an arbitrary start; it never goes back."""

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""


class Entropy(Protocol):
    """Where chance comes from."""

    def token(self, byte_count: int) -> str:
        """Return ``2 * byte_count`` hexadecimal digits that nobody else gets."""

    def jitter(self) -> float:
        """Return a number in [0, 1), to spread retries with."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall clock's time, in UTC."""
        return datetime.now(UTC)

    def monotonic_ns(self) -> int:
        """Return the machine's monotonic nanoseconds."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """Block this thread for ``seconds``."""
        time.sleep(seconds)


class SystemEntropy:
    """The machine's chance: safe across processes that were forked from one another."""

    def token(self, byte_count: int) -> str:
        """Return hexadecimal digits of the machine's random source."""
        return secrets.token_hex(byte_count)

    def jitter(self) -> float:
        """Return a pseudo-random number in [0, 1)."""
        return random.random()  # noqa: S311 - spreads retries, guards nothing


class FakeClock:
    """A clock that moves only when told to, or when somebody sleeps on it. Thread-safe."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._start = start
        self._elapsed_ns = 0

    def now(self) -> datetime:
        """Return the start plus what has passed."""
        with self._lock:
            return self._start + timedelta(microseconds=self._elapsed_ns / 1000)

    def monotonic_ns(self) -> int:
        """Return what has passed."""
        with self._lock:
            return self._elapsed_ns

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move time on by ``seconds``."""
        with self._lock:
            self._elapsed_ns += round(seconds * 1_000_000_000)


SYSTEM_CLOCK: Clock = SystemClock()
SYSTEM_ENTROPY: Entropy = SystemEntropy()
