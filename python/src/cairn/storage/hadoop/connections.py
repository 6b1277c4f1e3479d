"""Storage connections: sockets on which the shim answers requests for files.

Layer: storage.  Spec: docs/protocol.md#storage-connections.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cairn.clock import SYSTEM_CLOCK, Clock
from cairn.errors import CairnError, ClosedError, ProtocolError, UnavailableError
from cairn.protocol import files, frames

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from cairn.protocol.frames import Header

_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
# The shim opens no more at a time.
_MAX_FREE = 64
# One request at a time uses a connection.
_SEQUENCE = 1
_NEXT_STEP = (
    "look for the file system's errors in the executor's log; raise "
    "spark.sql.streaming.stateStore.cairn.requestTimeoutMs if it is slow"
)


class Exchange:
    """One request and its replies on one connection. One thread.

    Args:
        peer: the socket.
        file_system: number of the file system in the shim.
        timeout_ms: how long the shim may be silent.
        object_name: the file, for errors.
        next_step: the same.
        clock: measures the silence.
    """

    def __init__(
        self,
        peer: socket.socket,
        file_system: int,
        timeout_ms: int,
        object_name: str,
        next_step: str = _NEXT_STEP,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._peer = peer
        self._clock = clock
        self._next_step = next_step
        self._file_system = file_system
        self._timeout_ms = timeout_ms
        self._object_name = object_name
        self.is_complete = False

    def send(self, kind: int, payload: bytes, rows: int = 0) -> None:
        """Send the request.

        Raises:
            UnavailableError: the connection has failed, as in ``send_data`` and ``receive``.
        """
        with self._translated():
            self._peer.settimeout(self._timeout_ms / 1000)
            self._peer.sendall(files.request(kind, self._file_system, _SEQUENCE, payload, rows))

    def send_data(self, data: memoryview, *, has_more: bool) -> None:
        """Send a part of a file."""
        head = files.data_header(self._file_system, _SEQUENCE, len(data), has_more=has_more)
        with self._translated():
            self._peer.sendall(head)
            self._peer.sendall(data)

    def receive(self, kind: int) -> tuple[Header, bytes]:
        """Return the next frame of the reply to a request of ``kind``.

        Raises:
            CairnError: the shim answered with this error.
            ProtocolError: the shim sent something else.
        """
        deadline_ns = self._clock.monotonic_ns() + self._timeout_ms * _NS_PER_MS
        with self._translated():
            header = frames.decode_header(self._read(frames.HEADER_BYTES, deadline_ns))
            if header.payload_bytes > files.MAX_REPLY_BYTES:
                raise ProtocolError(
                    f"the shim sent a frame of {header.payload_bytes} bytes, over the limit of "
                    f"{files.MAX_REPLY_BYTES}"
                )
            payload = self._read(header.payload_bytes, deadline_ns)
        if (header.session, header.sequence) != (self._file_system, _SEQUENCE):
            raise ProtocolError("the shim answered another request")
        if header.kind == frames.ERROR:
            self.is_complete = True
            raise files.decode_failure(payload, self._object_name)
        if header.kind != kind | frames.REPLY:
            raise ProtocolError(
                f"the shim answered a request of kind 0x{kind:02x} by 0x{header.kind:02x}"
            )
        self.is_complete = not header.flags & frames.FLAG_MORE
        return header, payload

    def _read(self, size: int, deadline_ns: int) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            left_ns = deadline_ns - self._clock.monotonic_ns()
            if left_ns <= 0:
                raise TimeoutError
            self._peer.settimeout(left_ns / _NS_PER_S)
            count = self._peer.recv_into(view[filled:])
            if not count:
                raise ConnectionResetError("the shim closed it")
            filled += count
        return bytes(data)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as failure:
            raise UnavailableError(
                f"the file system did not answer within {self._timeout_ms} ms; the request may "
                "have been done",
                object_name=self._object_name,
                next_step=self._next_step,
            ) from failure
        except OSError as failure:
            raise UnavailableError(
                f"the connection to the file system broke ({failure}); the request may have been "
                "done",
                object_name=self._object_name,
                next_step=self._next_step,
            ) from failure


class StorageConnections:
    """The storage connections of this process. Thread-safe.

    Args:
        next_step: what to do about a file system that does not answer.

    Attributes:
        probed: numbers of the file systems that have passed the probe of conditional creation.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, next_step: str = _NEXT_STEP) -> None:
        self._clock = clock
        self._next_step = next_step
        self._free: list[socket.socket] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self.probed: set[int] = set()

    def add(self, peer: socket.socket) -> None:
        """Use a connection that has sent SERVE_FILES."""
        with self._changed:
            if not self._is_closed:
                if len(self._free) >= _MAX_FREE:
                    self._drop_ended()
                self._free.append(peer)
                self._changed.notify()
                return
        peer.close()

    @contextmanager
    def exchange(self, file_system: int, timeout_ms: int, object_name: str) -> Iterator[Exchange]:
        """Yield a free connection for one request; an incomplete exchange closes it.

        Raises:
            UnavailableError: none was free in time.
            ClosedError: after ``close``.
        """
        peer = self._acquire(timeout_ms, object_name)
        exchange = None
        try:
            exchange = Exchange(
                peer, file_system, timeout_ms, object_name, self._next_step, self._clock
            )
            yield exchange
        except CairnError as error:
            error.with_context(object_name=object_name)
            raise
        finally:
            if exchange is not None and exchange.is_complete:
                self.add(peer)
            else:
                # The rest of a reply may follow.
                peer.close()

    def close(self) -> None:
        """Close the connections that are free, and the others after their requests."""
        with self._changed:
            self._is_closed = True
            free, self._free = self._free, []
            self._changed.notify_all()
        for peer in free:
            peer.close()

    def _drop_ended(self) -> None:
        """Close connections that the shim has left; REQUIRES: the lock."""
        open_ones = [peer for peer in self._free if _is_open(peer)]
        for peer in set(self._free).difference(open_ones):
            peer.close()
        self._free = open_ones

    def _acquire(self, timeout_ms: int, object_name: str) -> socket.socket:
        deadline = self._clock.monotonic_ns() + timeout_ms * 1_000_000
        with self._changed:
            while not self._is_closed:
                while self._free:
                    # The newest first: the others may end.
                    peer = self._free.pop()
                    if _is_open(peer):
                        return peer
                    peer.close()
                left_ns = deadline - self._clock.monotonic_ns()
                if left_ns <= 0:
                    raise UnavailableError(
                        f"no connection to the file system was free within {timeout_ms} ms",
                        object_name=object_name,
                        next_step=self._next_step,
                    )
                self._changed.wait(left_ns / 1e9)
        raise ClosedError("the connections to file systems are closed", object_name=object_name)


def _is_open(peer: socket.socket) -> bool:
    """Return whether the peer of a free connection is still there."""
    with suppress(OSError):
        peer.settimeout(0)
        try:
            # Nothing may arrive before a request; an empty result is the end.
            peer.recv(1)
        except BlockingIOError:
            return True
    return False
