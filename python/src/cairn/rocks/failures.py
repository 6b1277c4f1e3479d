"""rocksdict's errors, translated: the one table.

Layer: rocks. rocksdict raises bare ``Exception`` with RocksDB's status text, so the text decides.
"""

from __future__ import annotations

import errno

from rocksdict import DbClosedError

from cairn.errors import (
    CairnError,
    ClosedError,
    CorruptError,
    DiskFullError,
    InternalError,
    RetryableError,
)

_NO_SPACE = ("No space left on device", "File too large", "Disk quota exceeded", "NoSpace")
_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def translate(failure: BaseException, directory: str) -> CairnError:
    """Return the error of our tree that says what ``failure`` means to a caller.

    Args:
        failure: what rocksdict or the file system raised; one of ours comes back as it is.
        directory: the database's directory, named in the error.
    """
    if isinstance(failure, CairnError):
        return failure
    if isinstance(failure, DbClosedError):
        return ClosedError("the local database is closed", object_name=directory)
    text = str(failure)
    if any(mark in text for mark in _NO_SPACE) or (
        isinstance(failure, OSError) and failure.errno in _FULL_ERRNOS
    ):
        return DiskFullError(
            f"the local disk is full: {text}",
            object_name=directory,
            next_step="free space under cairn.localDir or point it at a larger disk",
        )
    if text.startswith("Corruption"):
        return CorruptError(
            f"the local database is corrupt: {text}",
            object_name=directory,
            next_step="load the version again; the worker then starts from the object store",
        )
    if text.startswith("IO error") or isinstance(failure, OSError):
        return RetryableError(
            f"the local disk failed: {text}",
            code="CAIRN_LOCAL_DISK",
            object_name=directory,
            next_step="look at the disk under cairn.localDir",
        )
    return InternalError(f"RocksDB refused: {text}", object_name=directory)
