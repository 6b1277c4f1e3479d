"""NewCheckpoint: a checkpoint that is made at an empty place, from a batch of another one.

Layer: offline.  Spec: docs/checkpoint-format.md#new-checkpoints. It has the batch under the same
number, and goes on behind it. Spark's files are copied here; the caller stores the state. Until
``finish`` no driver can use the place: its offset log has a hold behind all entries that will be
there, so that nothing of it is read. What a killed command leaves is finished by the same command.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Self

from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.errors import AlreadyExistsError, ConfigError, InUseError, MissingError, UnavailableError
from cairn.format.fields import parse_object
from cairn.format.spark_log import (
    CHECKPOINT_FORMAT,
    COMMITS_PREFIX,
    OFFSETS_PREFIX,
    batch_of,
    encode_commit,
    encode_offsets,
)
from cairn.offline.hold import Holding, left_hold
from cairn.offline.parallel import in_parallel
from cairn.offline.record import FOLDER, Record, find_records
from cairn.offline.spark_files import (
    QUERY_ID,
    moved_file,
    next_plan,
    operator_files,
    plan_before,
    source_files,
    stored_objects,
)
from cairn.storage.copying import copy_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.clock import Clock, Entropy
    from cairn.format.spark_log import OffsetEntry, UniqueIds
    from cairn.reader.batch import BatchView
    from cairn.storage.base import ObjectInfo, ObjectStore

THREADS = 32
"""Most requests are small, and wait for the storage."""
_ATTEMPTS = 5
_ENTRY_BYTES_MAX = 64 << 20
_NOTHING: Mapping[str, str | None] = {}


@dataclass(frozen=True, slots=True)
class _Logs:
    """The entries that the logs of the new checkpoint get."""

    before: OffsetEntry | None
    planned: OffsetEntry
    following: OffsetEntry | None


class NewCheckpoint:
    """See the module. Entered while it is made; left by an error, the place stays held.

    Args:
        target: where it will be; the caller closes it.
        view: the batch of the other checkpoint, which is only read; of a savepoint over
            ``SavedFiles``.
        command: of ``cairn``.
        work: what tells this piece of work from others of the command, as JSON values: the
            options. Source and batch are added, and when that was committed.
        keep_id: the query is the same one for its sink.
        clock: tells the time.
        entropy: makes ids.

    Attributes:
        left: the objects of the same work that was cut off, with their sizes: not those of the
            logs.
        is_done: whether only the hold was left of it: ``finish`` deletes that.
    """

    def __init__(
        self,
        target: ObjectStore,
        view: BatchView,
        command: str,
        work: Mapping[str, object],
        *,
        keep_id: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        self.left: dict[str, int] = {}
        self.is_done = False
        self._target = target
        self._view = view
        self._stored = stored_objects(view)
        self._command = command
        place = {
            "source": view.objects.origin,
            "batch": view.batch,
            "committed_ms": view.committed_ms,
            "keep_id": keep_id,
        }
        self._work: dict[str, object] = {**place, **work}
        self._keep_id = keep_id
        self._clock = clock
        self._holding = Holding(target, command, clock, entropy, is_new=True)
        self._query_id = str(uuid.UUID(hex=entropy.token(16), version=4))
        self._hold_at = 0
        self._record: Record | None = None
        self._logs = _read_logs(view)

    @property
    def record(self) -> Record:
        """The record of the work, also that of a killed process. REQUIRES: it is entered."""
        assert self._record is not None  # noqa: S101 - see above
        return self._record

    # -- the place -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Hold the place.

        Raises:
            AlreadyExistsError: it is not empty, or has another piece of work, or is in the source.
            InUseError: another command makes a checkpoint there, or a driver uses it.
            ConditionalPutUnsupportedError: the storage cannot keep drivers away.
            AccessError: one may not write or delete there.
        """
        require_apart(self._view.objects, self._target)
        record = find_begun(self._target, self._command, self._work, self._clock)
        least = self._view.batch + 2
        hold_at = least if record is not None else self._lonely_hold()
        if hold_at is None:
            hold_at = least
        etag = left_hold(self._target, hold_at, is_new=True)
        if record is None:
            self._require_empty(hold_at if etag is not None else None)
        elif record.is_ended and etag is None:
            raise _not_empty(self._target, "the checkpoint is there, and is whole")
        try:
            self._holding.create(hold_at, etag)
            if hold_at < least:
                hold_at = self._holding.move(least)
        except UnavailableError:
            self._holding.leave()  # it may be there
            raise
        self._hold_at = hold_at
        try:
            self._require_only_hold()
            if record is None:
                self._require_empty(hold_at)
                record = self._begin()
            self._take_up(record)
        except BaseException as error:
            if record is None:
                self._holding.end(error)
            else:
                self._holding.leave()
            raise
        return self

    def _lonely_hold(self) -> int | None:
        """Return the place of a hold beside which there is nothing: a command was killed there."""
        found = [info.key for info in islice(self._target.list(""), 2)]
        if len(found) != 1 or not found[0].startswith(OFFSETS_PREFIX):
            return None
        return batch_of(found[0].removeprefix(OFFSETS_PREFIX))

    def __exit__(self, kind: object, *_: object) -> None:
        """Let the hold stand if there was an error: what is there is not whole."""
        if kind is not None:
            self._holding.leave()

    def _begin(self) -> Record:
        """Create the query's id, of which there is one, and the record."""
        work = self._work | {"query_id": self._query_id}
        return Record(self._target, self._command, self._holding.token, [work], self._clock)

    def _take_up(self, record: Record) -> None:
        """Go on with a record: create the query's id, and note what is there."""
        self._record = record
        self.is_done = record.is_ended
        self._query_id = str(record.steps[0].get("query_id"))
        data = self._new_query_id()
        try:
            # A driver that starts creates it before its first entry: one of both has it.
            self._target.put_if_absent(QUERY_ID, data)
        except AlreadyExistsError:
            if self._target.get(QUERY_ID, max_bytes=_ENTRY_BYTES_MAX).data != data:
                raise InUseError(
                    "a driver has begun to use this place",
                    object_name=self._target.object_url(QUERY_ID),
                    next_step="stop it, delete the folder or choose another one, and repeat the "
                    "command",
                ) from None
        own = (OFFSETS_PREFIX, COMMITS_PREFIX, f"{FOLDER}/")
        self.left = {
            info.key: info.size_bytes
            for info in self._target.list("")
            if not info.key.startswith(own)
        }

    def _new_query_id(self) -> bytes:
        """Return Spark's file with the query's id."""
        source = self._view.objects
        fields: dict[str, object] = {}
        try:
            data = source.get(QUERY_ID, max_bytes=_ENTRY_BYTES_MAX).data
        except MissingError:
            if self._keep_id:
                raise
        else:
            if self._keep_id:
                return data
            fields = dict(parse_object(data, "the query's metadata"))
        return encode_query_id(fields | {"id": self._query_id})

    def _require_empty(self, hold_at: int | None) -> None:
        """Require that there is nothing but this hold.

        Raises:
            AlreadyExistsError: there is.
        """
        allowed = None if hold_at is None else f"{OFFSETS_PREFIX}{hold_at}"
        for info in islice(self._target.list(""), 2):
            if info.key != allowed:
                raise _not_empty(self._target, f"the place is not empty: it has {info.key}")

    def _require_only_hold(self) -> None:
        """Require that the logs have nothing of others: another command, or a driver.

        Raises:
            InUseError: they have.
        """
        wanted = self._offset_numbers() | {self._hold_at}
        for prefix, numbers in ((OFFSETS_PREFIX, wanted), (COMMITS_PREFIX, {self._view.batch})):
            for info in self._target.list(prefix):
                batch = batch_of(info.key.removeprefix(prefix))
                if batch is not None and batch not in numbers:
                    raise InUseError(
                        "another command, or a driver, has begun to use this place",
                        object_name=self._target.object_url(info.key),
                        next_step="end it, delete the folder or choose another one, and repeat "
                        "the command",
                    )

    # -- what it gets ----------------------------------------------------------------------------

    def copy_spark_files(self) -> None:
        """Store Spark's files but for the logs: of sources, operators, schemas.

        Raises:
            MissingError: a file of the source is gone.
            UnavailableError and other storage errors.
        """
        in_parallel(self._copy, operator_files(self._view), threads=THREADS)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                in_parallel(self._copy_source, source_files(self._stored), threads=THREADS)
            except MissingError:
                # A source that runs has put its older files into one, and has deleted them.
                if attempt == _ATTEMPTS:
                    raise
                continue
            return

    def _copy_source(self, file: ObjectInfo) -> None:
        copy_object(self._stored, file.key, self._target, file.key, size_bytes=file.size_bytes)

    def _copy(self, key: str) -> None:
        self._target.put(key, moved_file(self._view.objects, key, self._target.url))

    def finish(
        self,
        *,
        conf: Mapping[str, str | None] = _NOTHING,
        unique_ids: UniqueIds | None = None,
        checkpoint_format: int | None = None,
        done: Sequence[Mapping[str, object]] = (),
    ) -> None:
        """Store the logs, and let drivers use the checkpoint. REQUIRES: the state is there.

        Args:
            conf: settings of the query that change in all entries; ``None`` removes one.
            unique_ids: the checkpoint ids of the batch; ``None``: those of the source.
            checkpoint_format: 1: the state has no ids any more; ``None``: that of the source, or
                that of ``unique_ids``.
            done: what was done, for the record; empty: what was to be done.

        Raises:
            InUseError: a driver has used the place meanwhile.
            UnavailableError and other storage errors: the same work may be done again.
        """
        record = self._record
        assert record is not None  # noqa: S101 - it is entered
        if not self.is_done:
            for key, data in self._entries(conf, unique_ids, checkpoint_format):
                self._target.put(key, data)
            self._require_only_hold()
            record.end(done or record.steps)
        self._holding.end()

    def _entries(
        self,
        conf: Mapping[str, str | None],
        unique_ids: UniqueIds | None,
        checkpoint_format: int | None,
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the entries of the logs; the commit last: without it no batch is done."""
        commit = self._view.commit
        if unique_ids is not None or checkpoint_format == 1:
            commit = commit.with_ids(unique_ids)
        has_ids = commit.unique_ids is not None
        if has_ids != (self._view.commit.unique_ids is not None):
            conf = {CHECKPOINT_FORMAT: "2" if has_ids else "1", **conf}
        for batch, entry in self._offsets().items():
            yield f"{OFFSETS_PREFIX}{batch}", encode_offsets(entry.with_conf(conf))
        yield f"{COMMITS_PREFIX}{self._view.batch}", encode_commit(commit)

    def _offset_numbers(self) -> set[int]:
        return set(self._offsets())

    def _offsets(self) -> dict[int, OffsetEntry]:
        batch, logs = self._view.batch, self._logs
        found = {batch - 1: logs.before, batch: logs.planned, batch + 1: logs.following}
        return {number: entry for number, entry in found.items() if entry is not None}


def require_apart(source: ObjectStore, target: ObjectStore) -> None:
    """Require that neither place is in the other one.

    Raises:
        ConfigError: one is.
    """
    places = [f"{one.origin.rstrip('/')}/" for one in (source, target)]
    if places[0].startswith(places[1]) or places[1].startswith(places[0]):
        raise ConfigError(
            "the new place is in the checkpoint, or has the checkpoint in it",
            object_name=target.url,
            next_step="choose a place beside it",
        )


def find_begun(
    target: ObjectStore, command: str, wanted: Mapping[str, object], clock: Clock = SYSTEM_CLOCK
) -> Record | None:
    """Return the record of work that was begun at a place; ``None``: there is none.

    Args:
        target: at the place.
        command: of ``cairn``.
        wanted: what tells the work from others, or a part of that.
        clock: for the record.
    """
    for record in find_records(target, clock):
        steps = record.steps
        if record.command == command and steps and wanted.items() <= steps[0].items():
            return record
    return None


def encode_query_id(fields: Mapping[str, object]) -> bytes:
    """Return the bytes of Spark's file with a query's id."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _not_empty(target: ObjectStore, what: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        what,
        object_name=target.url,
        next_step="choose a place that is empty, or does not exist",
    )


def _read_logs(view: BatchView) -> _Logs:
    return _Logs(plan_before(view), view.conf.entry, next_plan(view))
