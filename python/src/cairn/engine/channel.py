"""The data channel: a Unix socket, its connections, and their frames.

Layer: engine.  Spec: docs/protocol.md#data-channel.  All of it but ``reply_from_thread`` runs on
the event loop; nothing blocks. A connection that breaks the protocol gets an error and is closed;
others are not affected.
"""

from __future__ import annotations

import hmac
import logging
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from cairn.engine.acceptor import Acceptor
from cairn.engine.event_loop import READABLE, WRITABLE
from cairn.errors import CairnError, ProtocolError, unexpected
from cairn.protocol import frames
from cairn.protocol.frames import Header

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.engine.event_loop import EventLoop

_LOG = logging.getLogger(__name__)
# The frames of a small batch, its COMMIT included, arrive together.
_READ_BYTES = 256 * 1024
_NO_PAYLOAD = memoryview(b"")
_WRONG_TOKEN = "the token is not that of this worker"  # noqa: S105 - a message
# Bound of replies that a peer has not read; the largest reply fits.
_MAX_UNSENT_BYTES = frames.MAX_REPLY_BYTES + frames.MAX_PAYLOAD_BYTES


class Dispatcher(Protocol):
    """Serves the frames of connections that have sent the token."""

    def on_frame(self, header: Header, payload: bytes | memoryview, connection: Connection) -> None:
        """Serve one frame; ``payload`` stays valid while something refers to it.

        The payload of a small frame is ``bytes``.

        An error that it raises is sent to the peer as the reply, unless the frame has writes.
        """

    def look_up_one(
        self, session: int, sequence: int, required: int, cf: int, key: bytes
    ) -> bytes | None:
        """Return the frame that answers a LOOKUP of one key; ``None``: give it to ``on_frame``.

        Args:
            session: session id of the frame, as ``sequence``.
            sequence: number of the request.
            required: the version that must be applied before.
            cf: the key's family.
            key: the key.

        Raises:
            CairnError: the answer is this error.
        """


class Listener:
    """The listening socket of a worker.

    Args:
        path: the socket's path; only this user may enter its folder (0700).
        token: the token that a HELLO must contain.
        event_loop: the worker's event loop.
        dispatcher: serves the frames.
    """

    def __init__(
        self, path: Path, token: bytes, event_loop: EventLoop, dispatcher: Dispatcher
    ) -> None:
        self._token = token
        self._event_loop = event_loop
        self._dispatcher = dispatcher
        self._received = memoryview(bytearray(_READ_BYTES))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(128)
        self._socket.setblocking(False)  # noqa: FBT003 - by place in the standard library
        self._acceptor = Acceptor(self._socket, frames.encode_refusal)
        event_loop.watch(self._socket, self, READABLE)

    def on_ready(self, _events: int) -> None:
        """Accept a new connection."""
        try:
            accepted = self._acceptor.accept_or_refuse()
        except OSError:
            return
        if accepted is None:
            return
        accepted.setblocking(False)  # noqa: FBT003 - by place in the standard library
        Connection(accepted, self._token, self._event_loop, self._dispatcher, self._received)


