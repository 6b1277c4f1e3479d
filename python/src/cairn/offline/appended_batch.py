"""AppendedBatch: a batch without input behind the last one, with another state.

Layer: offline.  Spec: docs/checkpoint-format.md#appended-batches. Its plan has the offsets of the
batch before, so a driver goes on behind it with the input that comes next. No entry of the logs is
changed. The commit is stored under the hold, and then the hold becomes the plan: at once the batch
is there, whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.errors import (
    AlreadyExistsError,
    DataError,
    InUseError,
    NotThereError,
    UnsupportedStateError,
)
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX, encode_commit, encode_offsets
from cairn.offline.hold import HeldCheckpoint, list_unheld
from cairn.offline.move.committing import attempt_of
from cairn.offline.record import Record, find_records
from cairn.offline.stores import cairn_stores
from cairn.reader.batch import BatchView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cairn.clock import Clock, Entropy
    from cairn.format.spark_log import UniqueIds
    from cairn.ids import StoreId
    from cairn.storage.base import ObjectStore


class AppendedBatch:
    """See the module. While it is entered, no driver uses the checkpoint.

    Args:
        checkpoint: at the query's checkpoint location.
        view: the last committed batch.
        command: of ``cairn``.
        work: what tells this piece of work from others of the command, as JSON values: the
            options. The number of the batch is added, and when the batch before was committed: the
            results of a killed process count only behind the same one.
        clock: tells the time.
        entropy: makes ids.
        starts_anew: what a killed process has left of this work is not used: its record ends.

    Attributes:
        number: of the batch.
    """

    def __init__(
        self,
        checkpoint: ObjectStore,
        view: BatchView,
        command: str,
        work: Mapping[str, object],
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        *,
        starts_anew: bool = False,
    ) -> None:
        self.number = view.batch + 1
        self._checkpoint = checkpoint
        self._view = view
        self._command = command
        self._work = dict(work)
        self._clock = clock
        self._held = HeldCheckpoint(checkpoint, command, clock, entropy)
        self._starts_anew = starts_anew
        self._record: Record | None = None
        self._may_be_committed = False

    @property
    def record(self) -> Record:
        """The record of the work, also that of a killed process. REQUIRES: it is entered."""
        assert self._record is not None  # noqa: S101 - see above
        return self._record

    def __enter__(self) -> Self:
        """Hold the checkpoint.

        Raises:
            InUseError: a driver seems to run, another command holds the checkpoint, the last batch
                is planned but not committed, or it is not the one of the plan.
        """
        self._held.__enter__()
        try:
            self._require_ended()
            committed_ms = self._view.committed_ms
            step = {"batch": self.number, "committed_ms": committed_ms, **self._work}
            if self._starts_anew:
                self._end_records()
            left = unended_records(self._checkpoint, self._command, step, self._clock)
            self._record = next(left, None) or Record(
                self._checkpoint, self._command, self._held.token, [step], self._clock
            )
        except BaseException as error:
            self.__exit__(error)
            raise
        return self

    def _end_records(self) -> None:
        """End the records of the same work, whichever batch it was to append."""
        left = unended_records(self._checkpoint, self._command, self._work, self._clock)
        for record in list(left):
            record.end([])

    def _require_ended(self) -> None:
        """Require that the batch before is the last one, also the last one that is planned."""
        batches = self._held.batches
        last = batches.planned[-1]
        is_committed = last in batches.committed
        if is_committed and self._view.batch == last:
            return
        if is_committed:
            raise InUseError(
                "the query, or another command, has gone on since the plan was made",
                object_name=self._checkpoint.object_url(f"{COMMITS_PREFIX}{last}"),
                next_step="stop the query, and repeat the command",
            )
        step = "start the query once more, so that it ends this batch, and stop it"
        if self._command == "migrate":
            step += "; or name another place by --to, where the query repeats the batch"
        raise InUseError(
            f"batch {last} is planned, and not committed",
            object_name=self._checkpoint.object_url(f"{OFFSETS_PREFIX}{last}"),
            next_step=step,
        )

    def finish(
        self,
        *,
        conf: Mapping[str, str | None],
        unique_ids: UniqueIds | None,
        checkpoint_format: int,
        done: Sequence[Mapping[str, object]],
        ends: bool = True,
    ) -> None:
        """Store the entries of the logs. REQUIRES: the state is there.

        Args:
            conf: settings of the query that change; ``None`` removes one.
            unique_ids: the checkpoint ids of the batch; ``None`` in checkpoint format 1.
            checkpoint_format: Spark's, of the batch.
            done: what was done, for the record.
            ends: whether that was all: the record ends.

        Raises:
            InUseError: a driver has used the checkpoint meanwhile.
            UnavailableError and other storage errors: the same work may be done again.
        """
        self._held.check()
        commit = self._view.commit
        if unique_ids is not None or checkpoint_format == 1:
            commit = commit.with_ids(unique_ids)
        self._commit(encode_commit(commit))
        self._held.become(self.number, encode_offsets(self._view.conf.entry.with_conf(conf)))
        if ends:
            self.record.end(done)

    def _commit(self, data: bytes) -> None:
        """Store the commit. That of a killed process went when its hold was taken over."""
        key = f"{COMMITS_PREFIX}{self.number}"
        # From here on the hold must not end alone: a commit without a plan would be left.
        self._may_be_committed = True
        try:
            self._checkpoint.put_if_absent(key, data)
        except AlreadyExistsError:
            self._may_be_committed = False
            raise InUseError(
                f"a driver has run batch {self.number} meanwhile: nothing was changed",
                object_name=self._checkpoint.object_url(key),
                next_step="stop the query, and repeat the command",
            ) from None

    def __exit__(self, *failure: object) -> None:
        """Let drivers use the checkpoint.

        If the commit may be there, and the plan is not, the hold stands for the next command.
        """
        if self._may_be_committed:
            self._held.leave()
        else:
            self._held.__exit__(*failure)


def unended_records(
    checkpoint: ObjectStore, command: str, work: Mapping[str, object], clock: Clock
) -> Iterator[Record]:
    """Yield the records of the same work that processes have left, oldest first.

    Args:
        checkpoint: at the query's checkpoint location.
        command: of ``cairn``.
        work: as ``AppendedBatch`` has it, or a part of it; its step may have ``batch``, too.
        clock: for the records.
    """
    for record in find_records(checkpoint, clock):
        steps = record.steps
        if record.command != command or record.is_ended or len(steps) != 1:
            continue
        if work.items() <= steps[0].items():
            yield record


def find_appended(
    view: BatchView,
    command: str,
    work: Mapping[str, object],
    clock: Clock,
    written: Callable[[Record], StoreId],
    *,
    must_know: bool = False,
) -> Record | None:
    """Return the record of the same work whose batch is committed, and whose end is missing.

    Args:
        view: the last committed batch.
        command: of ``cairn``.
        work: as ``AppendedBatch`` has it, or a part of it.
        clock: for the record.
        written: returns one of the stores that the work of a record writes.
        must_know: a record counts neither way if its batch cannot be read any more.

    Raises:
        NotThereError: there is such a record, and ``must_know``.
    """
    for record in unended_records(view.objects, command, work, clock):
        batch = record.steps[0].get("batch")
        if not isinstance(batch, int) or batch > view.batch:
            continue
        try:
            if _is_of(view, record, batch, written):
                return record
        except DataError as failure:
            if must_know:
                raise NotThereError(
                    f"a process that has ended may have done the same as batch {batch}, which "
                    f"cannot be read any more: {failure.message}",
                    object_name=view.objects.object_url(record.folder),
                    next_step="look at the state: if it has not, delete this record, and repeat "
                    "the command",
                ) from failure
    return None


def _is_of(
    view: BatchView, record: Record, batch: int, written: Callable[[Record], StoreId]
) -> bool:
    """Return whether a committed batch is the one that a record was to append.

    A driver may have run a batch of this number, after the command was killed before its end.

    Raises:
        DataError: the batch cannot be read.
    """
    wanted = written(record)
    for store in cairn_stores(BatchView(view.objects, batch)):
        if store.id == wanted:
            with store.open() as root:
                found = store.versions(root).read_header(store.version, store.checkpoint_id)
                return found.header.attempt == attempt_of(record.name)
    return False


def committed_batch(checkpoint: ObjectStore) -> int:
    """Return the newest committed batch.

    Args:
        checkpoint: at the query's checkpoint location.

    Raises:
        NotThereError: no batch is committed.
        InUseError: another command makes the checkpoint.
    """
    batches, _ = list_unheld(checkpoint)
    if not batches.committed:
        raise NotThereError(
            "the query has not committed a batch yet",
            object_name=checkpoint.object_url(COMMITS_PREFIX),
            next_step="run its first batch, which stores the types of its state",
        )
    return batches.committed[-1]


def require_own(view: BatchView, what: str) -> None:
    """Require that the state is in Cairn's files.

    Raises:
        UnsupportedStateError: it is in those of Spark's own provider.
    """
    if view.provider != "cairn":
        raise UnsupportedStateError(
            f"the state is in the files of Spark's own provider ({view.provider}), {what}",
            object_name=view.objects.url,
            next_step="move the state to Cairn by `cairn migrate` first",
        )
