"""A shim that serves files in memory on storage connections, with hooks for faults."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cairn.errors import AlreadyExistsError, CairnError, MissingError
from cairn.protocol import files, frames

if TYPE_CHECKING:
    from cairn.storage.hadoop.connections import StorageConnections

FILE_SYSTEM = 3


@dataclass
class FakeShim:
    """Serves files in memory. A hook may change the files, raise an error, or return an answer.

    Attributes:
        publishing: how files appear.
        replaces_always: a rename replaces although it may not.
        before: called with kind and path before a request is done.
        after: called after it; an error that it raises is answered.
    """

    publishing: int = files.PUBLISHES_BY_RENAME
    replaces_always: bool = False
    before: Callable[[int, str], None] = lambda _kind, _path: None
    after: Callable[[int, str], None] = lambda _kind, _path: None
    content: dict[str, bytes] = field(default_factory=dict)
    modified_ms: dict[str, int] = field(default_factory=dict)
    now_ms: int = 1_000

    def connect(self, connections: StorageConnections) -> None:
        """Open one more storage connection."""
        ours, theirs = socket.socketpair()
        connections.add(theirs)
        self.serve(ours)

    def serve(self, peer: socket.socket) -> None:
        """Answer the requests of a connection, in a thread, until it ends."""
        threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with suppress(OSError), peer, peer.makefile("rb") as stream:  # closed by the worker
            while head := stream.read(frames.HEADER_BYTES):
                header = frames.decode_header(head)
                assert header.session == FILE_SYSTEM
                payload = stream.read(header.payload_bytes)
                data = b""
                while header.kind == files.FILE_WRITE:
                    part = frames.decode_header(stream.read(frames.HEADER_BYTES))
                    data += stream.read(part.payload_bytes)
                    if not part.flags & frames.FLAG_MORE:
                        break
                try:
                    for answer in self._answers(header, payload, data):
                        peer.sendall(answer)
                except CairnError as failure:
                    peer.sendall(_frame(frames.ERROR, header, frames.encode_error(failure)))

    def _answers(self, header: frames.Header, payload: bytes, data: bytes) -> Iterator[bytes]:
        if header.kind == files.FILE_READ:
            yield from self.read(header, payload)
            return
        if header.kind == files.FILE_LIST:
            yield from self._list(header, payload.decode())
            return
        path, answer = self._do(header.kind, payload, data)
        self.after(header.kind, path)
        yield _frame(header.kind | frames.REPLY, header, answer)

    def read(self, header: frames.Header, payload: bytes) -> Iterator[bytes]:
        """Yield the frames that answer a read: the status, then the bytes one by one."""
        offset, length = struct.unpack_from("<2Q", payload)
        path, reply = payload[16:].decode(), header.kind | frames.REPLY
        self.before(header.kind, path)
        whole = self._find(path)
        part = whole[offset : offset + length]
        yield _frame(reply, header, self.status(path), more=bool(part))
        self.after(header.kind, path)
        for index in range(len(part)):
            yield _frame(reply, header, part[index : index + 1], more=index < len(part) - 1)

    def _list(self, header: frames.Header, folder: str) -> Iterator[bytes]:
        found = [path for path in self.content if path.startswith(f"{folder}/")]
        for path in found:
            name = path.removeprefix(f"{folder}/").encode()
            row = self.status(path) + struct.pack("<I", len(name)) + name
            yield _frame(header.kind | frames.REPLY, header, row, more=True, rows=1)
        yield _frame(header.kind | frames.REPLY, header, b"")

    def _do(self, kind: int, payload: bytes, data: bytes) -> tuple[str, bytes]:
        """Do a request whose answer is one frame; return its path and the answer."""
        if kind == files.FILE_WRITE:
            path = payload[1:].decode()
            self.before(kind, path)
            if payload[0] and path in self.content:
                raise AlreadyExistsError("exists")
            self.store(path, data)
            return path, struct.pack("<Q", len(data))
        if kind == files.FILE_RENAME:
            replaces, size = struct.unpack_from("<BI", payload)
            source, path = payload[5 : 5 + size].decode(), payload[5 + size :].decode()
            self.before(kind, path)
            self._find(source)
            if path in self.content and not (replaces or self.replaces_always):
                raise AlreadyExistsError("exists")
            self.content[path] = self.content.pop(source)
            self.modified_ms[path] = self.modified_ms.pop(source)
            return path, b""
        if kind == files.FILE_STATUS:
            path = payload.decode()
            self.before(kind, path)
            return path, self.status(path)
        if kind == files.FILE_DELETE:
            while payload:
                (size,) = struct.unpack_from("<I", payload)
                path = payload[4 : 4 + size].decode()
                self.before(kind, path)
                self.content.pop(path, None)
                payload = payload[4 + size :]
            return "", b""
        return "", bytes([self.publishing])

    def status(self, path: str) -> bytes:
        """Return the size of a file and when it was changed, as a frame has them."""
        return struct.pack("<2Q", len(self._find(path)), self.modified_ms[path])

    def _find(self, path: str) -> bytes:
        if path not in self.content:
            raise MissingError("no such file")
        return self.content[path]

    def store(self, path: str, data: bytes) -> None:
        """Write a file, as a task of another executor does."""
        self.now_ms += 1
        self.content[path], self.modified_ms[path] = data, self.now_ms

    def hidden(self) -> list[str]:
        """Return the hidden names."""
        return [path for path in self.content if path.rpartition("/")[2].startswith(".")]


def _frame(
    kind: int, request: frames.Header, payload: bytes, *, more: bool = False, rows: int = 0
) -> bytes:
    flags = frames.FLAG_MORE if more else 0
    head = frames.Header(kind, flags, request.session, request.sequence, 0, rows, len(payload))
    return frames.encode_header(head) + payload
