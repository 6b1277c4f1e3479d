"""RemoteFiles: the files of one of the shim's file systems.

Layer: storage.  Spec: docs/protocol.md#storage-connections.  Paths have no scheme and authority.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cairn.errors import ProtocolError
from cairn.protocol import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cairn.protocol.files import FileStatus
    from cairn.storage.hadoop.connections import Exchange, StorageConnections

T = TypeVar("T")

MAX_LISTED_FILES = 1_000_000
"""Of one store; they are sorted in memory, some 300 bytes each."""


@dataclass(frozen=True)
class RemoteFiles:
    """One file system. Thread-safe; each call uses one connection.

    Every method raises what the file system answers, and ``UnavailableError`` without an answer:
    the change may then have been made, or may still be made.

    Attributes:
        connections: of this process.
        file_system: number of the file system in the shim.
        timeout_ms: how long the shim may be silent.
        prefix: scheme and authority, for the names of files in errors.
    """

    connections: StorageConnections
    file_system: int
    timeout_ms: int
    prefix: str

    def read(
        self,
        path: str,
        length: int,
        use: Callable[[FileStatus, Iterator[bytes]], T],
        *,
        offset: int = 0,
    ) -> T:
        """Return what ``use`` makes of a part of a file, given its status and bytes."""
        with self.connections.exchange(
            self.file_system, self.timeout_ms, self.prefix + path
        ) as exchange:
            exchange.send(files.FILE_READ, files.read_payload(path, offset, length))
            _, payload = exchange.receive(files.FILE_READ)
            status = files.decode_status(payload)
            size = max(0, min(length, status.size_bytes - offset))
            return use(status, _chunks(exchange, size))

    def write(self, path: str, parts: Iterable[memoryview], *, replaces: bool) -> None:
        """Create a file; without ``replaces`` an ``AlreadyExistsError`` if there is one.

        An error leaves no file that was closed. A file may have a part of its bytes until then.
        """
        size = 0
        with self.connections.exchange(
            self.file_system, self.timeout_ms, self.prefix + path
        ) as exchange:
            exchange.send(files.FILE_WRITE, files.write_payload(path, replaces=replaces))
            for part in parts:
                for start in range(0, len(part), files.MAX_DATA_BYTES):
                    exchange.send_data(part[start : start + files.MAX_DATA_BYTES], has_more=True)
                size += len(part)
            exchange.send_data(memoryview(b""), has_more=False)
            _, payload = exchange.receive(files.FILE_WRITE)
            if files.decode_written(payload) != size:
                raise ProtocolError("the shim wrote another number of bytes")

    def rename(self, source: str, target: str, *, replaces: bool) -> None:
        """Rename a file; without ``replaces`` an ``AlreadyExistsError`` if there is a target.

        Raises:
            MissingError: there is no ``source``.
        """
        payload = files.rename_payload(source, target, replaces=replaces)
        self._call(files.FILE_RENAME, target, payload, bytes)

    def status(self, path: str) -> FileStatus:
        """Return a file's status.

        Raises:
            MissingError: there is no such file.
        """
        return self._call(files.FILE_STATUS, path, path.encode(), files.decode_status)

    def list(self, folder: str) -> list[tuple[str, FileStatus]]:
        """Return the files at any depth below a folder, with paths relative to it; no order."""
        found: list[tuple[str, FileStatus]] = []
        with self.connections.exchange(
            self.file_system, self.timeout_ms, self.prefix + folder
        ) as exchange:
            exchange.send(files.FILE_LIST, folder.encode())
            while not exchange.is_complete:
                header, payload = exchange.receive(files.FILE_LIST)
                found += files.decode_listing(payload, header.rows)
                has_more = not exchange.is_complete
                if len(found) > MAX_LISTED_FILES or (has_more and not header.rows):
                    raise ProtocolError(
                        f"a listing of {len(found)} files does not end; the limit is "
                        f"{MAX_LISTED_FILES}"
                    )
        return found

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; names that do not exist, and folders, are left out."""
        for start in range(0, len(paths), files.MAX_DELETE_PATHS):
            some = paths[start : start + files.MAX_DELETE_PATHS]
            self._call(files.FILE_DELETE, some[0], files.delete_payload(some), bytes, len(some))

    def publishing(self) -> int:
        """Return how files appear: a constant of ``protocol.files``. No request to the storage."""
        return self._call(files.FILE_SYSTEM, "/", b"/", files.decode_publishing)

    def _call(
        self, kind: int, path: str, payload: bytes, decode: Callable[[bytes], T], rows: int = 0
    ) -> T:
        with self.connections.exchange(
            self.file_system, self.timeout_ms, self.prefix + path
        ) as exchange:
            exchange.send(kind, payload, rows)
            return decode(exchange.receive(kind)[1])


def _chunks(exchange: Exchange, size: int) -> Iterator[bytes]:
    """Yield the ``size`` bytes of a reply, no more and no less."""
    left = size
    while not exchange.is_complete:
        chunk = exchange.receive(files.FILE_READ)[1]
        left -= len(chunk)
        if left < 0 or not chunk:
            break
        yield chunk
    if left or not exchange.is_complete:
        raise ProtocolError(f"the shim did not send the {size} bytes that a file has")
