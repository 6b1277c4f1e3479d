"""Map states in bulk."""

# ruff: noqa: D102 - the methods are those of Spark's client

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.map_state_client import MapStateClient

from cairn.transform.client import UNKNOWN, FrameClient, Reads
from cairn.transform.rows import Rows

_OF_MAP = 2
_UPDATE, _REMOVE, _CLEAR = 7, 8, 9
# Map keys whose entries are fetched ahead, each for many keys of the group.
_MAX_ENTRIES = 64


class BulkMaps:
    """The calls of Spark's client of a map state.

    The entries of one map key are fetched for many grouping keys; iterators are Spark's own.
    """

    def __init__(self, client: FrameClient, sparks: MapStateClient, name: str) -> None:
        self._client = client
        self._sparks = sparks
        self._name = name
        self._key_rows = Rows(sparks.user_key_schema)
        self._value_rows = Rows(sparks.value_schema)
        # By the bytes of the map key, the one used last at the end.
        self._entries: dict[bytes, Reads] = {}

    def get_value(self, state_name: str, user_key: tuple[Any, ...]) -> Any:  # noqa: ANN401
        key = self._encode_key(state_name, user_key)
        if key is None:
            return self._sparks.get_value(state_name, user_key)
        value = self._entry(key).get()
        return None if value is None else self._value_rows.row(value)

    def contains_key(self, state_name: str, user_key: tuple[Any, ...]) -> bool:
        key = self._encode_key(state_name, user_key)
        if key is None:
            return self._sparks.contains_key(state_name, user_key)
        return self._entry(key).get() is not None

    def update_value(
        self, state_name: str, user_key: tuple[Any, ...], value: tuple[Any, ...]
    ) -> None:
        key = self._encode_key(state_name, user_key)
        encoded = None if key is None else self._value_rows.encode(value)
        if key is None or encoded is None:
            self._forget()
            self._sparks.update_value(state_name, user_key, value)
            return
        self._client.write(_UPDATE, state_name, key + encoded[0])
        self._entry(key).set(encoded[1])

    def remove_key(self, state_name: str, key: tuple[Any, ...]) -> None:
        encoded = self._encode_key(state_name, key)
        if encoded is None:
            self._forget()
            self._sparks.remove_key(state_name, key)
            return
        self._client.write(_REMOVE, state_name, encoded)
        self._entry(encoded).set(None)

    def clear(self, state_name: str) -> None:
        if self._client.is_bulk(state_name):
            self._forget()
            self._client.write(_CLEAR, state_name, b"")
        else:
            self._sparks.clear(state_name)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._sparks, name)  # what reads many entries

    def _encode_key(self, state_name: str, user_key: tuple[Any, ...]) -> bytes | None:
        encoded = self._key_rows.encode(user_key) if self._client.is_bulk(state_name) else None
        return None if encoded is None else encoded[0]

    def _entry(self, key: bytes) -> Reads:
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = Reads(self._client, _OF_MAP, self._name, self._value_rows.decode, key)
            if len(self._entries) == _MAX_ENTRIES:
                del self._entries[next(iter(self._entries))]
        self._entries[key] = entry
        return entry

    def _forget(self) -> None:
        if self._client.has_key:
            for entry in self._entries.values():
                entry.set(UNKNOWN)
