"""List states in bulk."""

# ruff: noqa: D102 - the methods are those of Spark's client

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.list_state_client import ListStateClient, ListStateIterator
from pyspark.sql.streaming.stateful_processor import ListState

from cairn.transform.client import UNKNOWN, FrameClient, Reads
from cairn.transform.rows import Rows

_OF_LIST = 1
_APPEND, _APPEND_ALL, _PUT, _CLEAR = 3, 4, 5, 6
_COUNT = struct.Struct(">i")
# Longer lists are read by Spark's own calls, in pages; those of the shim are not longer.
_MAX_ROWS = 1000


class BulkListState(ListState):
    """Spark's list state, whose iterators hold their rows."""

    def get(self) -> Iterator[tuple[Any, ...]]:
        return _ListIterator(self._listStateClient, self._stateName)


class _ListIterator(ListStateIterator):
    """The rows that the list has when the first one is asked for."""

    _rest: Iterator[tuple[Any, ...]] | None = None

    def __next__(self) -> tuple[Any, ...]:
        if self._rest is None:
            lists: Any = self.list_state_client
            rows = lists.present_rows(self.state_name)
            if rows is None:
                # Spark's own iterator reads them, in pages.
                self._rest = iter(super().__next__, None)
            elif not rows:
                raise StopIteration
            else:
                self._rest = iter(rows)
        return next(self._rest)


class BulkLists:
    """The calls of Spark's client of a list state.

    A list is known as a list of decoded rows; None if it is long. An append reads nothing.
    """

    def __init__(self, client: FrameClient, sparks: ListStateClient, name: str) -> None:
        self._client = client
        self._sparks = sparks
        self._rows = Rows(sparks.schema)
        self._list = Reads(client, _OF_LIST, name, self._decode)

    def _decode(self, data: bytes, place: int) -> tuple[list[Any] | None, int]:
        count = _COUNT.unpack_from(data, place)[0]
        place += _COUNT.size
        if count < 0:
            return None, place
        rows = []
        for _ in range(count):
            row, place = self._rows.decode(data, place)
            rows.append(row)
        return rows, place

    def exists(self, state_name: str) -> bool:
        if not self._client.is_bulk(state_name):
            return self._sparks.exists(state_name)
        rows = self._list.get()
        return rows is None or bool(rows)

    def present_rows(self, state_name: str) -> list[tuple[Any, ...]] | None:
        """Return the rows of the present key; None if Spark's own calls must read them."""
        rows = self._list.get() if self._client.is_bulk(state_name) else None
        return None if rows is None else list(map(self._rows.values, rows))

    def get(self, state_name: str, iterator_id: str) -> tuple[tuple[Any, ...], bool]:
        return self._sparks.get(state_name, iterator_id)

    def append_value(self, state_name: str, value: tuple[Any, ...]) -> None:
        encoded = self._encode(state_name, value)
        if encoded is None:
            self._forget(state_name)
            self._sparks.append_value(state_name, value)
            return
        self._client.write(_APPEND, state_name, encoded[0])
        self._add([encoded[1]])

    def append_list(self, state_name: str, values: list[tuple[Any, ...]]) -> None:
        encoded = self._encode_all(state_name, values)
        if encoded is None:
            self._forget(state_name)
            self._sparks.append_list(state_name, values)
            return
        self._client.write(_APPEND_ALL, state_name, encoded[0])
        self._add(encoded[1])

    def put(self, state_name: str, values: list[tuple[Any, ...]]) -> None:
        encoded = self._encode_all(state_name, values)
        if encoded is None:
            self._forget(state_name)
            self._sparks.put(state_name, values)
            return
        self._client.write(_PUT, state_name, encoded[0])
        self._set(encoded[1])

    def clear(self, state_name: str) -> None:
        if self._client.is_bulk(state_name):
            self._client.write(_CLEAR, state_name, b"")
            self._list.set([])
        else:
            self._sparks.clear(state_name)

    def _encode(
        self, state_name: str, value: tuple[Any, ...]
    ) -> tuple[bytes, tuple[Any, ...]] | None:
        return self._rows.encode(value) if self._client.is_bulk(state_name) else None

    def _encode_all(
        self, state_name: str, values: list[tuple[Any, ...]]
    ) -> tuple[bytes, list[tuple[Any, ...]]] | None:
        # Of an empty list Spark's own call decides what it does.
        if type(values) is not list or not values:
            return None
        parts, rows = [_COUNT.pack(len(values))], []
        for value in values:
            encoded = self._encode(state_name, value)
            if encoded is None:
                return None
            parts.append(encoded[0])
            rows.append(encoded[1])
        return b"".join(parts), rows

    def _add(self, values: list[tuple[Any, ...]]) -> None:
        rows = self._list.known()
        if rows is not UNKNOWN and rows is not None:
            rows.extend(values)
            self._set(rows)

    def _set(self, rows: list[Any]) -> None:
        self._list.set(rows if len(rows) <= _MAX_ROWS else None)

    def _forget(self, state_name: str) -> None:
        if self._client.is_bulk(state_name):
            self._list.set(UNKNOWN)
