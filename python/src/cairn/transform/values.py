"""Value states in bulk."""

# ruff: noqa: D102 - the methods are those of Spark's client

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.value_state_client import ValueStateClient

from cairn.transform.client import UNKNOWN, FrameClient, Reads
from cairn.transform.rows import Rows

_OF_VALUE = 0
_UPDATE, _CLEAR = 1, 2


class BulkValues:
    """The calls of Spark's client of a value state.

    A value that the JVM might refuse, or give back in another form, is written by Spark's own call:
    the user gets its errors from that call, and reads what the JVM has.
    """

    def __init__(self, client: FrameClient, sparks: ValueStateClient, name: str) -> None:
        self._client = client
        self._sparks = sparks
        self._rows = Rows(sparks.schema)
        self._value = Reads(client, _OF_VALUE, name, self._rows.decode)

    def exists(self, state_name: str) -> bool:
        if not self._client.is_bulk(state_name):
            return self._sparks.exists(state_name)
        return self._value.get() is not None

    def get(self, state_name: str) -> tuple[Any, ...] | None:
        if not self._client.is_bulk(state_name):
            return self._sparks.get(state_name)
        value = self._value.get()
        return None if value is None else self._rows.values(value)

    def update(self, state_name: str, value: tuple[Any, ...]) -> None:
        is_bulk = self._client.is_bulk(state_name)
        encoded = self._rows.encode(value) if is_bulk else None
        if encoded is not None:
            self._client.write(_UPDATE, state_name, encoded[0])
            self._value.set(encoded[1])
        else:
            if is_bulk:
                self._value.set(UNKNOWN)
            self._sparks.update(state_name, value)

    def clear(self, state_name: str) -> None:
        if self._client.is_bulk(state_name):
            self._client.write(_CLEAR, state_name, b"")
            self._value.set(None)
        else:
            self._sparks.clear(state_name)
