"""Spark's client of the state, which reads and writes for many keys at once.

Everything that has no frame goes through Spark's own messages, after the writes that wait: the
server sees the calls of a task in the order in which the processor makes them. The frames are those
of `BulkFrames` in the shim. Depends on private parts of PySpark 4.3.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types
from pyspark.sql.streaming.stateful_processor_api_client import (
    StatefulProcessorApiClient,
    StatefulProcessorHandleState,
)

from cairn.transform.rows import Rows, encode_pickle

# Writes that wait in the worker are sent when they have this size.
_PENDING_BYTES = 64 * 1024
_MAX_NAMES = 255
# Keys of one fetch: it begins with one, and grows while the processor asks for what was fetched.
_MAX_FETCHED = 4096
_FETCH_GROWTH = 4
_FRAME = 1
_KEYS, _READ, _WRITE, _EXPIRED = range(4)
_HEAD = struct.Struct(">iii")
_OP = struct.Struct(">iBB")
_INT = struct.Struct(">i")
_ANSWER = struct.Struct(">ii")
_LONG = struct.Struct(">q")
# What is not known of the state: the server must be asked.
UNKNOWN: Any = object()


class FrameClient(StatefulProcessorApiClient):
    """The client of one task.

    ``set_chunk`` names the keys that come next. Frames name them by their number in the chunk.

    Attributes:
        has_key: whether the processor is called for a key.
        turn: changes with the key.
        number: that of the key in its chunk.
        chunk: changes with the chunk: numbers are then those of other keys.
    """

    def __init__(self, socket_path: str, key_schema: types.StructType) -> None:
        super().__init__(socket_path, key_schema)
        self.has_key = False
        self.turn = self.number = self.chunk = 0
        self.key_rows = Rows(key_schema)
        self.time_mode = "none"
        self._key: Any = None
        self._is_key_sent = True
        self._keys: list[Any] = []
        self._numbers: list[int] = []
        self._place = 0
        self._unsent_keys = b""
        self._pending: list[bytes] = []
        self._pending_count = 0
        self._pending_bytes = 0
        self._pending_names: dict[str, int] = {}
        self._unanswered = 0
        self._timestamps: tuple[int, int] | None = None
        self._deleted: set[str] = set()

    def close(self) -> None:
        """Close the connection; the server's thread ends."""
        with contextlib.suppress(OSError):  # the server has gone, and the task fails
            self.sockfile.close()
        self._client_socket.close()

    # Keys.

    def set_chunk(self, keys: Iterable[Any]) -> None:
        """Set the keys that come next, in their order. The present key stays the present one."""
        self.flush()
        named = [self._key, *keys] if self.has_key else list(keys)
        encoded = [self._encode_key(key) for key in named]
        self._name(named, encoded)
        self._unsent_keys = _frame(_KEYS, _INT.pack(len(encoded)) + b"".join(encoded))

    def _name(self, keys: list[Any], encoded: list[bytes]) -> None:
        # A key that comes twice has one number: what was fetched for it is used once.
        numbers: dict[bytes, int] = {}
        self._numbers = [numbers.setdefault(key, place) for place, key in enumerate(encoded)]
        self._keys = keys
        self._place = self.number = 0
        self.chunk += 1
        self._unsent_keys = b""

    def _encode_key(self, key: Any) -> bytes:  # noqa: ANN401
        encoded = self.key_rows.encode(tuple(key))
        if encoded is None:
            return encode_pickle(self._serialize_to_bytes(self.key_schema, key))
        return encoded[0]

    def set_implicit_key(self, key: tuple[Any, ...]) -> None:
        """Set the key of the calls that follow; a message tells the server when it must know."""
        self._is_key_sent = False
        if self.has_key and key is self._key:
            return
        self.turn += 1
        self._key = key
        for place in range(self._place, len(self._keys)):
            if self._keys[place] is key:
                self._place = place
                self.number = self._numbers[place]
                break
        else:
            self.has_key = False
            self.set_chunk([key])
        self.has_key = True

    def remove_implicit_key(self) -> None:
        """Remove the key, here and there."""
        super().remove_implicit_key()
        self.has_key = False

    def is_bulk(self, name: str) -> bool:
        """Return whether the calls of a state variable go in frames; else Spark's own do."""
        return self.has_key and name not in self._deleted

    def add_variable(self, name: str) -> None:
        """Note that the server has created a state variable."""
        self._deleted.discard(name)

    # Calls of Spark's classes.

    def delete_if_exists(self, state_name: str) -> None:
        """Delete a state variable."""
        super().delete_if_exists(state_name)
        self._deleted.add(state_name)

    def set_handle_state(self, state: StatefulProcessorHandleState) -> None:
        """Tell the server the phase. After the rows come the keys of timers, in another order."""
        super().set_handle_state(state)
        if state == StatefulProcessorHandleState.DATA_PROCESSED:
            self.has_key = False

    def get_timestamps(self, time_mode: str) -> tuple[int, int]:
        """Return the times of the batch: asked for once, also if they are -1."""
        if self._timestamps is None:
            self.time_mode = time_mode.lower()
            self._timestamps = super().get_timestamps(time_mode)
        return self._timestamps

    def _send_proto_message(self, message: bytes) -> None:
        self.flush()
        self._settle()
        if not self._is_key_sent:
            self._is_key_sent = True
            self._send_key()
        super()._send_proto_message(message)

    def _send_key(self) -> None:
        import pyspark.sql.streaming.proto.StateMessage_pb2 as messages  # noqa: PLC0415 - as Spark

        key = self._serialize_to_bytes(self.key_schema, self._key)
        request = messages.ImplicitGroupingKeyRequest(
            setImplicitKey=messages.SetImplicitKey(key=key)
        )
        message = messages.StateRequest(implicitGroupingKeyRequest=request)
        super()._send_proto_message(message.SerializeToString())
        status, error, _ = self._receive_proto_message()
        if status != 0:
            raise PySparkRuntimeError(f"Error setting implicit key: {error}")

    # Frames.

    def write(self, op: int, name: str, content: bytes) -> None:
        """Write to a state variable of the present key, or a timer of it.

        The write waits in the worker; an error of it comes with a later call.
        """
        index = self._pending_names.get(name)
        if index is None:
            if len(self._pending_names) == _MAX_NAMES:
                self.flush()
            index = self._pending_names[name] = len(self._pending_names)
        self._pending.append(_OP.pack(self.number, index, op) + content)
        self._pending_count += 1
        self._pending_bytes += len(content) + _OP.size
        if self._pending_bytes >= _PENDING_BYTES:
            self.flush()

    def read(self, what: int, name: str, user_key: bytes, count: int) -> tuple[int, bytes]:
        """Return how many items there are, and their bytes.

        They are those of the present key and of the keys after it, at least one, at most `count`.

        Raises:
            PySparkRuntimeError: the server cannot read them, or could not write what waited.
        """
        head = struct.pack(">iiB", self.number, count, what)
        return self._ask(_frame(_READ, head + _text(name) + user_key))

    def expired_timers(self, timestamp_ms: int, *, is_first: bool) -> tuple[list[Any], bool]:
        """Return a page of expired timers, pairs of key and time in ms, and whether more follow.

        The keys of the page are those that come next.
        """
        self.has_key = False
        count, data = self._ask(_frame(_EXPIRED, struct.pack(">q?", timestamp_ms, is_first)))
        timers, encoded = [], []
        place = 1
        for _ in range(count):
            decoded, end = self.key_rows.decode(data, place)
            encoded.append(data[place:end])
            timers.append((self.key_rows.row(decoded), _LONG.unpack_from(data, end)[0]))
            place = end + _LONG.size
        self._name([key for key, _ in timers], encoded)
        return timers, data[0] != 0

    def flush(self) -> None:
        """Send the writes that wait; their answer is read before the next one."""
        if self._pending:
            names = b"".join(_text(name) for name in self._pending_names)
            head = struct.pack(">B", len(self._pending_names)) + names
            ops = _INT.pack(self._pending_count) + b"".join(self._pending)
            self._pending, self._pending_names = [], {}
            self._pending_count = self._pending_bytes = 0
            self._send(_frame(_WRITE, head + ops))
            self._unanswered += 1

    def _ask(self, frame: bytes) -> tuple[int, bytes]:
        self.flush()
        self._send(frame)
        self._settle()
        return self._receive()

    def _send(self, frame: bytes) -> None:
        try:
            self.sockfile.write(self._unsent_keys + frame)
            self._unsent_keys = b""
            self.sockfile.flush()
        except BrokenPipeError:
            self._settle()  # the server has said why
            raise

    def _settle(self) -> None:
        """Read the answers to the writes that were sent."""
        while self._unanswered:
            self._unanswered -= 1
            if self._read_int() < 0:
                self._fail()

    def _receive(self) -> tuple[int, bytes]:
        count = self._read_int()
        if count < 0:
            self._fail()
        return count, self.sockfile.read(self._read_int())

    def _fail(self) -> NoReturn:
        message = self.sockfile.read(self._read_int()).decode()
        raise PySparkRuntimeError(f"Error in the state of a key: {message}")

    def _read_int(self) -> int:
        data = self.sockfile.read(_INT.size)
        if len(data) < _INT.size:
            raise EOFError("the server of the state has closed the connection")
        number: int = _INT.unpack(data)[0]
        return number


