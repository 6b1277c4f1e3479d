"""repartition: the state of a query in another number of partitions.

Layer: offline.  Spec: docs/moving.md#repartition. A batch without input is appended, whose state
has the same rows in the partitions of their keys' hash. Each row is read once and written once;
what was read and what was written, over all partitions, is compared.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.engine.directories import WorkerDirectories
from cairn.errors import ConfigError, CorruptError, UnsupportedStateError
from cairn.format.spark_log import PARTITIONS
from cairn.ids import StoreId
from cairn.offline.appended_batch import AppendedBatch, find_appended
from cairn.offline.move.moving import StoreRef, key_of_result, read_results
from cairn.offline.move.placement import Placement
from cairn.offline.move.running import (
    MoveProgress,
    kept_results,
    results_of,
    run_in_spark,
    run_move,
)
from cairn.offline.move.shuffle import Gather, Split, gather_in_spark
from cairn.offline.move.target import target_family
from cairn.offline.move.totals import MovedFamily, checkpoint_ids, totals
from cairn.offline.plan import CommittedPlan
from cairn.offline.spark_files import repartitioned_metadata
from cairn.reader.spark.logs import STRICT_DISTRIBUTION
from cairn.reader.spark.operators import metadata_key
from cairn.reader.stores.base import ReadLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from cairn.clock import Clock
    from cairn.offline.move.moving import Location, Moved
    from cairn.offline.record import Record
    from cairn.reader.families import Family
    from cairn.storage.base import ObjectStore

_COMMAND = "repartition"
_LIMIT = "globalLimit"
_METADATA_V2 = "/_metadata/v2/"
_WRITTEN = "/written"


class RepartitionPlan(CommittedPlan):
    """What a repartition does; ``apply`` does it. Close it, or use it in a ``with`` statement.

    Args:
        checkpoint: the query's checkpoint.
        partitions: the number that it will have.
        clock: tells the time.

    Attributes:
        batch: the last committed one, whose state gets other partitions.
        before: their present number.
        partitions: the number that there will be.
        stores: the operators' numbers, with the names of their stores.

    Raises:
        NotThereError: no batch is committed.
        UnsupportedStateError: it is the state of Spark's own provider, or it is not known to which
            partition a row belongs; names the operator.
        ConfigError: the number is not positive, or the present one.
        InUseError: another command makes the checkpoint.
    """

    def __init__(self, checkpoint: Location, partitions: int, clock: Clock) -> None:
        if partitions < 1:
            raise ConfigError(
                f"a query cannot have {partitions} partitions", next_step="choose 1 or more"
            )
        super().__init__(checkpoint, clock)
        self.partitions = partitions
        with self._closed_on_failure():
            self._require_own()
            families = [one for each in self._view.operators for one in self._view.families(each)]
            for family in families:
                _require_placed(family)
            self.stores = tuple(
                (operator.id, store.name)
                for operator in self._view.operators
                for store in operator.stores
            )
            self.before = self._number_before()
            self._unended = self._find_unended() if self.before == partitions else None
            if self.before == partitions and self._unended is None:
                raise ConfigError(
                    f"the query has {partitions} partitions already",
                    object_name=self._checkpoint.url,
                    next_step="choose another number",
                )

    def apply(
        self,
        *,
        session: Any = None,  # noqa: ANN401 - pyspark is no dependency
        processes: int | None = None,
        local_dir: Path | None = None,
        progress: Callable[[MoveProgress], None] | None = None,
    ) -> tuple[MovedFamily, ...]:
        """Change the number of partitions; return what was written and compared.

        If it is cut off, nothing has happened yet, and the same call goes on with the stores that
        are left. If only the end of its record was cut off, the same call completes that.

        Args:
            session: a ``SparkSession``, which shuffles the rows. Its executors need Cairn, and the
                rights to read and write the checkpoint. ``None``: processes of this machine.
            processes: how many; ``None``: one per processor.
            local_dir: on the local disk. Without a session as large as the rows of the largest
                operator, and of a new partition per process; with one, on each machine, as large
                as the new partitions that are written at a time. ``None``: the folder of temporary
                files.
            progress: called after each store that was read, and each one that was written, and
                every few seconds.

        Raises:
            InUseError: a driver seems to use the checkpoint, or its last batch is not committed.
            UnsupportedStateError: rows are not in the partitions of their keys' hash.
            CorruptError: the state cannot be read, or rows differ when they are read back.
            CairnError: nothing has changed for the query.
        """
        if self._unended is not None:
            done = totals(read_results(self._checkpoint, self._unended.results + _WRITTEN))
            self._unended.end([asdict(one) for one in done])
            return done
        work = {"before": self.before, "partitions": self.partitions}  # gc reads it
        with AppendedBatch(self._checkpoint, self._view, _COMMAND, work, self._clock) as batch:
            run = _Run(
                self._halves(batch.number, batch.record, local_dir),
                self._checkpoint,
                _Progress(progress, self._count(with_reads=session is None)),
                session,
                processes,
            )
            moved = run.all(self.stores, self._singles)
            done = totals(moved)
            self._write_metadata(batch.number)
            batch.finish(
                conf={PARTITIONS: str(self.partitions)},
                unique_ids=checkpoint_ids(moved, self._view.checkpoint_format),
                checkpoint_format=self._view.checkpoint_format,
                done=[asdict(one) for one in done],
            )
        return done

    def _find_unended(self) -> Record | None:
        """Return the record of a batch that was committed before its record had ended."""
        if not self.stores:
            return None
        operator, store = self.stores[0]
        return find_appended(
            self._view,
            _COMMAND,
            {"partitions": self.partitions},
            self._clock,
            lambda _: StoreId(operator, 0, store),
        )

    @property
    def _singles(self) -> frozenset[int]:
        """The operators without keys."""
        return frozenset(
            operator.id
            for operator in self._view.operators
            if self._view.families(operator)[0].is_single
        )

    def _count(self, *, with_reads: bool) -> int:
        """Return how many stores progress counts: of Spark's tasks those that were written."""
        counts = [
            (1, 1) if operator in self._singles else (self.before, self.partitions)
            for operator, _ in self.stores
        ]
        return sum(before * with_reads + after for before, after in counts)

    def _halves(self, batch: int, record: Record, local_dir: Path | None) -> _Halves:
        conf = self._view.conf
        changed = {PARTITIONS: str(self.partitions)}
        shared: dict[str, Any] = {
            "source": self._location,
            "source_batch": self.batch,
            "target": self._location,
            "batch": batch,
            "checkpoint_format": self._view.checkpoint_format,
            "conf": replace(conf, entry=conf.entry.with_conf(changed)),
            "token": record.name,
            "memory_bytes": ReadLimits().memory_bytes,
            "local_dir": None if local_dir is None else str(local_dir),
            "before": self.before,
            "after": self.partitions,
        }
        return _Halves(
            Split(results=f"{record.results}/read", **shared),
            Gather(results=record.results + _WRITTEN, **shared),
        )

    def _write_metadata(self, batch: int) -> None:
        """Store the operators' metadata with the new number, where Spark has it per batch."""
        for operator in self._view.operators:
            key = metadata_key(self._checkpoint, operator.id, self.batch)
            if key is not None and _METADATA_V2 in key:
                data = repartitioned_metadata(self._checkpoint, key, self.partitions)
                self._checkpoint.put(f"{key.rpartition('/')[0]}/{batch}", data)

    def _require_own(self) -> None:
        provider = self._view.provider
        if provider == "cairn":
            return
        step = "move the state to Cairn by `cairn migrate` first"
        if provider == "rocksdb":
            step = f"use Spark's own offline repartition (Spark 4.2 and later), or {step}"
        raise UnsupportedStateError(
            f"the state is in the files of Spark's own provider ({provider}), which get no other "
            "partitions here",
            object_name=self._checkpoint.url,
            next_step=step,
        )

    def _number_before(self) -> int:
        if not self._view.conf.flag(STRICT_DISTRIBUTION):
            raise UnsupportedStateError(
                f"{STRICT_DISTRIBUTION} is false: the query began before Spark 3.3, and its rows "
                "need not be in the partitions of their keys' hash",
                object_name=self._view.conf.object_name,
                next_step="start the query with a new checkpoint and the wanted number",
            )
        found = self._view.conf.partitions
        if found is None:
            raise CorruptError(
                f"{PARTITIONS} is not in the offset log", object_name=self._view.conf.object_name
            )
        return found


