"""Holding a checkpoint: no driver uses it while a command changes it.

Layer: offline.  Spec: docs/checkpoint-format.md#hold; ADR 44.

A batch begins with an entry of Spark's offset log, which only one driver can create. A hold is the
next entry: a driver that is running fails at its next batch, and one that starts refuses the entry
and shows its text. It stays if the command is killed; the next command takes it over.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.errors import (
    AlreadyExistsError,
    CairnError,
    DataError,
    InUseError,
    NotThereError,
    PreconditionFailedError,
)
from cairn.format import hold as hold_format
from cairn.format.hold import Hold
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX, batch_of
from cairn.reader.spark.logs import Batches, list_batches

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from cairn.clock import Clock, Entropy
    from cairn.storage.base import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
_ENTRY_BYTES_MAX = 64 << 20
QUIET_S = 60
"""A query that has written to its logs so lately seems to be running."""
_TOKEN_BYTES = 8
_of_this_process: set[str] = set()
"""Tokens of the holds that pieces of work of this process have: one that could not be marked as
left, because the disk was full, has none that will end it."""


def list_unheld(checkpoint: ObjectStore) -> tuple[Batches, InUseError | None]:
    """Return the batches of the logs, and the error of a hold that stands there.

    Costs two LISTs and a GET.

    Raises:
        NotThereError: there is no checkpoint of a query here.
        FormatVersionError: the hold is one of a newer release.
        InUseError: a command makes the checkpoint, or has not finished it.
    """
    found = list_batches(checkpoint)
    newest = found.planned[-1]
    held = _hold_at(checkpoint, newest)
    if held is None:
        return found, None
    name = checkpoint.object_url(f"{OFFSETS_PREFIX}{newest}")
    error = held[0].error().with_context(object_name=name)
    if held[0].is_new:
        raise error
    committed = tuple(batch for batch in found.committed if batch < newest)
    all_commits = tuple(batch for batch in found.all_commits if batch < newest)
    return Batches(found.planned[:-1], committed, all_commits), error


class Holding:
    """A hold that one piece of work has.

    Args:
        checkpoint: at the query's checkpoint location.
        command: the command, for people.
        clock: measures how long the logs have been quiet.
        entropy: makes the hold unique.
        is_new: see ``Hold``.

    Attributes:
        token: names this piece of work.
    """

    def __init__(
        self,
        checkpoint: ObjectStore,
        command: str,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        *,
        is_new: bool = False,
    ) -> None:
        self.token = entropy.token(_TOKEN_BYTES)
        self._checkpoint = checkpoint
        self._command = command
        self._clock = clock
        self._is_new = is_new
        self._key = ""

    def create(self, batch: int, left_etag: str | None) -> None:
        """Create the hold in the place of a batch, or take over the one with this etag there.

        Raises:
            InUseError: somebody has created the entry, or taken the hold over, just now.
            ConditionalPutUnsupportedError: the storage cannot keep drivers away.
            AccessError: one may not write or delete here.
        """
        objects = self._checkpoint
        objects.probe_conditional_put()
        # Who may not delete could not end the hold. There is no such object.
        objects.delete([f"{OFFSETS_PREFIX}probe-{self.token}"])
        self._key = f"{OFFSETS_PREFIX}{batch}"
        try:
            if left_etag is None:
                objects.put_if_absent(self._key, self._entry())
            else:
                # Of two commands that have found it one takes it.
                objects.put_if_match(self._key, self._entry(), left_etag)
        except (AlreadyExistsError, PreconditionFailedError):
            raise self._in_use(f"{self._key} was written just now") from None
        _of_this_process.add(self.token)

    def move(self, batch: int) -> int:
        """Move the hold that was taken over to the place of a later batch."""
        former = self._key
        self.create(batch, None)
        self._checkpoint.delete([former])
        return batch

    def end(self, *failure: object) -> None:
        """Let drivers use the checkpoint again.

        Args:
            failure: why the work ends, if it has failed.

        Raises:
            CairnError: the hold could not be removed: the next command does that. It is only
                logged if there is another error.
        """
        _of_this_process.discard(self.token)
        if not self._key:
            return
        try:
            self._checkpoint.delete([self._key])
        except CairnError as error:
            if not any(failure):
                raise
            _LOG.warning("the hold stays: %s", error)

    def become(self, batch: int, data: bytes) -> None:
        """Make the hold the plan of its batch, or find that it is planned so.

        Args:
            batch: whose plan it is: that of the hold, or one that is planned.
            data: of the entry.

        Raises:
            InUseError: there is another entry.
        """
        key = f"{OFFSETS_PREFIX}{batch}"
        found = self._checkpoint.get(key, max_bytes=_ENTRY_BYTES_MAX)
        if found.data == data:
            return
        held = hold_format.parse(found.data)
        if held is None or held.token != self.token:
            raise self._in_use(f"{key} was written meanwhile")
        try:
            self._checkpoint.put_if_match(key, data, found.etag)
        except PreconditionFailedError:
            raise self._in_use(f"{key} was written just now") from None
        self._key = ""

    def leave(self) -> None:
        """Let the hold stand, for the same command to take it over. Never raises."""
        _of_this_process.discard(self.token)
        if not self._key:
            return
        try:
            found = _hold_at(self._checkpoint, int(self._key.removeprefix(OFFSETS_PREFIX)))
            if found is not None and found[0].token == self.token:
                data = self._entry(is_left=True)
                self._checkpoint.put_if_match(self._key, data, found[1])
        except CairnError as error:
            _LOG.warning("the hold stays as it is: %s", error)

    def _entry(self, *, is_left: bool = False) -> bytes:
        pid = os.getpid()
        now_ms = int(self._clock.now().timestamp() * 1000)
        process = identity_of(pid)
        host = socket.gethostname()
        return hold_format.encode(
            Hold(self._command, host, pid, process, self.token, now_ms, self._is_new, is_left)
        )

    def _in_use(self, why: str) -> InUseError:
        return InUseError(
            f"a driver seems to run on this checkpoint: {why}",
            object_name=self._checkpoint.url,
            next_step=f"stop the query, and repeat the command {QUIET_S} s later",
        )


class HeldCheckpoint(Holding):
    """Holds a checkpoint while it is entered.

    Args:
        checkpoint: see ``Holding``, as for the others.
        command: see there.
        clock: see there.
        entropy: see there.
        least: the hold is not in the place of an earlier batch: entries up to there may be
            written. The logs may be empty then.

    Attributes:
        now_ms: when it was entered, by the storage's clock.
        batches: those of the logs, when it was entered.
        token: names this piece of work.
    """

    def __init__(
        self,
        checkpoint: ObjectStore,
        command: str,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        *,
        least: int | None = None,
    ) -> None:
        super().__init__(checkpoint, command, clock, entropy)
        self.now_ms = 0
        self.batches = Batches((), (), ())
        self._least = least

    def __enter__(self) -> Self:
        """Hold the checkpoint.

        Raises:
            InUseError: a driver seems to run, or another command holds it.
            NotThereError: there is no offset log.
            ConditionalPutUnsupportedError: the storage cannot keep drivers away.
            AccessError: one may not write or delete here.
        """
        objects = self._checkpoint
        offsets = _entries(objects, OFFSETS_PREFIX)
        if not offsets and self._least is None:
            raise NotThereError(
                "there is no offset log here, or the folder does not exist",
                object_name=objects.object_url(OFFSETS_PREFIX),
                next_step="name the query's checkpointLocation, the folder that has 'offsets'",
            )
        commits = _entries(objects, COMMITS_PREFIX)
        number = max(offsets, default=-1)
        left_etag = left_hold(objects, number) if offsets else None
        if left_etag is None:
            number = max((*offsets, *commits, (self._least or 0) - 1)) + 1
        else:
            del offsets[number]
            commits.pop(number, None)
        self._require_quiet((*commits.values(), *offsets.values()))
        self.create(number, left_etag)
        try:
            if left_etag is not None:
                _remove_unplanned(objects, number)
            if number < (self._least or 0):
                number = self.move(self._least or 0)
            entries = _entries(objects, OFFSETS_PREFIX)
            self.now_ms = entries.pop(number).modified_ms
            all_commits = tuple(sorted(_entries(objects, COMMITS_PREFIX)))
            committed = tuple(batch for batch in all_commits if batch in entries)
            self.batches = Batches(tuple(sorted(entries)), committed, all_commits)
        except BaseException as error:
            self.end(error)
            raise
        return self

    def check(
        self, removed: AbstractSet[int] = frozenset(), added: AbstractSet[int] = frozenset()
    ) -> None:
        """Check that no driver has ended a batch since.

        One that was running may end the batch that it had begun.

        Args:
            removed: the batches whose commits were removed here.
            added: those whose commits were written here.

        Raises:
            InUseError: it has.
        """
        now = _entries(self._checkpoint, COMMITS_PREFIX).keys()
        if new := now - (set(self.batches.all_commits) - removed) - added:
            raise self._in_use(f"batch {min(new)} was committed meanwhile")

    def __exit__(self, *failure: object) -> None:
        """Let drivers use it again; see ``end``."""
        self.end(*failure)

    def _require_quiet(self, entries: Iterable[ObjectInfo]) -> None:
        newest = max(entries, key=lambda info: info.modified_ms, default=None)
        if newest is None:
            return
        now = self._checkpoint.server_time() or self._clock.now()
        age_s = int(now.timestamp()) - newest.modified_ms // 1000
        if age_s < QUIET_S:
            when = (
                f"{age_s} s ago" if age_s >= 0 else f"{-age_s} s later than it is by the clock here"
            )
            raise self._in_use(f"{newest.key} was written {when}")


def left_hold(checkpoint: ObjectStore, batch: int, *, is_new: bool = False) -> str | None:
    """Return the etag of the hold that a process has left there; ``None``: there is no hold.

    Args:
        checkpoint: at the query's checkpoint location.
        batch: in the place of which it is.
        is_new: see ``Hold``: no other kind of work takes such a hold over.

    Raises:
        InUseError: its process is alive, or that cannot be known on this machine; or the other
            kind of work has left it.
    """
    held = _hold_at(checkpoint, batch)
    if held is None:
        return None
    found, etag = held
    if found.is_new != is_new or not _has_ended(found):
        name = checkpoint.object_url(f"{OFFSETS_PREFIX}{batch}")
        raise found.error().with_context(object_name=name)
    _LOG.warning(
        "`cairn %s` has ended in process %d without its last step: its hold ends",
        found.command,
        found.pid,
    )
    return etag


def _remove_unplanned(checkpoint: ObjectStore, batch: int) -> None:
    """Remove what a command has stored of a batch before its plan; see ``AppendedBatch``."""
    keys = [f"{COMMITS_PREFIX}{batch}"]
    for operator in itertools.count():
        folder = f"state/{operator}/_metadata/"
        names = {info.key for info in checkpoint.list(folder)}
        if not names:
            break
        keys += sorted(names & {f"{folder}v2/{batch}"})
    checkpoint.delete(keys)


def _hold_at(checkpoint: ObjectStore, batch: int) -> tuple[Hold, str] | None:
    """Return the hold with its etag; ``None`` if the entry is another one."""
    try:
        entry = checkpoint.get(f"{OFFSETS_PREFIX}{batch}", max_bytes=_ENTRY_BYTES_MAX)
    except DataError:
        return None
    found = hold_format.parse(entry.data)
    return None if found is None else (found, entry.etag)


def _entries(objects: ObjectStore, prefix: str) -> dict[int, ObjectInfo]:
    """Return the entries of a log by their batches."""
    found = {batch_of(info.key.removeprefix(prefix)): info for info in objects.list(prefix)}
    return {batch: info for batch, info in found.items() if batch is not None}


def _has_ended(found: Hold) -> bool:
    """Return whether the process of a hold is known to have ended, or to have given up."""
    if found.is_left:
        return True
    if found.host != socket.gethostname():
        return False
    machine = identity_of(os.getpid()).rpartition("/")[0]
    if found.process.rpartition("/")[0] != machine:
        # A machine with the same name, or a container beside this one; or this one was restarted.
        return False
    if not _is_alive(found.pid):
        return True
    if found.pid == os.getpid() and found.process == identity_of(found.pid):
        return found.token not in _of_this_process
    return bool(found.process) and identity_of(found.pid) != found.process


def identity_of(pid: int) -> str:
    """Return what tells a process from all others, for ``Hold``.

    Empty if this is not Linux, or it has ended.
    """
    proc = Path("/proc")
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (proc / "self/ns/pid").readlink()
        start = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot}/{namespace}/{start}"


def _is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        return True
    return False
