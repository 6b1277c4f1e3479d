"""The tree of all errors that Cairn raises on purpose.

Layer: errors (imports nothing of Cairn).

A caller branches on ``kind``, which says what to do, and never on the message:

    kind        what the caller does
    retry       repeat the call; if it fails again, let Spark retry the task
    conflict    another writer was first: read the stored object and decide
    corrupt     stored data cannot be used: name the object and stop; never continue with less data
    invalid     the set-up is wrong: name the setting and the correction
    bug         Cairn broke one of its own rules: report it

    CairnError
    +-- RetryableError                    retry
    |   +-- UnavailableError              CAIRN_STORAGE_UNAVAILABLE
    |   +-- CredentialsExpiredError       CAIRN_CREDENTIALS_EXPIRED
    |   +-- DiskFullError                 CAIRN_DISK_FULL
    |   +-- LocalDiskError                CAIRN_LOCAL_DISK
    |   +-- OpenFilesError                CAIRN_OPEN_FILES
    |   +-- BusyError                     CAIRN_BUSY
    |   +-- LineageTooLongError           CAIRN_LINEAGE_TOO_LONG
    |   +-- CancelledError                CAIRN_CANCELLED
    |   +-- UnknownInstanceError          CAIRN_UNKNOWN_INSTANCE
    |   +-- ClosedError                   CAIRN_CLOSED
    +-- ConflictError                     conflict
    |   +-- AlreadyExistsError            CAIRN_OBJECT_EXISTS
    |   +-- PreconditionFailedError       CAIRN_PRECONDITION_FAILED
    |   +-- FencedError                   CAIRN_FENCED
    |   +-- InUseError                    CAIRN_IN_USE
    +-- DataError                         corrupt
    |   +-- CorruptError                  CAIRN_CORRUPT
    |   +-- MissingError                  CAIRN_MISSING
    |   +-- FormatVersionError            CAIRN_FORMAT_VERSION
    |   +-- ForeignObjectError            CAIRN_FOREIGN_OBJECT
    |   +-- UnsupportedStateError         CAIRN_UNSUPPORTED_STATE
    +-- InvalidError                      invalid
    |   +-- ConfigError                   CAIRN_CONFIG
    |   +-- PackageMissingError           CAIRN_PYTHON
    |   +-- NotThereError                 CAIRN_NOT_THERE
    |   +-- AccessError                   CAIRN_ACCESS_DENIED
    |   +-- NoSuchBucketError             CAIRN_NO_SUCH_BUCKET
    |   +-- SchemeError                   CAIRN_SCHEME
    |   +-- ConditionalPutUnsupportedError  CAIRN_NO_CONDITIONAL_PUT
    |   +-- FileSystemUnsupportedError    CAIRN_FILE_SYSTEM
    |   +-- SparkVersionError             CAIRN_SPARK_VERSION
    |   +-- ReleaseError                  CAIRN_RELEASE
    |   +-- BatchTooLargeError            CAIRN_BATCH_TOO_LARGE
    |   +-- RowTooLargeError              CAIRN_ROW_TOO_LARGE
    |   +-- RepartitionError              CAIRN_REPARTITION
    |   +-- ArrowStateError               CAIRN_ARROW_STATE
    +-- BugError                          bug
        +-- ProtocolError                 CAIRN_PROTOCOL
        +-- FramesMissingError            CAIRN_FRAMES_MISSING
        +-- InternalError                 CAIRN_INTERNAL

Messages appear in logs and in Spark's task failures: they never contain a secret.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["retry", "conflict", "corrupt", "invalid", "bug"]

DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The numbers of an OSError that mean ``DiskFullError``."""

_OPEN_FILES_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE})
# RocksDB and Arrow give the system's text alone; that of ENFILE begins with that of EMFILE.
_OPEN_FILES_TEXT: Final = os.strerror(errno.EMFILE)
_OPEN_FILES_OF_MACHINE: Final = os.strerror(errno.ENFILE)
_MAX_CAUSES: Final = 8
_COUNTED_DESCRIPTORS: Final = 65_536


