"""CheckpointFiles: Cairn's checkpoint file manager in the shared driver JVM, called from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from py4j.protocol import Py4JJavaError

from harness.spark import CAIRN_FILES, driver_jvm, s3a_conf


class CheckpointFiles:
    """A manager of one folder, created as Spark creates it.

    Args:
        folder: URL of the folder.
        settings: of the S3 server; empty for local files.
        conf: further Hadoop settings.
        manager: the manager's class.
    """

    def __init__(
        self,
        folder: str,
        settings: Mapping[str, str],
        conf: Mapping[str, str] | None = None,
        manager: str = CAIRN_FILES,
    ) -> None:
        self.folder = folder
        self._jvm = driver_jvm()
        hadoop = self._jvm.org.apache.hadoop.conf.Configuration()
        s3a = s3a_conf(settings) if settings else {}
        for name, value in {**s3a, **(conf or {})}.items():
            hadoop.set(name, value)
        hadoop.set("spark.sql.streaming.checkpointFileManagerClass", manager)
        package = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        self.manager: Any = package.CheckpointFileManager.create(self.path(""), hadoop)

    def open_log(self) -> Self:
        """Send the requests with which Spark opens a log; return this manager."""
        if self.exists():
            self.names()
        else:
            self.manager.mkdirs(self.path(""))
        return self

    def path(self, name: str) -> Any:  # noqa: ANN401 - Py4J has no types
        """Return Hadoop's path of a file."""
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}" if name else self.folder)

    def begin(self, name: str, content: bytes, *, replace: bool = False) -> Any:  # noqa: ANN401
        """Open a file, write it, and return its stream."""
        stream = self.manager.createAtomic(self.path(name), replace)
        stream.write(content)
        return stream

    def create(self, name: str, content: bytes, *, replace: bool = False) -> None:
        """Write a file."""
        self.begin(name, content, replace=replace).close()

    def read(self, name: str) -> bytes:
        """Read a file."""
        stream = self.manager.open(self.path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def exists(self, name: str = "") -> bool:
        """Ask whether a file, or the folder, exists."""
        return bool(self.manager.exists(self.path(name)))

    def delete(self, name: str) -> None:
        """Delete a file."""
        self.manager.delete(self.path(name))

    def names(self) -> list[str]:
        """List the folder."""
        found = self.manager.list(self.path(""))
        return sorted(str(status.getPath().getName()) for status in found)


def causes(failure: Py4JJavaError) -> list[str]:
    """Return the text of an exception and of its causes."""
    error, texts = failure.java_exception, []
    while error is not None:
        texts.append(str(error.toString()))
        error = error.getCause()
    return texts
