"""Holding a checkpoint: no driver uses it while a command changes it.

Layer: offline.  Spec: docs/checkpoint-format.md#hold; ADR 44.

A batch begins with an entry of Spark's offset log, which only one driver can create. A hold is the
next entry: a driver that is running fails at its next batch, and one that starts refuses the entry
and shows its text. It stays if the command is killed; the next command takes it over.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.errors import AlreadyExistsError, DataError, InUseError, NotThereError
from cairn.format import hold as hold_format
from cairn.format.hold import Hold
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX, batch_of
from cairn.reader.spark.logs import Batches, list_batches

if TYPE_CHECKING:
    from cairn.clock import Clock, Entropy
    from cairn.storage.base import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
_ENTRY_BYTES_MAX = 64 << 20
_QUIET_S = 60
"""A query that has written to its logs so lately seems to be running."""
_TOKEN_BYTES = 8


def list_unheld(checkpoint: ObjectStore) -> Batches:
    """Return the batches of the logs without a hold that stands there; two LISTs and a GET.

    Raises:
        NotThereError: there is no checkpoint of a query here.
    """
    found = list_batches(checkpoint)
    newest = found.planned[-1]
    if _hold_at(checkpoint, newest) is None:
        return found
    return replace(found, planned=found.planned[:-1])


class HeldCheckpoint:
    """Holds a checkpoint while it is entered.

    Args:
        checkpoint: at the query's checkpoint location.
        command: the command, for people.
        clock: measures how long the logs have been quiet.
        entropy: makes the hold unique.

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
    ) -> None:
        self.now_ms = 0
        self.batches = Batches((), (), ())
        self.token = entropy.token(_TOKEN_BYTES)
        self._checkpoint = checkpoint
        self._command = command
        self._clock = clock
        self._key = ""

    def __enter__(self) -> Self:
        """Hold the checkpoint.

        Raises:
            InUseError: a driver seems to run, or another command holds it.
            NotThereError: there is no offset log.
            ConditionalPutUnsupportedError: the storage cannot keep drivers away.
        """
        objects = self._checkpoint
        offsets = _entries(objects, OFFSETS_PREFIX)
        if not offsets:
            raise NotThereError(
                "there is no offset log here, or the folder does not exist",
                object_name=objects.object_url(OFFSETS_PREFIX),
                next_step="name the query's checkpointLocation, the folder that has 'offsets'",
            )
        if self._end_dead_hold(max(offsets)):
            del offsets[max(offsets)]
        self._require_quiet({**_entries(objects, COMMITS_PREFIX), **offsets})
        objects.probe_conditional_put()
        number = max(offsets, default=-1) + 1
        self._key = f"{OFFSETS_PREFIX}{number}"
        now_ms = int(self._clock.now().timestamp() * 1000)
        entry = Hold(self._command, socket.gethostname(), os.getpid(), self.token, now_ms)
        try:
            objects.put_if_absent(self._key, hold_format.encode(entry))
        except AlreadyExistsError:
            raise self._in_use(f"batch {number} was planned just now") from None
        try:
            entries = _entries(objects, OFFSETS_PREFIX)
            self.now_ms = _modified_ms(entries[number])
            commits = sorted(_entries(objects, COMMITS_PREFIX))
            planned = tuple(batch for batch in sorted(entries) if batch != number)
            committed = tuple(batch for batch in commits if batch in entries)
            self.batches = Batches(planned, committed, tuple(commits))
        except BaseException:
            self.__exit__()
            raise
        return self

    def check(self, removed: set[int] | None = None) -> None:
        """Check that no driver has ended a batch since.

        One that was running may end the batch that it had begun.

        Args:
            removed: the batches whose commits were removed here.

        Raises:
            InUseError: it has.
        """
        now = _entries(self._checkpoint, COMMITS_PREFIX).keys()
        if new := now - (set(self.batches.all_commits) - (removed or set())):
            raise self._in_use(f"batch {min(new)} was committed meanwhile")

    def __exit__(self, *_: object) -> None:
        """Let drivers use it again.

        Raises:
            CairnError: the hold could not be removed: the next command does that.
        """
        self._checkpoint.delete([self._key])

    def _end_dead_hold(self, newest: int) -> bool:
        """Remove the hold of a process of this machine that has ended; return whether it was one.

        Raises:
            InUseError: its process is alive, or on another machine.
        """
        key = f"{OFFSETS_PREFIX}{newest}"
        found = _hold_at(self._checkpoint, newest)
        if found is None:
            return False
        if found.host != socket.gethostname() or _is_alive(found.pid):
            raise found.error().with_context(object_name=self._checkpoint.object_url(key))
        _LOG.warning("`cairn %s` was killed in process %d: its hold is removed", *_who(found))
        self._checkpoint.delete([key])
        return True

    def _require_quiet(self, entries: dict[int, ObjectInfo]) -> None:
        newest = max(entries.values(), key=_modified_ms, default=None)
        if newest is None:
            return
        age_s = int(self._clock.now().timestamp()) - _modified_ms(newest) // 1000
        if age_s < _QUIET_S:
            raise self._in_use(f"{newest.key} was written {max(age_s, 0)} s ago")

    def _in_use(self, why: str) -> InUseError:
        return InUseError(
            f"a driver seems to run on this checkpoint: {why}",
            object_name=self._checkpoint.url,
            next_step=f"stop the query, and repeat the command {_QUIET_S} s later",
        )


def _hold_at(checkpoint: ObjectStore, batch: int) -> Hold | None:
    try:
        entry = checkpoint.get(f"{OFFSETS_PREFIX}{batch}", max_bytes=_ENTRY_BYTES_MAX)
    except DataError:
        return None
    return hold_format.parse(entry.data)


def _entries(objects: ObjectStore, prefix: str) -> dict[int, ObjectInfo]:
    """Return the entries of a log by their batches."""
    found = {batch_of(info.key.removeprefix(prefix)): info for info in objects.list(prefix)}
    return {batch: info for batch, info in found.items() if batch is not None}


def _modified_ms(info: ObjectInfo) -> int:
    return int(info.last_modified.timestamp() * 1000)


def _who(found: Hold) -> tuple[str, int]:
    return found.command, found.pid


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # in a container each process may have the same
    with suppress(ProcessLookupError):
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        return True
    return False