class CairnError(Exception):
    """A failure with a kind, a code, and the place where it happened.

    ``str(error)`` is ``[CODE] message (store=.., version=.., object=..). Next: ..`` with the
    parts that are known.

    Args:
        message: one sentence without its full stop; it contains no secret.
        store: the store, as ``operator/partition/name``.
        version: Spark's state version.
        object_name: the object's key or URL.
        next_step: what a person can do about it, as an imperative without its full stop.
    """

    kind: ClassVar[Kind] = "bug"
    code: ClassVar[str] = "CAIRN_INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        store: str | None = None,
        version: int | None = None,
        object_name: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.store = store
        self.version = version
        self.object_name = object_name
        self.next_step = next_step

    def __str__(self) -> str:
        places = {"store": self.store, "version": self.version, "object": self.object_name}
        where = ", ".join(f"{name}={value}" for name, value in places.items() if value is not None)
        text = f"[{self.code}] {self.message.rstrip('.')}"
        if where:
            text += f" ({where})"
        if self.next_step:
            text += f". Next: {self.next_step.rstrip('.')}"
        return text

    def to_dict(self) -> dict[str, str | int | None]:
        """Return the error as data, the form in which the worker sends it to the JVM.

        The keys are ``kind, code, message, store, version, object, next``.
        """
        return {
            "kind": self.kind,
            "code": self.code,
            "message": self.message,
            "store": self.store,
            "version": self.version,
            "object": self.object_name,
            "next": self.next_step,
        }

    def with_context(
        self,
        *,
        store: str | None = None,
        version: int | None = None,
        object_name: str | None = None,
        next_step: str | None = None,
    ) -> Self:
        """Set the fields that are still unknown, in place, and return the error for ``raise``.

        Fields that are set stay: the code that raised the error was closer to the cause.
        """
        self.store = store if self.store is None else self.store
        self.version = version if self.version is None else self.version
        self.object_name = object_name if self.object_name is None else self.object_name
        self.next_step = next_step if self.next_step is None else self.next_step
        return self


class RetryableError(CairnError):
    """The same call may succeed later."""

    kind = "retry"
    code = "CAIRN_STORAGE_UNAVAILABLE"


class UnavailableError(RetryableError):
    """No answer from the storage, or a temporary refusal; the change may have happened."""

    code = "CAIRN_STORAGE_UNAVAILABLE"


class CredentialsExpiredError(RetryableError):
    """The session token has expired; the same call succeeds with new credentials."""

    code = "CAIRN_CREDENTIALS_EXPIRED"


class DiskFullError(RetryableError):
    """The local disk is full; no partial file was left under a final name."""

    code = "CAIRN_DISK_FULL"


class LocalDiskError(RetryableError):
    """The local disk failed."""

    code = "CAIRN_LOCAL_DISK"


class OpenFilesError(RetryableError):
    """This process, or the machine, may open no more files or sockets."""

    code = "CAIRN_OPEN_FILES"


class BusyError(RetryableError):
    """A bound was reached (queue, memory, time); nothing was done."""

    code = "CAIRN_BUSY"


class LineageTooLongError(RetryableError):
    """A commit needs a snapshot first, which fails or takes long; nothing was committed."""

    code = "CAIRN_LINEAGE_TOO_LONG"


class CancelledError(RetryableError):
    """The caller gave the call up; what it has downloaded stays for the next one."""

    code = "CAIRN_CANCELLED"


class UnknownInstanceError(RetryableError):
    """This worker does not have the instance, or has no version of it loaded."""

    code = "CAIRN_UNKNOWN_INSTANCE"


class ClosedError(RetryableError):
    """A session, store or worker was used after its end; the next attempt has others."""

    code = "CAIRN_CLOSED"


class ConflictError(CairnError):
    """Another writer was first; its object is the valid one."""

    kind = "conflict"
    code = "CAIRN_OBJECT_EXISTS"


class AlreadyExistsError(ConflictError):
    """The object exists, and this call did not write it."""

    code = "CAIRN_OBJECT_EXISTS"


