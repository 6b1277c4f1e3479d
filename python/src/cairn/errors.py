"""Every error that Cairn raises on purpose, in one tree.

Layer: errors (imports nothing of Cairn).

A caller branches on ``kind``, which says what to do, and never on the message:

    kind        what the caller does
    retry       the same call may succeed later: try again, then let Spark retry the task
    conflict    somebody else wrote first: read what stands there and decide
    corrupt     what is stored cannot be used: name it and stop; never go on with less
    invalid     the user's set-up is wrong: say which setting and what to write instead
    bug         Cairn broke its own rules: report it

    CairnError
    +-- RetryableError                    retry
    |   +-- UnavailableError              CAIRN_STORAGE_UNAVAILABLE
    |   +-- CredentialsExpiredError       CAIRN_CREDENTIALS_EXPIRED
    |   +-- DiskFullError                 CAIRN_DISK_FULL
    |   +-- BusyError                     CAIRN_BUSY
    +-- ConflictError                     conflict
    |   +-- AlreadyExistsError            CAIRN_OBJECT_EXISTS
    |   +-- PreconditionFailedError       CAIRN_PRECONDITION_FAILED
    |   +-- FencedError                   CAIRN_FENCED
    +-- DataError                         corrupt
    |   +-- CorruptError                  CAIRN_CORRUPT
    |   +-- MissingError                  CAIRN_MISSING
    |   +-- FormatVersionError            CAIRN_FORMAT_VERSION
    |   +-- ForeignObjectError            CAIRN_FOREIGN_OBJECT
    +-- InvalidError                      invalid
    |   +-- ConfigError                   CAIRN_CONFIG
    |   +-- AccessError                   CAIRN_ACCESS_DENIED
    |   +-- NoSuchBucketError             CAIRN_NO_SUCH_BUCKET
    |   +-- SchemeError                   CAIRN_SCHEME
    |   +-- ConditionalPutUnsupportedError  CAIRN_NO_CONDITIONAL_PUT
    |   +-- BatchTooLargeError            CAIRN_BATCH_TOO_LARGE
    +-- BugError                          bug
        +-- ProtocolError                 CAIRN_PROTOCOL
        +-- FramesMissingError            CAIRN_FRAMES_MISSING
        +-- ClosedError                   CAIRN_CLOSED
        +-- InternalError                 CAIRN_INTERNAL

Messages travel into logs and into Spark's task failures: they never carry a secret.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

Kind = Literal["retry", "conflict", "corrupt", "invalid", "bug"]


class CairnError(Exception):
    """A failure with a kind, a code, and where it happened.

    ``str(error)`` is ``[CODE] message (store=.., version=.., object=..). Next: ..`` with the
    parts that are known.

    Args:
        message: one sentence without its full stop; no secret in it.
        code: replaces the class's code; for a code that has no class of its own.
        store: the store it concerns, as ``operator/partition/name``.
        version: Spark's state version.
        object_name: the object's key or URL.
        next_step: what a person can do about it, as an imperative without its full stop.
    """

    kind: ClassVar[Kind] = "bug"
    code: str = "CAIRN_INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        store: str | None = None,
        version: int | None = None,
        object_name: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.store = store
        self.version = version
        self.object_name = object_name
        self.next_step = next_step

    def __str__(self) -> str:
        where = ", ".join(
            f"{name}={value}"
            for name, value in (
                ("store", self.store),
                ("version", self.version),
                ("object", self.object_name),
            )
            if value is not None
        )
        text = f"[{self.code}] {self.message.rstrip('.')}"
        if where:
            text += f" ({where})"
        if self.next_step:
            text += f". Next: {self.next_step.rstrip('.')}"
        return text

    def to_dict(self) -> dict[str, str | int | None]:
        """Return the error as data, the form in which it crosses to the JVM.

        The keys are ``kind, code, message, store, version, object, next``; ``message`` is the bare
        sentence, so that the other side can lay out the rest itself.
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
        """Fill in what is not known yet, in place, and return the error for ``raise``.

        What the raiser knew stays: it was closer to the cause.
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
    """No answer from the storage, or "not now"; what was asked may have happened."""

    code = "CAIRN_STORAGE_UNAVAILABLE"


class CredentialsExpiredError(RetryableError):
    """The session token is past its time; new credentials make the same call work."""

    code = "CAIRN_CREDENTIALS_EXPIRED"


class DiskFullError(RetryableError):
    """No room on the local disk; nothing half-written was left under a final name."""

    code = "CAIRN_DISK_FULL"


class BusyError(RetryableError):
    """A bound was reached (queue, memory, time); nothing was done."""

    code = "CAIRN_BUSY"


class ConflictError(CairnError):
    """Somebody else wrote first; what stands there decides."""

    kind = "conflict"
    code = "CAIRN_OBJECT_EXISTS"


class AlreadyExistsError(ConflictError):
    """The object exists, and it is not the one that this call wrote."""

    code = "CAIRN_OBJECT_EXISTS"


class PreconditionFailedError(ConflictError):
    """The object is not the one that was read before: changed, or gone."""

    code = "CAIRN_PRECONDITION_FAILED"


class FencedError(ConflictError):
    """A newer attempt has committed this version; this one must stop."""

    code = "CAIRN_FENCED"


class DataError(CairnError):
    """What is stored cannot be used."""

    kind = "corrupt"
    code = "CAIRN_CORRUPT"


class CorruptError(DataError):
    """Bytes contradict their checksum, length or grammar."""

    code = "CAIRN_CORRUPT"


class MissingError(DataError):
    """An object that something names is not there."""

    code = "CAIRN_MISSING"


class FormatVersionError(DataError):
    """The object is of a format that this release does not know."""

    code = "CAIRN_FORMAT_VERSION"


class ForeignObjectError(DataError):
    """The object where one of ours should be was not written by Cairn."""

    code = "CAIRN_FOREIGN_OBJECT"


class InvalidError(CairnError):
    """The user's set-up is wrong; trying again does not help."""

    kind = "invalid"
    code = "CAIRN_CONFIG"


