"""migrate: the state of a query in the files of another provider.

Layer: offline.  Spec: docs/moving.md#migrate. The state is that of the last committed batch. It
goes to a new checkpoint, which keeps the numbers of batches, or into the same one by a batch
without input. Each store is written, read back, and compared with what was read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cairn.errors import ConfigError, DataError, InUseError, RetryableError
from cairn.format.spark_log import CHECKPOINT_FORMAT, PROVIDER
from cairn.offline.appended_batch import AppendedBatch, unended_records
from cairn.offline.hold import list_unheld
from cairn.offline.move.checks import movable_stores
from cairn.offline.move.moving import Move, read_results
from cairn.offline.move.running import run_move
from cairn.offline.move.totals import MovedFamily, checkpoint_ids, totals
from cairn.offline.new_checkpoint import NewCheckpoint
from cairn.offline.plan import CommittedPlan
from cairn.reader.batch import BatchView
from cairn.reader.spark.logs import class_of
from cairn.reader.stores.base import ReadLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cairn.clock import Clock
    from cairn.offline.move.moving import Location, Moved, StoreRef
    from cairn.offline.move.running import MoveProgress
    from cairn.offline.record import Record
    from cairn.reader.spark.logs import Batches, Provider

_COMMAND = "migrate"
_LOOK_EVERY_S = 30


class MigrationPlan(CommittedPlan):
    """What a migration does; ``apply`` does it. Close it, or use it in a ``with`` statement.

    Args:
        source: the checkpoint. It is only read, unless it is the target, too.
        target: an empty place; ``None``: the same checkpoint.
        provider: whose files the state will be in.
        clock: tells the time.

    Attributes:
        batch: the last committed one, whose state is moved.
        former: whose files the state is in.
        provider: whose files it will be in.
        stores: what is moved.
        checkpoint_format: Spark's, of the target.

    Raises:
        NotThereError: no batch is committed.
        UnsupportedStateError: the provider has no such state; names the operator.
        ConfigError: the state is in its files already, and no other place is named.
        InUseError: another command changes the checkpoint.
    """

    def __init__(
        self, source: Location, target: Location | None, provider: Provider, clock: Clock
    ) -> None:
        super().__init__(source, clock)
        self._target = target
        self.provider = provider
        with self._closed_on_failure():
            self._batches = self._list_batches()
            self.former = self._view.provider
            self._unended = self._find_unended() if target is None else None
            if target is None and self.former == provider and self._unended is None:
                raise ConfigError(
                    f"the state is in the files of {provider} already",
                    object_name=self._checkpoint.url,
                    next_step="name another provider, or another place by --to",
                )
            self.checkpoint_format = 1 if provider == "hdfs" else self._view.checkpoint_format
            self.stores = movable_stores(self._view, provider)

    def apply(
        self,
        *,
        session: Any = None,  # noqa: ANN401 - pyspark is no dependency
        processes: int | None = None,
        local_dir: Path | None = None,
        progress: Callable[[MoveProgress], None] | None = None,
    ) -> tuple[MovedFamily, ...]:
        """Move the state; return what was moved and compared.

        If it is cut off, the same call goes on with the stores that are left.

        Args:
            session: a ``SparkSession``: each store is a task of it. Its executors need Cairn, and
                the rights to read and write both places. ``None``: processes of this machine.
            processes: how many; ``None``: one per processor.
            local_dir: on the local disk of each machine, as large as the largest partitions that
                are moved at a time. ``None``: the folder of temporary files.
            progress: called after each store, and every few seconds.

        Raises:
            InUseError: a driver seems to use one of both places.
            AlreadyExistsError: the target is not empty.
            CorruptError: the source cannot be read, or rows differ when they are read back.
            CairnError: the target is not whole, and no driver starts on it.
        """
        if self._unended is not None and self.former == self.provider:
            done = totals(read_results(self._checkpoint, self._unended.results))
            self._unended.end([asdict(one) for one in done])
            return done
        run = {"session": session, "processes": processes, "progress": progress}
        if self._target is None:
            with AppendedBatch(
                self._checkpoint, self._view, _COMMAND, self._work, self._clock
            ) as batch:
                moved = self._run(self._location, batch.number, batch.record, local_dir, run)
                return self._end(batch, moved)
        with self._target.open() as objects:
            new = NewCheckpoint(
                objects, self._view, _COMMAND, self._work, keep_id=True, clock=self._clock
            )
            with new:
                if new.is_done:
                    new.finish()
                    return tuple(MovedFamily.of(one) for one in new.record.done)
                new.copy_spark_files()
                run["progress"] = self._watching(progress)
                moved = self._run(self._target, self.batch, new.record, local_dir, run)
                self._require_same_logs()
                return self._end(new, moved)

    def _end(
        self, at: AppendedBatch | NewCheckpoint, moved: Mapping[StoreRef, Moved]
    ) -> tuple[MovedFamily, ...]:
        """Let the query go on from what was moved; return that."""
        done = totals(moved)
        at.finish(
            conf=self._conf,
            unique_ids=checkpoint_ids(moved, self.checkpoint_format),
            checkpoint_format=self.checkpoint_format,
            done=[asdict(one) for one in done],
        )
        return done

    def _find_unended(self) -> Record | None:
        """Return the record of a batch that was committed before its record had ended.

        The query may have gone on since.
        """
        for record in unended_records(self._checkpoint, _COMMAND, self._work, self._clock):
            batch = record.steps[0].get("batch")
            if isinstance(batch, int) and batch <= self.batch and self._has_moved(batch):
                return record
        return None

    def _has_moved(self, batch: int) -> bool:
        with suppress(DataError):  # else Spark has deleted the entry since
            return BatchView(self._checkpoint, batch).provider == self.provider
        return False

    @property
    def _work(self) -> dict[str, object]:
        return {"provider": self.provider}

    @property
    def _conf(self) -> dict[str, str | None]:
        changes: dict[str, str | None] = {PROVIDER: class_of(self.provider)}
        if self.checkpoint_format != self._view.checkpoint_format:
            changes[CHECKPOINT_FORMAT] = str(self.checkpoint_format)
        return changes

    def _run(
        self,
        target: Location,
        batch: int,
        record: Record,
        local_dir: Path | None,
        run: Mapping[str, Any],
    ) -> dict[StoreRef, Moved]:
        conf = self._view.conf
        move = Move(
            source=self._location,
            source_batch=self.batch,
            target=target,
            batch=batch,
            checkpoint_format=self.checkpoint_format,
            conf=replace(conf, entry=conf.entry.with_conf(self._conf)),
            results=record.results,
            token=record.name,
            memory_bytes=ReadLimits().memory_bytes,
            local_dir=None if local_dir is None else str(local_dir),
        )
        return run_move(move, self.stores, **run)

    def _list_batches(self) -> Batches:
        batches, hold = list_unheld(self._checkpoint)
        if hold is not None and self._target is not None:
            raise hold
        return batches

    def _watching(
        self, progress: Callable[[MoveProgress], None] | None
    ) -> Callable[[MoveProgress], None]:
        """Return what reports progress, and ends the move soon if a driver goes on at the source.

        The source is only read, so nothing there keeps drivers away.
        """
        looked_ns = self._clock.monotonic_ns()

        def report(done: MoveProgress) -> None:
            nonlocal looked_ns
            if progress is not None:
                progress(done)
            now_ns = self._clock.monotonic_ns()
            if now_ns - looked_ns > _LOOK_EVERY_S * 1_000_000_000:
                looked_ns = now_ns
                with suppress(RetryableError):  # the look at the end decides
                    self._require_same_logs()

        return report

    def _require_same_logs(self) -> None:
        if self._list_batches() != self._batches:
            raise InUseError(
                "the query has gone on while its state was moved",
                object_name=self._checkpoint.url,
                next_step="stop it, delete the new checkpoint, and repeat the command",
            )
