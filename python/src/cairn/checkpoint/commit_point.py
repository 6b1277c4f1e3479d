"""Commit: the PUT that makes a version durable.

Layer: checkpoint.  Spec: docs/semantics.md#attempts-retried-speculative-and-zombie-tasks,
docs/checkpoint-format.md#names-in-the-two-checkpoint-formats-of-spark.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cairn.checkpoint.faults import FaultHook, FaultPoint, no_fault
from cairn.checkpoint.spark_logs import newest_batch
from cairn.errors import (
    AlreadyExistsError,
    BusyError,
    CairnError,
    CorruptError,
    FencedError,
    InternalError,
    MissingError,
    PreconditionFailedError,
)
from cairn.format import changelog
from cairn.format.names import changelog_name, plain_changelog_name
from cairn.format.spark_log import COMMITS_PREFIX

if TYPE_CHECKING:
    from cairn.format.header import ChangelogHeader
    from cairn.ids import Attempt
    from cairn.storage.base import ObjectStore

_ROUNDS_MAX = 8
"""Each lost round is the success of another attempt; Spark runs two or three at the same time."""


def commit_changelog(
    objects: ObjectStore,
    header: ChangelogHeader,
    data: bytes,
    *,
    checkpoint_format: int,
    fault: FaultHook = no_fault,
) -> None:
    """Make ``header.ref`` durable; after that every process can load it.

    Atomic: after an error the version is either missing or whole; after ``UnavailableError`` it may
    be either. Idempotent: a repetition with the same bytes is the same commit. It costs one
    request, unless another attempt has committed the version in format 1.

    Args:
        objects: at the store's root.
        header: the header in ``data``.
        data: ``format.changelog.encode(header, ...)``.
        checkpoint_format: Spark's, 1 or 2.
        fault: called at each fault point.

    Raises:
        FencedError: a newer attempt has committed this version, or an older one whose batch is
            committed (format 1); nothing was changed.
        ForeignObjectError: Cairn did not write the present object (format 1); nothing was changed.
        CorruptError: the present object cannot be read (format 1); nothing was changed.
        ConditionalPutUnsupportedError: the storage has no conditional PUT (format 1).
        BusyError: other attempts replaced the object again and again.
    """
    try:
        fault(FaultPoint.COMMIT_BEFORE_PUT)
        if checkpoint_format == 2:  # noqa: PLR2004 -- Spark's number
            objects.put(changelog_name(header.ref), data)
        elif checkpoint_format == 1:
            _commit_plain(objects, header, data, fault)
        else:
            raise InternalError(f"checkpoint format {checkpoint_format} is unknown")
        fault(FaultPoint.COMMIT_AFTER_PUT)
    except CairnError as error:
        error.with_context(store=str(header.store), version=header.ref.version)
        raise


def _commit_plain(
    objects: ObjectStore, header: ChangelogHeader, data: bytes, fault: FaultHook
) -> None:
    """Commit under the name that all attempts share."""
    objects.probe_conditional_put()
    objects.probe_replacement()
    name = plain_changelog_name(header.ref.version)
    if not objects.replaces_at_once:
        # A replacement that was cut off has left the name free; its batch may be committed.
        _refuse_if_committed(objects, name, header, None)
    for _ in range(_ROUNDS_MAX):
        try:
            objects.put_if_absent(name, data)
        except AlreadyExistsError:
            if not _replace_older(objects, name, header, data, fault):
                continue
        return
    raise BusyError(
        f"other attempts replaced the changelog {_ROUNDS_MAX} times during this commit",
        object_name=objects.object_url(name),
        next_step="let Spark retry the task",
    )


def _replace_older(
    objects: ObjectStore, name: str, header: ChangelogHeader, data: bytes, fault: FaultHook
) -> bool:
    """Replace the changelog of an older attempt; return ``False`` if another one changed it."""
    try:
        present = objects.get(name, max_bytes=changelog.MAX_OBJECT_BYTES)
    except MissingError:
        return False
    try:
        other = changelog.decode(
            present.data,
            object_name=objects.object_url(name),
            store=header.store,
            version=header.ref.version,
        ).header
    except CorruptError as error:
        error.next_step = (
            f"if Spark's log of commits has no batch {header.ref.version - 1}, nobody needs this "
            "object: move it away. Otherwise restore it from the bucket's versions"
        )
        raise
    if other.ref == header.ref:
        return True
    if other.attempt.is_newer_than(header.attempt):
        raise FencedError(
            f"attempt {other.attempt.task_attempt} of run {other.attempt.run_id} has committed "
            f"this version; this one is {header.attempt.task_attempt} of {header.attempt.run_id}",
            object_name=objects.object_url(name),
            next_step=_next_step_when_fenced(header.attempt, other.attempt),
        )
    _refuse_if_committed(objects, name, header, other)
    fault(FaultPoint.COMMIT_BEFORE_KEEP)
    # Copy the object before it is replaced: lineages may name the other id. An earlier round or
    # another attempt may have copied it already.
    with suppress(AlreadyExistsError):
        objects.put_if_absent(changelog_name(other.ref), present.data)
    fault(FaultPoint.COMMIT_BEFORE_REPLACE)
    try:
        objects.put_if_match(name, data, present.etag)
    except PreconditionFailedError:
        return False
    return True


def _refuse_if_committed(
    objects: ObjectStore, name: str, header: ChangelogHeader, other: ChangelogHeader | None
) -> None:
    """Refuse to replace a version whose batch is committed: this attempt is a late twin.

    Args:
        objects: at the store's root.
        name: of the object that attempts share.
        header: of this attempt.
        other: of the object of that name; ``None``: it is not known.

    Raises:
        FencedError: Spark's log of commits has the batch, or a later one.
    """
    batch = header.ref.version - 1
    newest = newest_batch(objects, header.store, COMMITS_PREFIX)
    if newest is not None and newest >= batch:
        by = "another attempt"
        if other is not None:
            by = f"attempt {other.attempt.task_attempt} of run {other.attempt.run_id}"
        raise FencedError(
            f"batch {batch} is committed with this version, by {by}; this one is "
            f"{header.attempt.task_attempt} of {header.attempt.run_id}",
            object_name=objects.object_url(name),
            next_step="nothing if the query continues; else look for a second query on this "
            "checkpoint",
        )


def _next_step_when_fenced(own: Attempt, other: Attempt) -> str:
    step = "nothing if the query continues; else look for a second query on this checkpoint"
    ahead_ms = other.app_start_ms - own.app_start_ms
    if ahead_ms > 0:
        step += (
            "; if there is none, this driver's clock is behind that of the previous driver, whose "
            f"application started {ahead_ms} ms after this one by its clock: correct the clock and "
            "start the query again"
        )
    return step