class ConfigError(InvalidError):
    """A setting is unknown, malformed, or contradicts another."""

    code = "CAIRN_CONFIG"


class AccessError(InvalidError):
    """The storage refuses these credentials, or this user, for this object."""

    code = "CAIRN_ACCESS_DENIED"


class NoSuchBucketError(InvalidError):
    """The bucket of the checkpoint location does not exist."""

    code = "CAIRN_NO_SUCH_BUCKET"


class SchemeError(InvalidError):
    """The checkpoint location's scheme has no storage behind it."""

    code = "CAIRN_SCHEME"


class ConditionalPutUnsupportedError(InvalidError):
    """The storage ignores a put's condition, so two attempts could overwrite each other."""

    code = "CAIRN_NO_CONDITIONAL_PUT"


class BatchTooLargeError(InvalidError):
    """One batch writes more to one partition than a commit can hold."""

    code = "CAIRN_BATCH_TOO_LARGE"


class BugError(CairnError):
    """Cairn broke its own rules."""

    kind = "bug"
    code = "CAIRN_INTERNAL"


class ProtocolError(BugError):
    """A message of the shim or the engine is not what the channel's specification allows."""

    code = "CAIRN_PROTOCOL"


class FramesMissingError(BugError):
    """A commit counted frames or rows that have not arrived."""

    code = "CAIRN_FRAMES_MISSING"


class ClosedError(BugError):
    """The session, store or worker was used after it ended."""

    code = "CAIRN_CLOSED"


class InternalError(BugError):
    """An invariant does not hold; the message says which."""

    code = "CAIRN_INTERNAL"


def unexpected(failure: Exception) -> CairnError:
    """Return ``failure`` as an error of the tree, for whoever waits; one of ours as it is.

    Its own text is left out: it may hold a key or a value.
    """
    if isinstance(failure, CairnError):
        return failure
    kind = type(failure).__name__
    if isinstance(failure, MemoryError):
        return BusyError(
            f"the worker's memory did not suffice ({kind})",
            next_step="let Spark run the task again; if it happens twice, raise "
            "spark.sql.streaming.stateStore.cairn.workerMemory",
        )
    return InternalError(f"the engine failed ({kind})", next_step="report it with the log")
