"""Translation of rocksdict's errors.

Layer: rocks. rocksdict raises ``Exception`` with RocksDB's status text; the text is translated.
"""

from __future__ import annotations

from rocksdict import DbClosedError

from cairn.errors import (
    DISK_FULL_ERRNOS,
    CairnError,
    ClosedError,
    CorruptError,
    DiskFullError,
    InternalError,
    LocalDiskError,
    open_files_error,
)

_NO_SPACE = ("No space left on device", "File too large", "Disk quota exceeded", "NoSpace")


def translate(failure: BaseException, directory: str) -> CairnError:  # noqa: PLR0911 - a table
    """Return ``failure`` as an error of Cairn's tree.

    Args:
        failure: from rocksdict or the file system; a CairnError is returned unchanged.
        directory: the database's directory, for the error.
    """
    if isinstance(failure, CairnError):
        return failure
    if isinstance(failure, DbClosedError):
        return ClosedError("the local database is closed", object_name=directory)
    open_files = open_files_error(failure)
    if open_files is not None:
        return open_files.with_context(object_name=directory)
    text = str(failure)
    if any(mark in text for mark in _NO_SPACE) or (
        isinstance(failure, OSError) and failure.errno in DISK_FULL_ERRNOS
    ):
        return DiskFullError(
            f"the local disk is full: {text}",
            object_name=directory,
            next_step="free space under cairn.localDir or set it to a larger disk",
        )
    if text.startswith("Corruption"):
        return CorruptError(
            f"the local database is corrupt: {text}",
            object_name=directory,
            next_step="load the version again; the worker then starts from the object store",
        )
    if text.startswith("IO error") or isinstance(failure, OSError):
        return LocalDiskError(
            f"the local disk failed: {text}",
            object_name=directory,
            next_step="check the disk under cairn.localDir",
        )
    return InternalError(f"RocksDB refused: {text}", object_name=directory)


class Translation:
    """A reusable context manager that translates the exceptions of its block."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, failure: BaseException | None, _traceback: object) -> None:
        if isinstance(failure, Exception):
            raise translate(failure, self._directory) from failure