class Connection:
    """One peer. Frames are dispatched whole; replies are sent in the order of the calls.

    Args:
        peer: does not block.
        token: see ``Listener``, also for the next two.
        event_loop: where all methods run.
        dispatcher: serves the frames.
        received: a buffer that is used only during ``on_ready``.
    """

    def __init__(
        self,
        peer: socket.socket,
        token: bytes,
        event_loop: EventLoop,
        dispatcher: Dispatcher,
        received: memoryview,
    ) -> None:
        self._socket = peer
        self._token = token
        self._event_loop = event_loop
        self._dispatcher = dispatcher
        # Connections take turns on one thread, so they share the buffer of small frames.
        self._received = received
        self._is_greeted = False
        self.is_closed = False
        # One frame at a time: the bytes of its header, then a payload buffer of its exact size.
        # Arrow's columns may refer to that buffer for a long time.
        self._head = bytearray()
        self._header: Header | None = None
        self._payload = _NO_PAYLOAD
        self._filled = 0
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._is_paused = False
        self._close_lock = threading.Lock()
        self._watched = READABLE
        event_loop.watch(peer, self, self._watched)

    def on_ready(self, events: int) -> None:
        """Read frames and serve them, or send unsent replies."""
        try:
            if events & WRITABLE:
                self._send_unsent()
            if events & ~WRITABLE and not self.is_closed:
                self._receive()
        except BlockingIOError:
            pass  # the event was out of date
        except OSError:
            self.close()

    def reply(
        self,
        request: Header,
        payload: pa.Buffer | bytes,
        *,
        rows: int = 0,
        applied: int = 0,
        flags: int = 0,
        kind: int | None = None,
    ) -> None:
        """Answer ``request``. On the event loop; does nothing if the peer is gone."""
        if self.is_closed:
            return
        size = len(payload) if isinstance(payload, bytes) else payload.size
        if size > frames.MAX_REPLY_BYTES:
            text = f"a reply of {size} bytes is over the limit of {frames.MAX_REPLY_BYTES}"
            self.reply_error(request, ProtocolError(text))
            return
        head = frames.encode_header(
            Header(
                kind=request.kind | frames.REPLY if kind is None else kind,
                flags=flags,
                session=request.session,
                sequence=request.sequence,
                applied=applied,
                rows=rows,
                payload_bytes=size,
            )
        )
        self._send(head, payload)

    def send_reply(self, frame: bytes) -> None:
        """Send a whole frame that answers a request. As ``reply``."""
        sent = 0
        if self.is_closed:
            return
        if not self._unsent:
            try:
                sent = self._socket.send(frame)
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
        if sent < len(frame):
            self._keep(memoryview(frame)[sent:])

    def reply_from_thread(
        self, request: Header, payload: bytes, *, rows: int, applied: int
    ) -> None:
        """As ``reply``, from any thread: it does not wait until the event loop is woken.

        REQUIRES: the peer has no other request without a reply.
        """
        fields = (0, request.session, request.sequence, applied, rows, len(payload))
        frame = frames.encode_header(Header(request.kind | frames.REPLY, *fields)) + payload
        with self._close_lock:
            if self.is_closed:
                return
            try:
                sent = 0 if self._unsent else self._socket.send(frame)
            except OSError:  # full, or broken: the event loop finds out which
                sent = 0
        if sent < len(frame):
            self._event_loop.post(lambda: self._keep(memoryview(frame)[sent:]))

    def reply_error(self, request: Header, error: CairnError) -> None:
        """Answer ``request`` with an error. On the event loop."""
        self.reply(request, frames.encode_error(error), kind=frames.ERROR)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._watched:
            self._event_loop.watch(self._socket, self, 0)
        with self._close_lock:  # another socket may get its number
            self._socket.close()
        self._unsent.clear()

    def detach(self) -> socket.socket:
        """Give the socket to the caller; no more of it is read here. On the event loop."""
        with self._close_lock:
            self.is_closed = True
        self._event_loop.watch(self._socket, self, 0)
        return self._socket

    def pause(self) -> None:
        """Stop reading frames until ``resume``; replies are sent. On the event loop."""
        self._is_paused = True
        self._watch()

    def resume(self) -> None:
        """Read frames again. On the event loop; idempotent."""
        self._is_paused = False
        self._watch()

    def _watch(self) -> None:
        if self.is_closed:
            return
        wanted = 0 if self._is_paused else READABLE
        if self._unsent:
            wanted |= WRITABLE
        if wanted != self._watched:
            self._event_loop.watch(self._socket, self, wanted)
            self._watched = wanted

    def _receive(self) -> None:
        if self._header is None:
            # Most requests are one small frame, which is received whole.
            count = self._socket.recv_into(self._received)
            if not count:
                self.close()
            elif not self._is_greeted or self._head or not self._answer_at_once(count):
                self._consume(count)
            return
        header = self._header
        view = self._payload
        while self._filled < header.payload_bytes:
            try:
                count = self._socket.recv_into(view[self._filled :])
            except BlockingIOError:
                return
            if not count:
                self.close()
                return
            self._filled += count
        payload, self._payload, self._header = self._payload, _NO_PAYLOAD, None
        self._serve(header, payload)

    def _answer_at_once(self, count: int) -> bool:
        """Answer the received bytes if they are one LOOKUP of one key that needs no wait.

        A query whose state is larger than the cache sends one for nearly every row.
        """
        request = frames.decode_lookup_of_one(self._received, count)
        if request is None:
            return False
        try:
            reply = self._dispatcher.look_up_one(*request)
        except CairnError as failure:
            self.reply_error(frames.decode_header(self._received), failure)
            return True
        if reply is None:
            return False
        self.send_reply(reply)
        return True

    def _consume(self, count: int) -> None:
        """Serve the frames in the first ``count`` received bytes; keep what is incomplete."""
        view = self._received
        if self._head:
            # A header came in two parts.
            view = memoryview(bytes(self._head) + view[:count])
            count = len(view)
            self._head.clear()
        offset = 0
        while count - offset >= frames.HEADER_BYTES and not self.is_closed:
            try:
                header = frames.decode_header(view, offset)
            except ProtocolError as failure:
                _LOG.warning("data channel: %s", failure)
                self._reject(Header(0, 0, 0, 0, 0, 0, 0), failure)
                return
            if not self._is_greeted and header.payload_bytes > len(self._token):
                # A peer without the token cannot make the worker reserve memory.
                self._reject(header, ProtocolError(_WRONG_TOKEN))
                return
            offset += frames.HEADER_BYTES
            end = offset + header.payload_bytes
            if end > count:
                self._header = header
                # Not a bytearray, which would fill the memory with zeros first.
                self._payload = np.empty(header.payload_bytes, np.uint8).data
                self._filled = count - offset
                self._payload[: self._filled] = view[offset:count]
                return
            # A copy: Arrow's columns, or a read that waits, may refer to it for a long time.
            self._serve(header, bytes(view[offset:end]))
            offset = end
        self._head += view[offset:count]

    def _serve(self, header: Header, payload: bytes | memoryview) -> None:
        try:
            if self._is_greeted:
                self._dispatcher.on_frame(header, payload, self)
            else:
                self._greet(header, payload)
        except CairnError as failure:
            self._refuse(header, failure)
        except Exception as failure:  # noqa: BLE001 - the connection stays usable, the bug is logged
            _LOG.exception("a frame failed")
            self._refuse(header, unexpected(failure))

    def _refuse(self, header: Header, failure: CairnError) -> None:
        if header.kind == frames.WRITES:
            # WRITES have no reply: the peer would take it for the reply to its next request. The
            # commit reports the missing frame.
            _LOG.warning("a frame of writes was refused: %s", failure)
        else:
            self.reply_error(header, failure)

    def _greet(self, header: Header, payload: bytes | memoryview) -> None:
        if header.kind != frames.HELLO or not hmac.compare_digest(bytes(payload), self._token):
            self._reject(header, ProtocolError(_WRONG_TOKEN))
            return
        self._is_greeted = True
        self.reply(header, b"")

    def _reject(self, header: Header, failure: ProtocolError) -> None:
        self.reply_error(header, failure)
        self.close()

    def _send(self, head: bytes, payload: pa.Buffer | bytes) -> None:
        body = memoryview(payload)
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.sendmsg((head, body))
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
        for part in (memoryview(head), body):
            if sent < len(part):
                self._keep(part[sent:])
            sent = max(sent - len(part), 0)

    def _keep(self, part: memoryview) -> None:
        """Send a part of a reply later: the peer reads slowly."""
        if self.is_closed:
            return
        self._unsent.append(part)
        self._unsent_bytes += len(part)
        if self._unsent_bytes > _MAX_UNSENT_BYTES:
            _LOG.warning("a peer does not read its replies; its connection is closed")
            self.close()
            return
        self._watch()

    def _send_unsent(self) -> None:
        while self._unsent:
            part = self._unsent[0]
            try:
                count = self._socket.send(part)
            except BlockingIOError:
                return
            self._unsent_bytes -= count
            if count < len(part):
                self._unsent[0] = part[count:]
                return
            self._unsent.popleft()
        self._watch()
