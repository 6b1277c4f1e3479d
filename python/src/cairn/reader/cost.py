"""Cost: what a checkpoint on S3 costs per month, where it goes, and what would lower it.

Layer: reader.  Spec: docs/reader.md#cost.

*Measured* are objects and bytes (``footprint``), the commits and snapshots per batch, by the
objects that they left, commits without rows (``idle``), and the time between batches, by Spark's
log. *Estimated* are requests: these numbers times what an event needs (``request_rates``), as if
the query ran without a pause. Starts of the query, loads, repeated requests and transfer out of the
region are not counted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from cairn.errors import ConfigError, DataError
from cairn.reader.footprint import Footprint, measure
from cairn.reader.idle import empty_share
from cairn.reader.prices import Prices, Requests, default_prices
from cairn.reader.request_rates import (
    COMMIT,
    FILE_MANAGERS,
    LOGS,
    PURGE,
    PURGE_INTERVAL_S,
    PURGED,
    PURGED_IN_FORMAT_1,
    SNAPSHOT,
    SOURCE_LOG_FROM_BATCH,
    SOURCE_LOG_OF_CAIRN,
    SWEEP,
    SWEEP_INTERVAL_S,
    FileManager,
    log_file,
    state_file,
    upload,
)
from cairn.reader.spark.logs import list_batches, read_conf

if TYPE_CHECKING:
    from cairn.reader.batch import BatchView
    from cairn.reader.spark.logs import Batches
    from cairn.storage.base import ObjectStore

Source: TypeAlias = Literal["measured", "estimated", "assumed", "given"]

MONTH_S: Final = 730 * 3600
"""As AWS bills: 730 hours."""
_INTERVAL_MIN_S: Final = 1e-6
"""Less than between any two batches, and so much that the rates of a month are finite."""
_TIMED_BATCHES: Final = 21
_THREADS: Final = 8
_MOSTLY: Final = 0.5
_FEW_VERSIONS: Final = 10
MANAGERS: Final[dict[FileManager, str]] = {
    "cairn": "io.cairn.spark.CairnCheckpointFileManager",
    "rename": "Spark's default, which writes by rename",
    "abortable": "that of spark-hadoop-cloud, which renames nothing",
}


@dataclass(frozen=True, slots=True)
class CostPart:
    """One part of the cost.

    Attributes:
        part: ``commits``: changelogs of stores that wrote; ``idle commits``: those of stores that
            did not; ``snapshots``: their manifests and files; ``retention``: purges and sweeps of
            Cairn's; ``logs``: Spark's own files; ``other``: what none of these is; ``total``.
        objects: that are stored now; measured.
        bytes: that are stored now; measured.
        requests: per batch, by kind.
        requests_are: ``measured``, by the objects that they left, or ``estimated``.
        storage_price: of the bytes, per month.
        request_price: per month.
    """

    part: str
    objects: int
    bytes: int
    requests: Requests
    requests_are: Source
    storage_price: float
    request_price: float

    @property
    def price(self) -> float:
        """Of bytes and requests, per month."""
        return self.storage_price + self.request_price


@dataclass(frozen=True, slots=True)
class Fact:
    """What a figure of the cost rests on.

    Attributes:
        name: stable.
        value: as text.
        source: ``measured`` from the checkpoint, ``estimated``, ``assumed``, or ``given`` by the
            caller.
        meaning: what it is, and where it comes from.
    """

    name: str
    value: str
    source: Source
    meaning: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What would lower the cost.

    Attributes:
        name: stable.
        saving: per month, at most; estimated.
        what: what to do, and what it costs otherwise.
    """

    name: str
    saving: float
    what: str


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a checkpoint.

    Attributes:
        parts: the last one is the total.
        facts: what they rest on.
        advice: the largest saving first.
        prices: the table.
        batches_per_month: at the interval of the facts.
    """

    parts: tuple[CostPart, ...]
    facts: tuple[Fact, ...]
    advice: tuple[Advice, ...]
    prices: Prices
    batches_per_month: float


def cost(
    objects: ObjectStore,
    view: BatchView,
    *,
    prices: Prices | None = None,
    interval_s: float | None = None,
    file_manager: FileManager | None = None,
) -> Cost:
    """Return the cost; see ``Checkpoint.cost``."""
    if interval_s is not None and not interval_s >= _INTERVAL_MIN_S:
        raise ConfigError(f"the interval must be {_INTERVAL_MIN_S} s or more, not {interval_s}")
    if file_manager is not None and file_manager not in FILE_MANAGERS:
        raise ConfigError(f"the file manager is not one of {', '.join(FILE_MANAGERS)}")
    batches = list_batches(objects)
    footprint = measure(objects, view, batches.committed)
    timed = _timed(objects, batches) if interval_s is None else interval_s
    estimate = _Estimate(
        objects,
        view,
        footprint,
        batches=len(batches.committed),
        interval_s=timed,
        prices=prices or default_prices(),
        file_manager=file_manager or ("cairn" if view.provider == "cairn" else "rename"),
    )
    given: Source = "measured" if interval_s is None else "given"
    chosen: Source = "assumed" if file_manager is None else "given"
    facts = estimate.facts(given, chosen, "assumed" if prices is None else "given")
    return Cost(
        estimate.parts, facts, estimate.advice(), estimate.prices, MONTH_S / estimate.interval_s
    )


def _timed(objects: ObjectStore, batches: Batches) -> float:
    """Return the median time between the last batches, by the times that Spark has logged.

    The times of the objects would be those of a copy.
    """
    newest = batches.planned[-_TIMED_BATCHES:]
    with ThreadPoolExecutor(_THREADS, "cairn-cost") as threads:
        times = list(threads.map(partial(_planned_ms, objects), newest))
    known = [(batch, ms) for batch, ms in zip(newest, times, strict=True) if ms]
    gaps = [
        (after_ms - before_ms) / 1000 / (after - before)
        for (before, before_ms), (after, after_ms) in pairwise(known)
        if after_ms > before_ms
    ]
    if not gaps:
        raise ConfigError(
            "the log of the query does not say how long it is between two batches",
            object_name=objects.object_url("offsets/"),
            next_step="give the interval: cairn cost --interval SECONDS",
        )
    return median(gaps)


def _planned_ms(objects: ObjectStore, batch: int) -> int | None:
    try:
        return read_conf(objects, batch).entry.timestamp_ms
    except DataError:  # deleted since the listing, or the entry that is being written
        return None


class _Estimate:
    """The parts of the cost; REQUIRES: there is a committed batch."""

    def __init__(
        self,
        objects: ObjectStore,
        view: BatchView,
        footprint: Footprint,
        *,
        batches: int,
        interval_s: float,
        prices: Prices,
        file_manager: FileManager,
    ) -> None:
        self.prices = prices
        self.interval_s = interval_s
        self._view = view
        self._footprint = footprint
        self._batches = batches
        self._manager: FileManager = file_manager
        self._is_cairn = view.provider == "cairn"
        self._stores = sum(view.partitions(one) * len(one.stores) for one in view.operators)
        self._empty_share, self._empty_bytes = empty_share(
            objects, view.provider, footprint.sampled
        )
        self._sst_upload = upload(footprint.bytes["ssts"] / max(footprint.objects["ssts"], 1))
        self.parts = self._all_parts()

    # -- numbers per batch -------------------------------------------------------------------------

    @property
    def _commits(self) -> float:
        """Objects of commits."""
        return self._footprint.commits / self._batches

    @property
    def _snapshots(self) -> float:
        return self._footprint.snapshots / self._batches

    @property
    def _ssts(self) -> float:
        """New files: as many per snapshot as those that are there have."""
        footprint = self._footprint
        if footprint.all_snapshots:
            return self._snapshots * footprint.objects["ssts"] / footprint.all_snapshots
        return self._commits * footprint.objects["ssts"] / max(footprint.objects["commits"], 1)

    @property
    def _idle_share(self) -> float:
        """The share of stores that a batch changes nothing in."""
        written = self._commits * (1 - self._empty_share)
        return max(0.0, 1 - written / self._stores) if self._stores else 0.0

    def _log_requests(self, manager: FileManager) -> Requests:
        sources = self._footprint.source_entries / self._batches
        result = log_file(manager).times(LOGS + sources)
        if manager == "cairn" and self._view.batch >= SOURCE_LOG_FROM_BATCH:
            result += SOURCE_LOG_OF_CAIRN.times(sources)
        return result

    def _retention(self) -> Requests:
        if not self._is_cairn:
            return Requests()
        writers = len(self._footprint.writers)
        result = PURGE.times(writers * self.interval_s / PURGE_INTERVAL_S)
        result += SWEEP.times(writers * self.interval_s / SWEEP_INTERVAL_S)
        result += PURGED.times(self._commits)
        if self._view.checkpoint_format == 1:
            result += PURGED_IN_FORMAT_1.times(self._commits)
        return result

    # -- parts -------------------------------------------------------------------------------------

    def _all_parts(self) -> tuple[CostPart, ...]:
        counts, sizes = self._footprint.objects, self._footprint.bytes
        manager = self._manager
        commit = COMMIT if self._is_cairn else state_file(manager, is_snapshot=False)
        # Since Spark 4.1 its providers write a file with a checksum beside each of their files.
        files = 1 + self._footprint.checksums / max(self._footprint.commits, 1)
        of_idle = commit.times(files * self._commits * self._empty_share)
        of_others = commit.times(files * self._commits * (1 - self._empty_share))
        snapshot = SNAPSHOT if self._is_cairn else state_file(manager, is_snapshot=True)
        snapshots = snapshot.times(files * self._snapshots) + self._sst_upload.times(self._ssts)
        if not self._snapshots:  # each commit of Spark's RocksDB may be a snapshot: its files
            of_others, snapshots = of_others + snapshots, Requests()
        idle = round(counts["commits"] * self._empty_share)
        idle_bytes = round(sizes["commits"] * self._empty_bytes)
        source: Source = "measured" if self._is_cairn else "estimated"
        of_snapshots = counts["snapshots"] + counts["ssts"], sizes["snapshots"] + sizes["ssts"]
        others = counts["commits"] - idle, sizes["commits"] - idle_bytes
        parts = (
            self._part("commits", others, of_others, source),
            self._part("idle commits", (idle, idle_bytes), of_idle, source),
            self._part("snapshots", of_snapshots, snapshots),
            self._part("retention", (0, 0), self._retention()),
            self._part("logs", (counts["logs"], sizes["logs"]), self._log_requests(manager)),
            self._part("other", (counts["other"], sizes["other"]), Requests()),
        )
        total = CostPart(
            "total",
            sum(one.objects for one in parts),
            sum(one.bytes for one in parts),
            sum((one.requests for one in parts), Requests()),
            "estimated",
            sum(one.storage_price for one in parts),
            sum(one.request_price for one in parts),
        )
        return (*parts, total)

    def _part(
        self, name: str, stored: tuple[int, int], requests: Requests, source: Source = "estimated"
    ) -> CostPart:
        storage = self.prices.of_bytes(stored[1])
        return CostPart(name, *stored, requests, source, storage, self._monthly(requests))

    def _monthly(self, requests: Requests) -> float:
        return self.prices.of_requests(requests) * MONTH_S / self.interval_s

    def part(self, name: str) -> CostPart:
        """Return a part."""
        return next(one for one in self.parts if one.part == name)

    # -- facts and advice --------------------------------------------------------------------------

    def facts(self, interval: Source, manager: Source, prices: Source) -> tuple[Fact, ...]:
        """Return what the parts rest on."""
        view, table = self._view, self.prices
        writers = len(self._footprint.writers)
        return (
            Fact("provider", view.provider, "measured", "whose files the state is in"),
            Fact("format", str(view.checkpoint_format), "measured", "Spark's checkpoint format"),
            Fact("batches", str(self._batches), "measured", "counted: those of the commit log"),
            Fact(
                "interval_s",
                f"{self.interval_s:.3f}",
                interval,
                "seconds between two batches; if measured, the median of the last "
                f"{_TIMED_BATCHES - 1} or fewer in Spark's log",
            ),
            Fact(
                "batches_per_month",
                f"{MONTH_S / self.interval_s:.0f}",
                "estimated",
                "in 730 hours at that interval, without a pause",
            ),
            Fact("stores", str(self._stores), "measured", "partitions, times stores per partition"),
            Fact(
                "commits_per_batch",
                f"{self._commits:.3f}",
                "measured",
                "objects that the commits of a batch have left, without those of checksums",
            ),
            Fact(
                "idle_share",
                f"{self._idle_share:.3f}",
                self._idle_source,
                "share of the stores in which a batch changes nothing",
            ),
            Fact(
                "idle_stores",
                str(max(0, self._stores - writers)),
                "measured",
                "stores without an object of a commit in all these batches",
            ),
            Fact(
                "snapshots_per_batch",
                f"{self._snapshots:.3f}",
                "measured",
                "snapshots of these batches that are still stored",
            ),
            Fact(
                "ssts_per_batch",
                f"{self._ssts:.3f}",
                "estimated",
                "new SST files: stored files per stored snapshot",
            ),
            Fact(
                "file_manager",
                self._manager,
                manager,
                f"{MANAGERS[self._manager]}; a checkpoint does not say which one the query has",
            ),
            Fact(
                "prices",
                f"{table.name}, {table.currency}, {table.date}",
                prices,
                table.source or "the table does not say where they are from",
            ),
        )

    @property
    def _idle_source(self) -> Source:
        is_whole = len(self._footprint.sampled) >= self._footprint.commits
        return "measured" if is_whole else "estimated"

    def advice(self) -> tuple[Advice, ...]:
        """Return what would save anything."""
        found = (
            self._fewer_idle_commits(),
            self._file_manager(),
            self._longer_trigger(),
            self._cairn(),
            self._fewer_versions(),
        )
        useful = [one for one in found if one is not None and one.saving > 0]
        return tuple(sorted(useful, key=lambda one: -one.saving))

    def _fewer_idle_commits(self) -> Advice | None:
        idle = self.part("idle commits")
        if self._is_cairn:
            return Advice(
                "checkpoint-format-2",
                idle.price,
                "checkpoint format 2, in which a store without writes in a batch writes nothing: "
                "spark.sql.streaming.stateStore.checkpointFormatVersion=2; a query keeps its "
                "format, so it needs a new checkpoint",
            )
        if self._idle_share < _MOSTLY:
            return None
        return Advice(
            "fewer-partitions",
            idle.price,
            f"{self._idle_share:.0%} of the commits have no rows: fewer "
            "spark.sql.shuffle.partitions; a query keeps its number, so it needs a new checkpoint "
            "or Spark's offline repartition",
        )

    def _file_manager(self) -> Advice | None:
        if self._manager == "cairn":
            return None
        after = self._monthly(self._log_requests("cairn"))
        return Advice(
            "file-manager",
            self.part("logs").request_price - after,
            "Spark's own files by one request each: spark.sql.streaming.checkpointFileManagerClass="
            f"{MANAGERS['cairn']}, from the next start on",
        )

    def _longer_trigger(self) -> Advice:
        logs, idle = self.part("logs").request_price, self.part("idle commits").request_price
        return Advice(
            "longer-trigger",
            (logs + idle + self.part("commits").request_price) / 2,
            f"a trigger interval of {2 * self.interval_s:.3g} s, not {self.interval_s:.3g} s: half "
            "as many commits and entries of logs; results come later",
        )

    def _cairn(self) -> Advice | None:
        if self._is_cairn:
            return None
        before = self.part("commits").request_price + self.part("idle commits").request_price
        written = self._commits * (1 - self._empty_share)
        return Advice(
            "cairn-provider",
            before - self._monthly(COMMIT.times(written)),
            "Cairn's provider in checkpoint format 2, whose commit is one request, and none "
            "without writes (cairn conf prints the settings); a query keeps its provider, so it "
            "needs a new checkpoint",
        )

    def _fewer_versions(self) -> Advice | None:
        if self._batches <= _FEW_VERSIONS:
            return None
        stored = self.part("commits").storage_price + self.part("idle commits").storage_price
        return Advice(
            "retention",
            stored * (1 - _FEW_VERSIONS / self._batches),
            f"spark.sql.streaming.minBatchesToRetain={_FEW_VERSIONS}: fewer old changelogs are "
            "stored; nobody can go back further than that",
        )
