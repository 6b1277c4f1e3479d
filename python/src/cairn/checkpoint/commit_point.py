"""Commit: the one PUT after which a version is durable.

Layer: checkpoint.  Spec: docs/semantics.md#attempts-retried-speculative-and-zombie-tasks,
docs/checkpoint-format.md#names-in-the-two-checkpoint-formats-of-spark.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cairn.checkpoint import faults
from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.errors import (
    AlreadyExistsError,
    BusyError,
    CairnError,
    FencedError,
    InternalError,
    MissingError,
    PreconditionFailedError,
)
from cairn.format import changelog
from cairn.format.names import changelog_name, plain_changelog_name

if TYPE_CHECKING:
    from cairn.format.header import ChangelogHeader
    from cairn.ids import Attempt, VersionRef
    from cairn.storage.base import ObjectStore

CheckpointFormat = Literal[1, 2]

_ROUNDS_MAX = 8
"""Each round that fails is another attempt's success; Spark runs two or three at once."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit did.

    Attributes:
        object_name: where the changelog stands.
        replaced: the older attempt whose object was kept under its own name, if there was one.
    """

    object_name: str
    replaced: VersionRef | None = None


def commit_changelog(
    objects: ObjectStore,
    header: ChangelogHeader,
    data: bytes,
    *,
    checkpoint_format: int,
    fault: FaultHook = no_fault,
) -> CommitResult:
    """Make ``header.ref`` durable; when this returns, everyone can load it.

    Atomic: after an error the version is either not there or whole; ``UnavailableError`` leaves
    open which. Idempotent: the same bytes again are the same commit. One request, unless in
    format 1 another attempt was there first.

    Args:
        objects: at the store's root.
        header: of ``data``.
        data: ``format.changelog.encode(header, ...)``.
        checkpoint_format: Spark's, 1 or 2.
        fault: called at each named point.

    Raises:
        FencedError: a newer attempt has committed this version (format 1); nothing was changed.
        ForeignObjectError: what stands there is not ours (format 1); nothing was changed.
        CorruptError: what stands there cannot be read (format 1); nothing was changed.
        ConditionalPutUnsupportedError: the storage cannot keep attempts apart (format 1).
        BusyError: attempts kept overtaking each other.
    """
    try:
        fault(faults.COMMIT_BEFORE_PUT)
        if checkpoint_format == 2:  # noqa: PLR2004 -- Spark's name for it
            name = changelog_name(header.ref)
            objects.put(name, data)
            result = CommitResult(name)
        elif checkpoint_format == 1:
            result = _commit_plain(objects, header, data, fault)
        else:
            raise InternalError(f"checkpoint format {checkpoint_format} is unknown")
        fault(faults.COMMIT_AFTER_PUT)
    except CairnError as error:
        raise error.with_context(
            store=str(header.store), version=header.ref.version
        ) from error.__cause__
    return result


def _commit_plain(
    objects: ObjectStore, header: ChangelogHeader, data: bytes, fault: FaultHook
) -> CommitResult:
    """Commit under the name that all attempts share."""
    objects.probe_conditional_put()
    name = plain_changelog_name(header.ref.version)
    for _ in range(_ROUNDS_MAX):
        try:
            objects.put_if_absent(name, data)
        except AlreadyExistsError:
            result = _settle(objects, name, header, data, fault)
            if result is not None:
                return result
        else:
            return CommitResult(name)
    raise BusyError(
        f"other attempts replaced the changelog {_ROUNDS_MAX} times meanwhile",
        object_name=objects.object_url(name),
        next_step="let Spark retry the task",
    )


def _settle(
    objects: ObjectStore, name: str, header: ChangelogHeader, data: bytes, fault: FaultHook
) -> CommitResult | None:
    """Apply the conflict rule to what stands at ``name``; ``None``: it has changed, look again."""
    try:
        there = objects.get(name)
    except MissingError:
        return None
    other = changelog.decode(
        there.data,
        object_name=objects.object_url(name),
        store=header.store,
        version=header.ref.version,
    ).header
    if other.ref == header.ref:
        return CommitResult(name)
    if other.attempt.is_newer_than(header.attempt):
        raise FencedError(
            f"attempt {other.attempt.task_attempt} of run {other.attempt.run_id} has committed "
            f"this version; ours is {header.attempt.task_attempt} of {header.attempt.run_id}",
            object_name=objects.object_url(name),
            next_step=_next_step_when_fenced(header.attempt, other.attempt),
        )
    fault(faults.COMMIT_BEFORE_KEEP)
    # First the copy, then the replacement: whoever's lineage names the other id finds it. An
    # earlier round, or another attempt, may have kept it already.
    with suppress(AlreadyExistsError):
        objects.put_if_absent(changelog_name(other.ref), there.data)
    fault(faults.COMMIT_BEFORE_REPLACE)
    try:
        objects.put_if_match(name, data, there.etag)
    except PreconditionFailedError:
        return None
    return CommitResult(name, replaced=other.ref)


def _next_step_when_fenced(ours: Attempt, other: Attempt) -> str:
    step = "nothing if the query goes on; else look for a second query on this checkpoint"
    ahead_ms = other.app_start_ms - ours.app_start_ms
    if ahead_ms > 0:
        step += (
            f"; if there is none, this driver's clock is behind that of the one before, whose "
            f"application counts as started {ahead_ms} ms after ours: set the clock right and "
            "start the query again"
        )
    return step