class PreconditionFailedError(ConflictError):
    """The object is not the one that was read before: it was changed or deleted."""

    code = "CAIRN_PRECONDITION_FAILED"


class FencedError(ConflictError):
    """A newer attempt has committed this version; this attempt must stop."""

    code = "CAIRN_FENCED"


class InUseError(ConflictError):
    """A driver uses the checkpoint, or a command that changes it."""

    code = "CAIRN_IN_USE"


class DataError(CairnError):
    """Stored data cannot be used."""

    kind = "corrupt"
    code = "CAIRN_CORRUPT"


class CorruptError(DataError):
    """Bytes contradict their checksum, length or grammar."""

    code = "CAIRN_CORRUPT"


class MissingError(DataError):
    """An object that another object names does not exist."""

    code = "CAIRN_MISSING"


class FormatVersionError(DataError):
    """The object has a format that this release does not know."""

    code = "CAIRN_FORMAT_VERSION"


class ForeignObjectError(DataError):
    """An object has one of Cairn's names, but Cairn did not write it."""

    code = "CAIRN_FOREIGN_OBJECT"


class UnsupportedStateError(DataError):
    """The state is whole, but it is in a form that the reader does not read."""

    code = "CAIRN_UNSUPPORTED_STATE"


class InvalidError(CairnError):
    """The set-up is wrong; a retry does not help."""

    kind = "invalid"
    code = "CAIRN_CONFIG"


class ConfigError(InvalidError):
    """A setting is unknown, malformed, or contradicts another."""

    code = "CAIRN_CONFIG"


class PackageMissingError(InvalidError):
    """This Python lacks a package that the engine needs."""

    code = "CAIRN_PYTHON"


class NotThereError(InvalidError):
    """What a reader asks for does not exist: a checkpoint, a batch, an operator, a store, a key."""

    code = "CAIRN_NOT_THERE"


class AccessError(InvalidError):
    """The storage denies these credentials, or this user, access to the object."""

    code = "CAIRN_ACCESS_DENIED"


class NoSuchBucketError(InvalidError):
    """The bucket of the checkpoint location does not exist."""

    code = "CAIRN_NO_SUCH_BUCKET"


class SchemeError(InvalidError):
    """Cairn has no storage for the scheme of the checkpoint location."""

    code = "CAIRN_SCHEME"


class ConditionalPutUnsupportedError(InvalidError):
    """The storage ignores the condition of a PUT, so two attempts could overwrite each other."""

    code = "CAIRN_NO_CONDITIONAL_PUT"


class FileSystemUnsupportedError(InvalidError):
    """The file system lacks a call that durable files need."""

    code = "CAIRN_FILE_SYSTEM"


class SparkVersionError(InvalidError):
    """This release has no jar for the Spark that is to use it."""

    code = "CAIRN_SPARK_VERSION"


class ReleaseError(InvalidError):
    """The shim's jar and this package are of different releases."""

    code = "CAIRN_RELEASE"


class BatchTooLargeError(InvalidError):
    """One batch writes more to one partition than a commit can hold."""

    code = "CAIRN_BATCH_TOO_LARGE"


class RowTooLargeError(InvalidError):
    """One row, or the list of one key, is larger than a reply can hold."""

    code = "CAIRN_ROW_TOO_LARGE"


class RepartitionError(InvalidError):
    """A checkpoint has no repartition that can be taken back."""

    code = "CAIRN_REPARTITION"


class ArrowStateError(InvalidError):
    """A function of ``apply_in_arrow_with_state`` returned what its contract does not allow."""

    code = "CAIRN_ARROW_STATE"


class BugError(CairnError):
    """Cairn broke one of its own rules."""

    kind = "bug"
    code = "CAIRN_INTERNAL"


class ProtocolError(BugError):
    """A message between shim and engine does not follow the protocol's specification."""

    code = "CAIRN_PROTOCOL"


class FramesMissingError(BugError):
    """A commit counted frames or rows that have not arrived."""

    code = "CAIRN_FRAMES_MISSING"