def _require_placed(family: Family) -> None:
    """Require that the partition of a family's rows is known, and that it can be written."""
    target_family(family, "cairn")
    if family.operator.name == _LIMIT:
        raise UnsupportedStateError(
            f"operator {family.operator.id} is a limit, whose only row Spark keeps in partition 0; "
            "Spark does not repartition it either",
            store=f"{family.operator.id}/{family.store.name}",
            next_step="start the query with a new checkpoint and the wanted number",
        )
    Placement(family)


@dataclass(frozen=True, slots=True)
class _Halves:
    """How stores are read, and how they are written."""

    split: Split
    gather: Gather


class _Progress:
    """Makes one progress of those of many runs."""

    def __init__(self, report: Callable[[MoveProgress], None] | None, stores: int) -> None:
        self._report = report
        self._of_stores = stores
        self._before = MoveProgress(0, stores, 0, 0, None)
        self._last = self._before

    def add(self, here: MoveProgress) -> None:
        """Take note of how far the present run is."""
        before = self._before
        left_s = None
        if here.seconds_left is not None and here.of_stores > here.stores:
            left = self._of_stores - before.stores - here.stores
            left_s = here.seconds_left / (here.of_stores - here.stores) * left
        self._last = MoveProgress(
            stores=before.stores + here.stores,
            of_stores=self._of_stores,
            rows=before.rows + here.rows,
            stored_bytes=before.stored_bytes + here.stored_bytes,
            seconds_left=left_s,
        )
        if self._report is not None:
            self._report(self._last)

    def end_run(self) -> None:
        """Let the next run begin."""
        self._before = self._last


