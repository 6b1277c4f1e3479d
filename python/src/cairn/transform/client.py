"""Spark's client of the state, with values that are read and written for many keys at once.

Everything else goes through Spark's own messages, after the writes that wait: the server sees the
calls of a task in the order in which the processor makes them. Depends on private parts of
PySpark 4.3.
"""

from __future__ import annotations

import functools
import io
import pickle
import struct
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, ValueState
from pyspark.sql.streaming.stateful_processor_api_client import (
    StatefulProcessorApiClient,
    StatefulProcessorHandleState,
)
from pyspark.sql.streaming.value_state_client import ValueStateClient

# Writes that wait in the worker are sent when they have this size.
_PENDING_BYTES = 512 * 1024
_FRAME = 1
_READ, _WRITE = 0, 1
_UPDATE, _CLEAR = b"\x01", b"\x02"
_SAME_KEY = struct.pack(">i", -1)
_INT = struct.Struct(">i")
_UNKNOWN = object()


class BulkClient(StatefulProcessorApiClient):
    """The client of one task.

    ``set_chunk`` names the keys that come next; a read of a value then fetches those of the whole
    chunk. What is written is read back from here.
    """

    def __init__(self, socket_path: str, key_schema: types.StructType) -> None:
        super().__init__(socket_path, key_schema)
        self.has_key = False  # whether the processor is called for a key
        self._key = b""
        self._is_key_sent = True
        self._chunk: list[tuple[Any, bytes]] = []
        self._place = 0
        # By name and key: the pickle or the tuple of a value, or None.
        self._values: dict[str, dict[bytes, Any]] = {}
        self._pending: list[bytes] = []
        self._pending_count = 0
        self._pending_bytes = 0
        self._pending_key: bytes | None = None
        self._timestamps: tuple[int, int] | None = None

    def close(self) -> None:
        """Close the connection; the server's thread ends."""
        self.sockfile.close()
        self._client_socket.close()

    def set_chunk(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Set the keys that come next, in their order. The present key may be the first."""
        self._chunk = [(key, self._serialize_to_bytes(self.key_schema, key)) for key in keys]
        self._place = 0
        for values in self._values.values():
            kept = values.get(self._key, _UNKNOWN) if self.has_key else _UNKNOWN
            values.clear()
            if kept is not _UNKNOWN:
                values[self._key] = kept

    # Calls of Spark's classes.

    def set_implicit_key(self, key: tuple[Any, ...]) -> None:
        """Set the key of the calls that follow; a message tells the server when it must know."""
        for place in range(self._place, len(self._chunk)):
            if self._chunk[place][0] is key:
                self._place = place
                self._key = self._chunk[place][1]
                break
        else:
            self._key = self._serialize_to_bytes(self.key_schema, key)
        self.has_key = True
        self._is_key_sent = False

    def remove_implicit_key(self) -> None:
        """Remove the key, here and there."""
        super().remove_implicit_key()
        self.has_key = False

    def set_handle_state(self, state: StatefulProcessorHandleState) -> None:
        """Tell the server the phase. After the rows come the keys of timers, in another order."""
        super().set_handle_state(state)
        if state == StatefulProcessorHandleState.DATA_PROCESSED:
            self.has_key = False
            self.set_chunk([])

    def get_timestamps(self, time_mode: str) -> tuple[int, int]:
        """Return the times of the batch: asked for once, also if they are -1."""
        if self._timestamps is None:
            self._timestamps = super().get_timestamps(time_mode)
        return self._timestamps

    def get_expiry_timers_iterator(
        self, iterator_id: str, expiry_timestamp: int
    ) -> tuple[tuple[Any, ...], int, bool]:
        """Return the next expired timer; the keys of its page come next."""
        is_new_page = iterator_id not in self.expiry_timer_iterator_cursors
        timer = super().get_expiry_timers_iterator(iterator_id, expiry_timestamp)
        if is_new_page:
            page = self.expiry_timer_iterator_cursors.get(iterator_id, ([timer], 0, False))
            self.set_chunk(key for key, *_ in page[0])
        return timer

    def _send_proto_message(self, message: bytes) -> None:
        self.flush()
        if not self._is_key_sent:
            self._is_key_sent = True
            self._send_key()
        super()._send_proto_message(message)

    def _send_key(self) -> None:
        import pyspark.sql.streaming.proto.StateMessage_pb2 as messages  # noqa: PLC0415 - as Spark

        request = messages.ImplicitGroupingKeyRequest(
            setImplicitKey=messages.SetImplicitKey(key=self._key)
        )
        message = messages.StateRequest(implicitGroupingKeyRequest=request)
        super()._send_proto_message(message.SerializeToString())
        status, error, _ = self._receive_proto_message()
        if status != 0:
            raise PySparkRuntimeError(f"Error setting implicit key: {error}")

    # Values.

    def value(self, name: str) -> Any:  # noqa: ANN401
        """Return the value of the present key: its pickle or its tuple; None if there is none.

        Raises:
            PySparkRuntimeError: the server cannot read it.
        """
        values = self._values.setdefault(name, {})
        value = values.get(self._key, _UNKNOWN)
        if value is _UNKNOWN:
            self._fetch(name, values)
            value = values[self._key]
        return value

    def forget(self, name: str) -> None:
        """Forget the value of the present key: Spark's own call changes it."""
        self._values.get(name, {}).pop(self._key, None)

    def update(self, name: str, pickled: bytes, value: tuple[Any, ...]) -> None:
        """Write a value of the present key."""
        self._write(name, _UPDATE + _INT.pack(len(pickled)) + pickled, value)

    def clear(self, name: str) -> None:
        """Remove the value of the present key."""
        self._write(name, _CLEAR, None)

    def _write(self, name: str, op: bytes, value: Any) -> None:  # noqa: ANN401
        key = self._key
        self._values.setdefault(name, {})[key] = value
        head = _SAME_KEY if key == self._pending_key else _INT.pack(len(key)) + key
        self._pending_key = key
        text = name.encode()
        self._pending.append(head + _INT.pack(len(text)) + text + op)
        self._pending_count += 1
        self._pending_bytes += len(head) + len(op)
        if self._pending_bytes >= _PENDING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send the writes that wait.

        Raises:
            PySparkRuntimeError: the server cannot write one of them.
        """
        if not self._pending:
            return
        head = struct.pack(">iii", _FRAME, _WRITE, self._pending_count)
        self.sockfile.write(head + b"".join(self._pending))
        self.sockfile.flush()
        self._pending = []
        self._pending_count = self._pending_bytes = 0
        self._pending_key = None
        if self._read_int() >= 0:
            raise PySparkRuntimeError(f"Error updating value state: {self._read_bytes().decode()}")

    def _fetch(self, name: str, values: dict[bytes, Any]) -> None:
        self.flush()
        following = (key for _, key in self._chunk[self._place :])
        keys = list(dict.fromkeys([self._key, *(key for key in following if key not in values)]))
        text = name.encode()
        parts = [struct.pack(">iii", _FRAME, _READ, len(text)), text, _INT.pack(len(keys))]
        for key in keys:
            parts += (_INT.pack(len(key)), key)
        self.sockfile.write(b"".join(parts))
        self.sockfile.flush()
        count = self._read_int()
        if count < 0:
            raise PySparkRuntimeError(f"Error getting value state: {self._read_bytes().decode()}")
        for key in keys[:count]:
            length = self._read_int()
            values[key] = None if length < 0 else self.sockfile.read(length)

    def _read_int(self) -> int:
        data = self.sockfile.read(4)
        if len(data) < 4:  # noqa: PLR2004 - the size of an integer
            raise EOFError("the server of the state has closed the connection")
        number: int = _INT.unpack(data)[0]
        return number

    def _read_bytes(self) -> bytes:
        data: bytes = self.sockfile.read(self._read_int())
        return data


class BulkHandle(StatefulProcessorHandle):
    """Spark's handle, whose value states are read and written in bulk."""

    def __init__(self, client: BulkClient) -> None:
        super().__init__(client)
        self._client = client

    def getValueState(  # noqa: N802 - Spark's name
        self,
        stateName: str,  # noqa: N803
        schema: types.StructType | str,
        ttlDurationMs: int | None = None,  # noqa: N803
    ) -> ValueState:
        """Return the state variable; the server creates it as for Spark."""
        state = super().getValueState(stateName, schema, ttlDurationMs)
        values = _BulkValues(self._client, state._valueStateClient)  # noqa: SLF001
        state._valueStateClient = values  # type: ignore[assignment] # noqa: SLF001
        return state


class _BulkValues:
    """The calls of Spark's client of a value state.

    A value that the JVM might refuse, or give back in another form, is written by Spark's own call:
    the user gets its errors from that call, and reads what the JVM has.
    """

    def __init__(self, client: BulkClient, sparks: ValueStateClient) -> None:
        self._client = client
        self._sparks = sparks
        self.schema = sparks.schema
        self._checks = [_check(field) for field in sparks.schema.fields]

    def exists(self, state_name: str) -> bool:
        if not self._client.has_key:
            return self._sparks.exists(state_name)
        return self._client.value(state_name) is not None

    def get(self, state_name: str) -> tuple[Any, ...] | None:
        if not self._client.has_key:
            return self._sparks.get(state_name)
        value = self._client.value(state_name)
        return tuple(_Unpickler(io.BytesIO(value)).load()) if type(value) is bytes else value

    def update(self, state_name: str, value: tuple[Any, ...]) -> None:
        if self._client.has_key and self._is_plain(value):
            pickled = self._client._serialize_to_bytes(self.schema, value)  # noqa: SLF001
            self._client.update(state_name, pickled, value)
        else:
            self._client.forget(state_name)
            self._sparks.update(state_name, value)

    def clear(self, state_name: str) -> None:
        if self._client.has_key:
            self._client.clear(state_name)
        else:
            self._sparks.clear(state_name)

    def _is_plain(self, value: Any) -> bool:  # noqa: ANN401
        return (
            type(value) is tuple
            and len(value) == len(self._checks)
            and all(check(field) for check, field in zip(self._checks, value, strict=True))
        )


def _check(field: types.StructField) -> Callable[[Any], bool]:
    """Return whether a value of a field is one that the JVM takes, and gives back equal."""
    of_type = _CHECKS.get(type(field.dataType))
    if of_type is None or (
        isinstance(field.dataType, types.StringType) and field.dataType != types.StringType()
    ):
        return lambda _: False
    if field.nullable:
        return lambda value: value is None or of_type(value)
    return of_type


def _integers(bits: int) -> Callable[[Any], bool]:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    return lambda value: type(value) is int and least <= value <= most


def _is_text(value: Any) -> bool:  # noqa: ANN401
    if type(value) is not str:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


_CHECKS: dict[type, Callable[[Any], bool]] = {
    types.ByteType: _integers(8),
    types.ShortType: _integers(16),
    types.IntegerType: _integers(32),
    types.LongType: _integers(64),
    types.DoubleType: lambda value: type(value) is float,
    types.BooleanType: lambda value: type(value) is bool,
    types.StringType: _is_text,
}


class _Unpickler(pickle.Unpickler):
    """Reads the rows of `PythonSQLUtils.toPyRow`: each begins with its schema, the same in all."""

    def find_class(self, module_name: str, global_name: str) -> Any:  # noqa: ANN401
        if (module_name, global_name) == ("pyspark.sql.types", "_create_row_inbound_converter"):
            return _converter
        if (module_name, global_name) == ("pyspark.sql.types", "_parse_datatype_json_string"):
            return _schema
        return super().find_class(module_name, global_name)


_schema = functools.lru_cache(maxsize=64)(types._parse_datatype_json_string)  # noqa: SLF001
_converters: dict[int, tuple[types.DataType, Any]] = {}


def _converter(schema: types.DataType) -> Any:  # noqa: ANN401
    known = _converters.get(id(schema))
    if known is None or known[0] is not schema:
        made = types._create_row_inbound_converter(schema)  # noqa: SLF001
        known = _converters[id(schema)] = (schema, made)
    return known[1]