class InternalError(BugError):
    """An invariant does not hold; the message says which."""

    code = "CAIRN_INTERNAL"


def all_codes(of: type[CairnError] = CairnError) -> set[str]:
    """Return every code that the engine can send, for the tests that compare it with documents."""
    return {of.code}.union(*(all_codes(below) for below in of.__subclasses__()))


_OF_STORAGE: Final[tuple[type[CairnError], ...]] = (
    UnavailableError,
    CredentialsExpiredError,
    DiskFullError,
    OpenFilesError,
    AlreadyExistsError,
    CorruptError,
    MissingError,
    ForeignObjectError,
    AccessError,
    ConfigError,
    SchemeError,
    ProtocolError,
)


_MAX_MESSAGE_CHARS = 4_000


def error_of(fields: Mapping[str, object]) -> CairnError:
    """Return an error of the shim's storage, which has the form of ``CairnError.to_dict``.

    An error with a code that the shim's storage does not have is an ``InternalError``.
    """
    found = {known.code: known for known in _OF_STORAGE}.get(str(fields.get("code")))
    message, place, step = (fields.get(name) for name in ("message", "object", "next"))
    return (found or InternalError)(
        str(message)[:_MAX_MESSAGE_CHARS],
        object_name=None if place is None else str(place),
        next_step=None if step is None else str(step),
    )


def open_files_error(failure: BaseException) -> OpenFilesError | None:
    """Return the error if ``failure``, or what caused it, is a lack of file descriptors."""
    cause: BaseException | None = failure
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return None
        if isinstance(cause, OSError) and cause.errno is not None:
            if cause.errno in _OPEN_FILES_ERRNOS:
                break
        elif not isinstance(cause, CairnError) and _OPEN_FILES_TEXT in str(cause):
            break
        cause = cause.__cause__ or cause.__context__
    else:
        return None
    is_of_machine = _OPEN_FILES_OF_MACHINE in str(cause)
    text = _OPEN_FILES_OF_MACHINE if is_of_machine else _OPEN_FILES_TEXT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    databases, sockets, files = _descriptors(min(soft, _COUNTED_DESCRIPTORS))
    return OpenFilesError(
        f"this process can open no more files or sockets: {text}; its limit is {soft} "
        f"(hard limit {hard}), and it has {databases} databases of stores, which need 6 and one "
        f"per SST file, {sockets} sockets and pipes, and {files} files",
        next_step="raise the limit of open files (ulimit -n; LimitNOFILE of a service; nofile of a "
        "container) where executors start, or use fewer partitions, more executors or more "
        "workers (spark.sql.streaming.stateStore.cairn.workers): each worker has its own limit",
    )


def _descriptors(limit: int) -> tuple[int, int, int]:
    """Return how many databases, sockets and pipes, and files are open, without opening one."""
    databases = sockets = files = 0
    for number in range(limit):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - imports no module
        except OSError:
            continue
        if target.startswith(("socket:", "pipe:")):
            sockets += 1
        else:
            files += 1
            databases += target.endswith("/LOCK")  # RocksDB's, one per database
    return databases, sockets, files


def unexpected(failure: Exception) -> CairnError:
    """Return ``failure`` as an error of the tree; an error of the tree is returned unchanged.

    The text of any other exception is left out: it may contain a key or a value.
    """
    if isinstance(failure, CairnError):
        return failure
    open_files = open_files_error(failure)
    if open_files is not None:
        return open_files
    kind = type(failure).__name__
    if isinstance(failure, MemoryError):
        return BusyError(
            f"the worker ran out of memory ({kind})",
            next_step="let Spark retry the task; if it happens again, raise "
            "spark.sql.streaming.stateStore.cairn.workerMemory",
        )
    if isinstance(failure, ModuleNotFoundError):
        return PackageMissingError(
            f"Python '{sys.executable}' has no package {failure.name}",
            next_step="install cairn-state into that Python on every executor",
        )
    return InternalError(f"the engine failed ({kind})", next_step="report it with the log")