@dataclass(frozen=True)
class _Run:
    """Reads and writes the stores, one store of an operator after the other, in all partitions.

    Attributes:
        halves: how.
        objects: at the checkpoint's location.
        progress: of all stores.
        session: a ``SparkSession``, or ``None``.
        processes: without a session; ``None``: one per processor.
    """

    halves: _Halves
    objects: ObjectStore
    progress: _Progress
    session: Any
    processes: int | None

    def all(
        self, stores: Iterable[tuple[int, str]], singles: Container[int]
    ) -> dict[StoreRef, Moved]:
        """Return what was written of all stores, which is what was read.

        Args:
            stores: of all operators.
            singles: operators without keys: Spark has stores of the first partition alone.
        """
        moved: dict[StoreRef, Moved] = {}
        # Also if nothing is left to do: it removes the folder of a killed process.
        with _spill_folder(self.halves.split.local_dir) as spill:
            for operator, store in stores:
                halves = self.halves
                if operator in singles:
                    halves = _Halves(
                        replace(halves.split, before=1, after=1),
                        replace(halves.gather, before=1, after=1),
                    )
                read, written = self._one(halves, operator, store, spill)
                _require_same(read, written)
                moved |= written
        return moved

    def _one(
        self, halves: _Halves, operator: int, store: str, spill: Path
    ) -> tuple[dict[StoreRef, Moved], dict[StoreRef, Moved]]:
        """Return what was read and what was written of one store.

        Args:
            halves: how.
            operator: its operator's number.
            store: Spark's name of it.
            spill: a folder on the local disk, for a folder of the spill files.
        """
        split, gather = halves.split, halves.gather
        sources = _refs(operator, store, split.before)
        targets = _refs(operator, store, gather.after)
        written = kept_results(self.objects, gather, targets)
        left = [ref for ref in targets if ref not in written]
        if not left:
            return results_of(self.objects, split, sources), written
        # What an earlier process has read is gone with it.
        self.objects.delete([key_of_result(split.results, ref) for ref in sources])
        if self.session is not None:
            written = run_in_spark(
                self.session,
                lambda: gather_in_spark(self.session, split, sources, gather, left),
                gather,
                targets,
                self.progress.add,
            )
            self.progress.end_run()
            return results_of(self.objects, split, sources), written
        # Of one store at a time: the disk has room for the largest one.
        with tempfile.TemporaryDirectory(dir=spill, ignore_cleanup_errors=True) as folder:
            read = self._here(replace(split, spill=folder), sources)
            return read, self._here(replace(gather, spill=folder), targets)

    def _here(self, half: Split | Gather, stores: list[StoreRef]) -> dict[StoreRef, Moved]:
        done = run_move(half, stores, processes=self.processes, progress=self.progress.add)
        self.progress.end_run()
        return done


def _refs(operator: int, store: str, partitions: int) -> list[StoreRef]:
    return [StoreRef(operator, store, partition) for partition in range(partitions)]


@contextmanager
def _spill_folder(local_dir: str | None) -> Iterator[Path]:
    """Make a folder for spill files on the local disk, and remove it."""
    temporary = Path(tempfile.gettempdir())
    parent = Path(local_dir or temporary / f"cairn-offline-{os.getuid()}")
    directories = WorkerDirectories(parent, temporary)
    try:
        folder = directories.instance_directory(0)
        folder.mkdir()
        yield folder
    finally:
        directories.remove()


def _require_same(read: Mapping[StoreRef, Moved], written: Mapping[StoreRef, Moved]) -> None:
    """Require that what was written is what was read, over all partitions."""
    for before, after in zip(totals(read), totals(written), strict=True):
        if before != replace(after, partitions=before.partitions):
            raise CorruptError(
                f"family {before.family!r} was read with {before.keys} keys, and written with "
                f"{after.keys}, or with other rows",
                store=f"{before.operator}/{before.store}",
                next_step="repeat the command; if it fails again, report it",
            )
