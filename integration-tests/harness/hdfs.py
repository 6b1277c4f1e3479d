"""A real HDFS on loopback: one NameNode and one DataNode in a JVM, from Maven's artifacts.

The jars are those of pyspark and of `make hdfs-jars`. `hadoop_server` is a JVM that reaches it from
Python without Spark.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from cairn.jar import jar_path
from cairn.spark_minor import spark_jars
from cairn.storage.hadoop.server import FileServer
from harness.spark import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
HDFS_JARS = REPOSITORY / ".build" / "hdfs-jars"
ABFS_JARS = REPOSITORY / ".build" / "abfs-jars"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0


class MiniHdfs:
    """HDFS between ``__enter__`` and ``__exit__``.

    Args:
        folder: an existing folder for data and log, which is kept; default: a temporary one.

    Attributes:
        url: of its root, without a slash at the end.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.url = ""
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            RuntimeError: the jars are missing, or it did not start; the message has its log.
        """
        if not list(HDFS_JARS.glob("*.jar")):
            raise RuntimeError("there is no HDFS to start: run `make hdfs-jars`")
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="cairn-hdfs-")
            self._folder = Path(self._temporary.name)
        try:
            self._start(self._folder)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and remove a temporary folder."""
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    @property
    def pid(self) -> int:
        """The JVM's process id. REQUIRES: it runs."""
        assert self._process is not None
        return self._process.pid

    def _start(self, folder: Path) -> None:
        jars = [str(jar) for jar in (*HDFS_JARS.glob("*.jar"), *spark_jars())]
        log = folder / "hdfs.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    "java",
                    *SHORT_LIVED,
                    "-Xmx256m",
                    f"-Djava.io.tmpdir={folder}",
                    *("-cp", ":".join(jars)),
                    str(HERE / "java" / "MiniHdfs.java"),
                    str(folder),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        # Ends a start that hangs; the read below then ends too.
        guard = threading.Timer(START_TIMEOUT_S, self._process.kill)
        guard.start()
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            while line and not line.startswith("port "):
                line = self._process.stdout.readline()
        finally:
            guard.cancel()
        if not line:
            raise RuntimeError(f"HDFS did not start:\n{log.read_text(errors='replace')[-4000:]}")
        self.url = f"hdfs://127.0.0.1:{int(line.split()[1])}"


@pytest.fixture(scope="session")
def hdfs() -> Iterator[MiniHdfs]:
    """The HDFS of this test run."""
    with MiniHdfs() as started:
        yield started


@pytest.fixture
def hdfs_url(hdfs: MiniHdfs) -> str:
    """Its URL."""
    return hdfs.url


@pytest.fixture(scope="session")
def hdfs_files(hdfs: MiniHdfs) -> Iterator[FileServer]:
    """A JVM that serves that HDFS to this process."""
    with hadoop_server(hdfs.url) as server:
        yield server


@contextmanager
def hadoop_server(
    url: str, conf: Mapping[str, str] | None = None, more_jars: Path | None = None
) -> Iterator[FileServer]:
    """Run a JVM that serves the file system of ``url`` to this process."""
    jars = [jar_path(), *spark_jars(), *(more_jars.glob("*.jar") if more_jars else ())]
    with FileServer(url, [str(jar) for jar in jars], conf or {}) as server:
        yield server
