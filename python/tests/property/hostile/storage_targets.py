"""What a broken or hostile peer may send on a storage connection, in place of the shim."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mutations import mutate_bytes, mutate_json
from served import RefusedError
from target import FaultError, Target, WorkerTarget, expect, vectors

from cairn.checksum import crc32c
from cairn.errors import AlreadyExistsError, CairnError, InternalError, MissingError
from cairn.protocol import files, frames
from cairn.storage.hadoop import files as remote_files
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.hadoop.store import HadoopStore
from harness.fake_shim import FILE_SYSTEM, FakeShim

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

URL = "hdfs://host/query/state/0/0"
ROOT = "/query/state/0/0"
SETTINGS = {"file_system": str(FILE_SYSTEM), "timeout_ms": "200"}
CONNECTIONS = 6
# A listing without an end is as good with fewer files.
LISTED_FILES = 5_000
ERROR = {"code": "CAIRN_MISSING", "message": "gone", "object": "/x", "next": "none"}
_EDGES = (0, 1, 2, 127, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


class HostileShim(FakeShim):
    """A shim that changes some of its answers.

    Attributes:
        random: of the present input; ``None``: it changes nothing.
        share: how many of its frames it changes.
        has_own_error: whether it has sent an error that no shim sends.
        corpus: frames that lend their parts.
    """

    random: Random | None = None
    share = 0.3
    has_own_error = False

    corpus = vectors("frames", ".frame")
    failure: Exception | None = None

    def _serve(self, peer: socket.socket) -> None:
        try:
            super()._serve(peer)
        except Exception as failure:  # noqa: BLE001 - see ``check``
            self.failure = failure

    def check(self) -> None:
        """Raise if this shim itself has failed."""
        if self.failure is not None:
            raise FaultError("the shim of the test has failed") from self.failure

    def _answers(self, header: frames.Header, payload: bytes, data: bytes) -> Iterator[bytes]:
        try:
            for answer in super()._answers(header, payload, data):
                yield from self._changed(answer)
        except (MissingError, AlreadyExistsError) as failure:
            yield from self._changed(_fitted(answer_to(header), frames.encode_error(failure)))

    def _changed(self, frame: bytes) -> Iterator[bytes]:
        random = self.random
        if random is None or random.random() > self.share:
            yield frame
            return
        header, payload = frames.decode_header(frame), frame[frames.HEADER_BYTES :]
        self.has_own_error |= header.kind == frames.ERROR
        changes: list[Callable[[], Iterator[bytes]]] = [
            lambda: self._with_other_header(header, payload, random),
            lambda: iter([_fitted(header, mutate_bytes(payload, self.corpus, random))]),
            lambda: iter([_fitted(header, mutate_bytes(payload, self.corpus, random))]),
            lambda: self._error(header, random),
            lambda: self._broken_off(mutate_bytes(frame, self.corpus, random)),
            lambda: self._without_end(header, payload, random),
            lambda: iter([frame, frame]),
            lambda: iter([]),
        ]
        yield from random.choice(changes)()

    def _with_other_header(
        self, header: frames.Header, payload: bytes, random: Random
    ) -> Iterator[bytes]:
        name = random.choice(header._fields)
        most = {"kind": 2**8, "flags": 2**16, "rows": 2**32, "payload_bytes": 2**32}
        value = random.choice(_EDGES) % most.get(name, 2**64)
        yield frames.encode_header(header._replace(**{name: value})) + payload
        if name == "payload_bytes" and random.random() < 0.8:
            raise ConnectionAbortedError

    def _error(self, header: frames.Header, random: Random) -> Iterator[bytes]:
        self.has_own_error = True
        depth = random.choice((10, 100_000))
        payload = random.choice(
            (
                json.dumps(mutate_json(ERROR, random)).encode("utf-8", "replace"),
                mutate_bytes(json.dumps(ERROR).encode(), self.corpus, random),
                b"[" * depth,
                b'{"code":' * depth,
                json.dumps({**ERROR, "message": "x" * (2 << 20)}).encode(),
            )
        )
        yield _fitted(header._replace(kind=frames.ERROR), payload)

    @staticmethod
    def _broken_off(frame: bytes) -> Iterator[bytes]:
        yield frame
        raise ConnectionAbortedError

    @staticmethod
    def _without_end(header: frames.Header, payload: bytes, random: Random) -> Iterator[bytes]:
        more = header._replace(flags=frames.FLAG_MORE)
        frame = _fitted(more, random.choice((payload, b"", payload * 2000)))
        while True:  # until the reader closes the connection
            yield frame


def answer_to(header: frames.Header) -> frames.Header:
    """Return the header of an ERROR that answers a request."""
    return header._replace(kind=frames.ERROR, flags=0, rows=0)


def _fitted(header: frames.Header, payload: bytes) -> bytes:
    return frames.encode_header(header._replace(payload_bytes=len(payload))) + payload


class Files(Target):
    """Each method of ``HadoopStore`` on connections whose peer changes its answers."""

    name, weight = "files", 12

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        remote_files.MAX_LISTED_FILES = LISTED_FILES
        self.source = folder / "source"
        self.source.write_bytes(b"s" * 400)
        self.target = folder / "target"

    def run(self, random: Random) -> None:
        """See ``Target``."""
        shim = HostileShim(random.choice((files.PUBLISHES_BY_RENAME, files.PUBLISHES_BY_CLOSE)))
        data = b"d" * 60
        shim.content = {f"{ROOT}/changelog/{number}.arrow": data for number in range(1, 5)}
        shim.content[f"{ROOT}/.x.0123456789abcdef.tmp"] = b""
        shim.modified_ms = dict.fromkeys(shim.content, 1_000)
        connections = StorageConnections()
        shim.random = random
        for _ in range(CONNECTIONS):
            shim.connect(connections)
        key, new = "changelog/1.arrow", "changelog/9.arrow"
        store = HadoopStore(URL, SETTINGS, connections)
        checksum = crc32c(self.source.read_bytes())
        calls: list[Callable[[], object]] = [
            lambda: store.get(key),
            lambda: store.get_start(key, random.choice((1, 30, 100))),
            lambda: store.download(key, self.target, size_bytes=len(data), crc32c=crc32c(data)),
            lambda: list(store.list(random.choice(("", "changelog/", "no/")))),
            lambda: store.put(key, data),
            lambda: store.put_if_absent(random.choice((key, new)), data),
            lambda: store.put_if_match(key, data, "0" * 32 + "-3e8"),
            lambda: store.upload(new, self.source, crc32c=checksum),
            lambda: store.delete([key, new]),
            store.probe_conditional_put,
            store.probe_replacement,
        ]
        try:
            random.choice(calls)()
        except CairnError as error:
            expect(error, CairnError)
            if isinstance(error, InternalError) and not shim.has_own_error:
                raise FaultError(str(error)) from error
        finally:
            connections.close()
        shim.check()
        if self.target.exists():
            assert self.target.read_bytes() == data
            self.target.unlink()


class FilesOfWorker(WorkerTarget):
    """Loads and commits of a worker whose files a hostile peer serves."""

    name, weight = "files-of-worker", 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        remote_files.MAX_LISTED_FILES = LISTED_FILES
        self.shim = HostileShim()
        self.peers: list[socket.socket] = []
        conf = {"minDeltasForSnapshot": 2, "orphanGraceMs": 0}
        self.opened = {**self.served.opened, "url": URL, "storage": SETTINGS, "conf": conf}
        self.instances = 10
        self._connect(b"")
        self.served.call("open_instance", instance=2, **self.opened)
        self.newest = self.commit_versions(2)
        last = {"session": 2 << 32 | 200, "version": 5, "checkpoint_id": self.newest}
        self.served.call("load", instance=2, **last)
        self.rows = self.scan(2 << 32 | 200)
        self.content = dict(self.shim.content)
        self.modified_ms = dict(self.shim.modified_ms)

    def run(self, random: Random) -> None:
        """See ``Target``."""
        for peer in self.peers:
            # Its thread has the socket, too.
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()
        self.peers.clear()
        shim = self.shim
        shim.content, shim.modified_ms = dict(self.content), dict(self.modified_ms)
        shim.random, shim.has_own_error = random, False
        # It sends each byte of a file in a frame, some 10,000 per input.
        shim.share = random.choice((0.00005, 0.0002, 0.001))
        self._connect(random.choice((b"", b"", b"payload")))
        self.instances += 1
        number = self.instances
        session = number << 32 | 1
        load = {"version": 5, "checkpoint_id": self.newest}
        try:
            self.served.call("open_instance", instance=number, **self.opened)
            self.served.call("load", instance=number, session=session, **load)
            if self.scan(session) != self.rows:
                raise FaultError("a load has other rows than were committed")
            # An empty commit would write nothing.
            writes = {"frames": 0, "rows": 0, "expected_rows": 0, "version": 6}
            self.served.commit(session=session, base_checkpoint_id=self.newest, **writes)
            self.served.call("maintain", instance=number, snapshot=True, cleanup=True)
        except CairnError as error:
            expect(error, CairnError)
            self._check(error.code, error)
        except RefusedError as error:
            self._check(str(error)[1:].partition("]")[0], error)
        finally:
            shim.random = None
            self.served.call("close_instance", instance=number)
            for cached in self.served.directories.cache_directory.glob("*.sst"):
                cached.unlink()
        shim.check()
        self.log.check()

    def _check(self, code: str, error: Exception) -> None:
        if code == "CAIRN_INTERNAL" and not self.shim.has_own_error:
            raise FaultError(str(error)) from error

    def _connect(self, payload: bytes) -> None:
        for _ in range(CONNECTIONS):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            peer.connect(str(self.served.directories.socket_path))
            hello: dict[str, Any] = dict.fromkeys(frames.Header._fields, 0)
            header = frames.Header(**hello)
            peer.sendall(_fitted(header._replace(kind=frames.HELLO), b"token"))
            peer.recv(frames.HEADER_BYTES, socket.MSG_WAITALL)
            peer.sendall(_fitted(header._replace(kind=frames.SERVE_FILES), payload))
            self.peers.append(peer)
            self.shim.serve(peer)
