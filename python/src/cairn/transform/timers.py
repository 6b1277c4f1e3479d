"""Timers in bulk."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from pyspark.sql import types
from pyspark.sql.streaming.stateful_processor_api_client import (
    ListTimerIterator,
    StatefulProcessorHandleState,
)

from cairn.transform.client import UNKNOWN, FrameClient, Reads

_OF_TIMERS = 3
_REGISTER, _DELETE = 10, 11
_COUNT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_PHASES = (StatefulProcessorHandleState.INITIALIZED, StatefulProcessorHandleState.DATA_PROCESSED)


class BulkClient(FrameClient):
    """Spark's client, whose timers are registered, deleted, listed and expire in bulk.

    A call that the JVM might refuse is Spark's own.
    """

    def __init__(self, socket_path: str, key_schema: types.StructType) -> None:
        super().__init__(socket_path, key_schema)
        self._timers = Reads(self, _OF_TIMERS, "", _decode)  # None: there are many
        self._expired: dict[str, tuple[Iterator[Any], int, bool]] = {}

    def register_timer(self, expiry_time_stamp_ms: int) -> None:
        """Register a timer of the present key."""
        if self._is_timer(expiry_time_stamp_ms):
            self._write(_REGISTER, expiry_time_stamp_ms)
        else:
            super().register_timer(expiry_time_stamp_ms)

    def delete_timer(self, expiry_time_stamp_ms: int) -> None:
        """Delete a timer of the present key."""
        if self._is_timer(expiry_time_stamp_ms):
            self._write(_DELETE, expiry_time_stamp_ms)
        else:
            super().delete_timer(expiry_time_stamp_ms)

    def _write(self, op: int, expiry_ms: int) -> None:
        self.write(op, "", _LONG.pack(expiry_ms))
        self._timers.set(UNKNOWN)

    def _has_timers(self) -> bool:
        return self.has_key and self.time_mode != "none" and self.handle_state in _PHASES

    def _is_timer(self, expiry_ms: Any) -> bool:  # noqa: ANN401
        return type(expiry_ms) is int and -(1 << 63) <= expiry_ms < 1 << 63 and self._has_timers()

    def present_timers(self) -> tuple[int, ...] | None:
        """Return the times of a key's timers; None if Spark's own calls must read them."""
        return self._timers.get() if self._has_timers() else None

    def get_expiry_timers_iterator(
        self, iterator_id: str, expiry_timestamp: int
    ) -> tuple[tuple[Any, ...], int, bool]:
        """Return the next expired timer, and whether it is the last."""
        page = self._expired.pop(iterator_id, None)
        if page is None or not page[1]:
            timers, has_more = self.expired_timers(expiry_timestamp, is_first=page is None)
            if not timers:
                raise StopIteration
            page = iter(timers), len(timers), has_more
        rest, count, has_more = page
        key, time_ms = next(rest)
        if count > 1 or has_more:
            self._expired[iterator_id] = rest, count - 1, has_more
        return key, time_ms, count == 1 and not has_more


class TimerIterator(ListTimerIterator):
    """The timers that a key has when the first one is asked for."""

    _rest: Iterator[int] | None = None

    def __next__(self) -> int:
        if self._rest is None:
            client: Any = self.stateful_processor_api_client
            times = client.present_timers()
            if times is None:
                # Spark's own iterator reads them, in pages.
                self._rest = iter(super().__next__, None)
            elif not times:
                raise StopIteration
            else:
                self._rest = iter(times)
        return next(self._rest)


def _decode(data: bytes, place: int) -> tuple[tuple[int, ...] | None, int]:
    count = _COUNT.unpack_from(data, place)[0]
    place += _COUNT.size
    if count < 0:
        return None, place
    end = place + count * _LONG.size
    return struct.unpack_from(f">{count}q", data, place), end