def _frame(kind: int, content: bytes) -> bytes:
    return _HEAD.pack(_FRAME, kind, len(content)) + content


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


class Reads:
    """What is known of one thing per key: its value for the present key, and for some that follow.

    The first read fetches one key; each further fetch has more keys, as long as the processor asks
    for half of them. What was fetched for a key goes when the key begins, or with its chunk.
    """

    def __init__(
        self,
        client: FrameClient,
        what: int,
        name: str,
        decode: Callable[[bytes, int], tuple[Any, int]],
        user_key: bytes = b"",
    ) -> None:
        self._client = client
        self._request = what, name, user_key
        self._decode = decode
        self._turn = -1
        self._value = UNKNOWN
        self._chunk = -1
        self._first = 0
        self._ahead: list[Any] = []
        self._used = 0
        self._count = 1

    def get(self) -> Any:  # noqa: ANN401
        """Return the item of the present key.

        Raises:
            PySparkRuntimeError: the server cannot read it.
        """
        if self._turn != self._client.turn:
            self._begin()
        if self._value is UNKNOWN:
            self._fetch()
        return self._value

    def known(self) -> Any:  # noqa: ANN401
        """Return the item of the present key, or ``UNKNOWN``; nothing is asked for."""
        if self._turn != self._client.turn:
            self._begin()
        return self._value

    def set(self, value: Any) -> None:  # noqa: ANN401
        """Set what the present key has now."""
        if self._turn != self._client.turn:
            self._begin()
        self._value = value

    def _begin(self) -> None:
        self._turn = self._client.turn
        self._value = UNKNOWN
        place = self._client.number - self._first
        if self._chunk == self._client.chunk and 0 <= place < len(self._ahead):
            self._value, self._ahead[place] = self._ahead[place], UNKNOWN
            self._used += self._value is not UNKNOWN

    def _fetch(self) -> None:
        if self._ahead:
            if self._used * 2 >= len(self._ahead):
                self._count = min(self._count * _FETCH_GROWTH, _MAX_FETCHED)
            else:
                self._count = max(self._count // _FETCH_GROWTH, 1)
        what, name, user_key = self._request
        count, data = self._client.read(what, name, user_key, self._count)
        ahead = []
        place = 0
        for _ in range(count):
            item, place = self._decode(data, place)
            ahead.append(item)
        self._value, ahead[0] = ahead[0], UNKNOWN
        self._ahead, self._used = ahead, 1
        self._first, self._chunk = self._client.number, self._client.chunk
