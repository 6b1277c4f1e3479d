"""FileServer: a JVM of this process's own that serves one file system, for use outside Spark.

Layer: storage.  Spec: docs/protocol.md#outside-spark.  The JVM runs the shim's ``FileServer`` and
connects to a socket of this process, as an executor connects to its workers. Its settings are sent
on its standard input. If this process is killed, the JVM ends; the next process that has a socket
in the same folder removes what is left.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import subprocess
import tempfile
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

from cairn.clock import SYSTEM_ENTROPY
from cairn.errors import CairnError, ConfigError, InternalError, ProtocolError, error_of
from cairn.protocol import frames
from cairn.protocol.calls import answer_in
from cairn.protocol.frames import Header
from cairn.socket_folder import SocketFolder
from cairn.storage.hadoop.connections import StorageConnections

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.protocol.calls import Json

_PROGRAM: Final = "io.cairn.spark.engine.FileServer"
TIMEOUT_MS: Final = 120_000
STOP_TIMEOUT_S: Final = 10.0
_OUTPUT_CHARS: Final = 2_000
_NEXT_STEP: Final = (
    "check that the file system is reachable, and the settings in HADOOP_CONF_DIR and of "
    "--hadoop-conf; then repeat the command"
)


@dataclass
class FileServer:
    """A JVM that serves the file system of ``url`` between ``__enter__`` and ``__exit__``.

    Attributes:
        url: any URL of the file system.
        class_path: the shim's jar, Spark's jars, those of the file system, and folders with
            ``core-site.xml``.
        conf: settings of Hadoop in addition.
        connections: for ``open_store``, as ``settings``.
    """

    url: str
    class_path: Sequence[str]
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    connections: StorageConnections = field(
        default_factory=lambda: StorageConnections(next_step=_NEXT_STEP)
    )
    settings: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Start the JVM.

        Raises:
            ConfigError: there is no Java, or it did not start; the message has its output. Or
                ``TMPDIR`` can have no socket.
            SchemeError: Hadoop has no such file system.
        """
        with _socket_errors():
            self._folder = SocketFolder(Path(tempfile.gettempdir()))
        self._token = SYSTEM_ENTROPY.token(32).encode()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._process: subprocess.Popen[str] | None = None
        try:
            path = self._folder.socket_path
            with _socket_errors():
                self._listener.bind(str(path))
                self._listener.listen(64)
            threading.Thread(target=self._accept, name="cairn-files", daemon=True).start()
            answer = self._start(path)
        except BaseException:
            self.__exit__()
            raise
        self.settings = {
            "file_system": str(answer["file_system"]),
            "timeout_ms": str(TIMEOUT_MS),
        }
        return self

    def __exit__(self, *_: object) -> None:
        """End the JVM, which its standard input keeps alive."""
        self.connections.close()
        if self._process is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                self._process.communicate(timeout=STOP_TIMEOUT_S)
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        # Wakes the thread that accepts.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._folder.remove()
        self._folder.close()

    @property
    def pid(self) -> int:
        """Process id of the JVM. REQUIRES: it runs."""
        if self._process is None:
            raise InternalError("the JVM does not run")
        return self._process.pid

    def _start(self, path: Path) -> Json:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home, "bin", "java")) if home else "java"
        command = [java, "-Xmx512m", "-cp", os.pathsep.join(self.class_path), _PROGRAM]
        # Without a name: nothing of it is left if this process is killed.
        with tempfile.TemporaryFile() as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the user's own Java
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            except OSError as error:
                raise ConfigError(
                    f"cannot run {java}: {error.strerror}",
                    next_step="install a JDK 17, or set JAVA_HOME",
                ) from error
            return self._answer(self._process, path, log)

    def _answer(self, process: subprocess.Popen[str], path: Path, log: IO[bytes]) -> Json:
        """Send the JVM its settings and return its answer."""
        request = {
            "protocol": frames.PROTOCOL,
            "socket": str(path),
            "token": self._token.decode(),
            "root": self.url,
            "timeout_ms": TIMEOUT_MS,
            "conf": dict(self.conf),
        }
        assert process.stdin is not None  # noqa: S101 - pipes, see above
        assert process.stdout is not None  # noqa: S101
        answer = None
        patience = threading.Timer(TIMEOUT_MS / 1000, process.kill)
        patience.start()
        try:
            with suppress(OSError):
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                answer = _first_answer(process.stdout)
        finally:
            patience.cancel()
        if answer is None:
            process.kill()
            process.wait()
            log.seek(0)
            raise ConfigError(
                "Java ended, or was silent for too long, before it served files: "
                + log.read().decode("utf-8", "replace")[-_OUTPUT_CHARS:],
                next_step="check that the class path has the jars of this Spark",
            )
        if "error" in answer:
            raise error_of(answer["error"]).with_context(object_name=self.url)
        return answer

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            try:
                peer.settimeout(TIMEOUT_MS / 1000)
                self._greet(peer)
            except (OSError, CairnError):
                peer.close()
            else:
                self.connections.add(peer)

    def _greet(self, peer: socket.socket) -> None:
        hello = _receive_header(peer)
        if hello.kind != frames.HELLO or hello.payload_bytes != len(self._token):
            raise ProtocolError("a connection does not begin with the token")
        if not hmac.compare_digest(_receive(peer, hello.payload_bytes), self._token):
            raise ProtocolError("a connection has another token")
        peer.sendall(frames.encode_header(Header(frames.HELLO | frames.REPLY, 0, 0, 0, 0, 0, 0)))
        if _receive_header(peer).kind != frames.SERVE_FILES:
            raise ProtocolError("a connection does not serve files")


@contextmanager
def _socket_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"the command cannot create a socket in {tempfile.gettempdir()}: {error}",
            next_step="set TMPDIR to a folder that can be written, with a path below 60 bytes",
        ) from error


def _first_answer(output: IO[str]) -> Json | None:
    """Return the answer of the JVM; ``None``: it ended without one.

    The JVM itself, or an agent in it, may print lines before.
    """
    for line in output:
        answer = answer_in(line)
        if answer is not None:
            return answer
    return None


def _receive_header(peer: socket.socket) -> Header:
    return frames.decode_header(_receive(peer, frames.HEADER_BYTES))


def _receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data
