"""repair: a query that cannot go on, or whose snapshots are damaged, goes on again.

Layer: offline.  Spec: docs/reader.md#repair. Two things mend a checkpoint: a new snapshot around a
damaged one, and, where nothing else leads on, the way back to the last batch that is whole.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from cairn.errors import CorruptError, DataError, InUseError, MissingError, NotThereError
from cairn.format import changelog
from cairn.format.names import CHANGELOG_PREFIX, ChangelogName, manifest_name, parse_name
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX, batch_of, encode_offsets
from cairn.offline.hold import HeldCheckpoint, list_unheld
from cairn.offline.new_snapshot import StoreEngine
from cairn.offline.parallel import in_parallel
from cairn.offline.plan import Plan
from cairn.offline.record import Record
from cairn.offline.spark_files import leads_on, plan_before
from cairn.offline.stores import cairn_stores
from cairn.reader.batch import BatchView
from cairn.reader.spark.logs import Batches, read_conf
from cairn.reader.verify import check_logs, read_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from cairn.clock import Clock
    from cairn.errors import CairnError
    from cairn.offline.stores import Look, PartitionStore
    from cairn.reader.findings import Place
    from cairn.reader.stores.base import ReadLimits
    from cairn.reader.verify import Ids, Progress
    from cairn.storage.base import ObjectStore

Action = Literal["take-snapshot", "remove-entry", "put-back", "set-aside", "not-needed", "none"]
_THREADS = 4
_RESTORE = "restore it from the bucket's versions or a backup, if an older batch matters"
_NOT_WHOLE = "choose another batch, or restore it from the bucket's versions or a backup"
_NONE_IS_WHOLE = (
    "no batch is whole; restore it from the bucket's versions or a backup, or start the query with "
    "a new checkpoint"
)
_NOT_COMMITTED = (
    "if entries of the commit log were deleted, restore them; otherwise start the query with a new "
    "checkpoint"
)
# Once the entries that do not lead on are gone, these are no more.
_MENDED_BY_REMOVAL = frozenset({"planned-ahead", "commit-without-plan"})


@dataclass(frozen=True, slots=True)
class Step:
    """What a repair does, or leaves.

    Attributes:
        action: ``take-snapshot`` of a store at a batch; ``remove-entry`` of Spark's logs, or what
            Spark's metadata say of a later batch; ``put-back`` of an entry or another file;
            ``set-aside``: an object that would stop the batch that has to write it;
            ``not-needed``: older batches alone need the object; ``none``: it is not mended here.
        place: the store, if it is one.
        batch: the batch.
        object_name: the object that is damaged, or goes.
        reason: why.
    """

    action: Action
    place: Place | None
    batch: int | None
    object_name: str | None
    reason: str

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {**asdict(self), "place": None if self.place is None else str(self.place)}


class RepairPlan(Plan):
    """What would mend a checkpoint; ``apply`` does it.

    Making it reads the whole state of the newest batch, and of older ones the stores that cannot be
    read at the newest.

    Args:
        checkpoint: at the query's checkpoint location.
        limits: of the memory of reads.
        clock: tells the time.
        progress: called with the number of partitions of stores that were read, and of all.
        to_batch: go back to this one, whatever is whole; ``None``: to the last one that is whole.

    Attributes:
        batch: the query goes on behind this one; ``None``: no batch is whole.
        steps: what ``apply`` does.
        left: what it leaves as it is.

    Raises:
        UnsupportedStateError: it is a checkpoint of Spark's own provider.
        InUseError: the query goes on meanwhile.
        NotThereError: ``to_batch`` is not committed, or its entries are gone.
    """

    def __init__(
        self,
        checkpoint: ObjectStore,
        limits: ReadLimits,
        clock: Clock,
        progress: Progress | None = None,
        *,
        to_batch: int | None = None,
    ) -> None:
        super().__init__(checkpoint, clock)
        self._command = "repair" if to_batch is None else "restore"
        self._limits = limits
        self._batches, hold = list_unheld(checkpoint)
        self._candidates = self._batches.committed[::-1]
        if to_batch is not None:
            self._candidates = (self._require_committed(to_batch),)
        self.batch: int | None = None
        self._stores: dict[Place, PartitionStore] = {}
        self._looks: dict[Place, Look] = {}
        self._put_back: dict[str, bytes] = {}
        in_the_way = list(self._find_whole_batch(progress))
        self._mending = tuple(self._steps())
        self.steps = self._mending
        if hold is not None:
            # Whoever holds the checkpoint next does it.
            reason = f"{hold.message}: it is removed if that process has ended"
            self.steps += (Step("remove-entry", None, None, hold.object_name, reason),)
        self.left = tuple(self._left(in_the_way))

    # -- the plan --------------------------------------------------------------------------------

    def _find_whole_batch(self, progress: Progress | None) -> Iterator[Step]:
        """Set the last whole batch with what its stores look like; yield what is in the way."""
        ids = read_ids(self._checkpoint, self._batches.committed)
        suspects: set[Place] = set()
        failures: dict[str | None, Step] = {}
        for batch in self._candidates:
            try:
                view = BatchView(self._checkpoint, batch)
                stores = {store.place: store for store in cairn_stores(view)}
            except (CorruptError, MissingError) as failure:
                failures[failure.object_name] = self._failed(failure, None, batch)
                continue
            # Those that cannot be read at a newer batch first; if they can at this one, the others.
            looks = self._look(stores, ids, suspects, progress) if suspects else {}
            if not any(look.failure for look in looks.values()):
                looks |= self._look(stores, ids, stores.keys() - suspects, progress)
            bad = {place: look.failure for place, look in looks.items() if look.failure}
            if not bad:
                self.batch, self._stores, self._looks = batch, stores, looks
                break
            suspects |= bad.keys()
            for place, why in bad.items():
                failures[why.object_name] = self._failed(why, place, batch)
        self._require_same_logs()
        yield from failures.values()

    def _failed(self, failure: CairnError, place: Place | None, batch: int) -> Step:
        """Return why a batch is none to go back to."""
        cure = _NONE_IS_WHOLE if self._command == "repair" else _NOT_WHOLE
        return Step("none", place, batch, failure.object_name, f"{failure.message}: {cure}")

    def _require_committed(self, batch: int) -> int:
        committed = self._batches.committed
        if batch in committed:
            return batch
        there = f"{committed[0]} to {committed[-1]}" if committed else "none"
        raise NotThereError(
            f"there is no batch {batch} to go back to; committed are: {there}",
            object_name=self._checkpoint.object_url(COMMITS_PREFIX),
            next_step="choose one of these",
        )

    def _look(
        self,
        stores: Mapping[Place, PartitionStore],
        ids: Ids,
        places: Collection[Place],
        progress: Progress | None,
    ) -> dict[Place, Look]:
        chosen = [place for place in stores if place in places]
        looks = in_parallel(
            lambda place: stores[place].look(ids, self._limits),
            chosen,
            threads=_THREADS,
            progress=progress,
        )
        return dict(zip(chosen, looks, strict=True))

    def _require_same_logs(self) -> None:
        """Require that retention has not deleted what was read: then nothing is known."""
        if list_unheld(self._checkpoint)[0] != self._batches:
            raise InUseError(
                "the query has gone on while its state was read",
                object_name=self._checkpoint.url,
                next_step="stop the query, and repeat the command",
            )

    def _steps(self) -> Iterator[Step]:
        if self._batches == Batches((0,), (), ()):
            yield from self._unreadable_plan(0)
        if self.batch is None:
            return
        for place, store in self._stores.items():
            damaged = self._looks[place].damaged
            if damaged and _needs_snapshot(store, damaged):
                name, message = next(iter(damaged.items()))
                others = f", and {len(damaged) - 1} others" if len(damaged) > 1 else ""
                reason = f"around what is damaged: {message}{others}"
                yield Step("take-snapshot", place, self.batch, name, reason)
            if store.checkpoint_format == 1:
                yield from _obstacles(store, self.batch)
        yield from self._needless_entries()

    def _needless_entries(self) -> Iterator[Step]:
        """Yield the entries of Spark's logs that do not lead on from the last whole batch."""
        assert self.batch is not None  # noqa: S101 - the caller has looked
        back = f"the query goes on behind batch {self.batch}"
        if self._command == "repair":
            back += ", the last one that is whole"
        for batch in reversed(self._batches.all_commits):
            if batch > self.batch:
                yield self._removal(COMMITS_PREFIX, batch, back)
        for batch in reversed(self._batches.planned):
            if batch > self.batch + 1:
                yield self._removal(OFFSETS_PREFIX, batch, back)
            elif batch == self.batch + 1:
                yield from self._unreadable_plan(batch)
        view = BatchView(self._checkpoint, self.batch)
        for key in later_metadata(self._checkpoint, view):
            url = self._checkpoint.object_url(key)
            yield Step("remove-entry", None, self.batch, url, back)
        yield from self._plan_before(view)

    def _unreadable_plan(self, batch: int) -> Iterator[Step]:
        """Yield the removal of a plan that does not lead on, or was cut.

        Otherwise the batch has the same input again.

        Raises:
            FormatVersionError: a newer Spark has planned the batch.
        """
        try:
            planned = read_conf(self._checkpoint, batch)
            if self.batch is None or leads_on(
                read_conf(self._checkpoint, self.batch).entry, planned.entry
            ):
                return
            reason = "it is planned for another form of the state"
        except CorruptError as failure:
            reason = f"it cannot be read: {failure.message}"
        yield self._removal(OFFSETS_PREFIX, batch, reason)

    def _plan_before(self, view: BatchView) -> Iterator[Step]:
        """Yield the writing of the plan before the batch, if Spark needs it and it is gone."""
        before = view.batch - 1
        entry = plan_before(view)
        if entry is None or before in self._batches.planned:
            return
        key = f"{OFFSETS_PREFIX}{before}"
        self._put_back[self._checkpoint.object_url(key)] = encode_offsets(entry)
        reason = f"without it Spark does not start behind batch {view.batch}"
        yield Step("put-back", None, before, self._checkpoint.object_url(key), reason)

    def _removal(self, prefix: str, batch: int, reason: str) -> Step:
        name = self._checkpoint.object_url(f"{prefix}{batch}")
        return Step("remove-entry", None, batch, name, reason)

    def _left(self, in_the_way: Iterable[Step]) -> Iterator[Step]:
        """Yield what the steps do not mend."""
        mended = {step.object_name for step in self.steps}
        if self.batch is None:
            yield from in_the_way
        around = {step.place for step in self.steps if step.action == "take-snapshot"}
        for place, look in self._looks.items():
            if place not in around:
                for name, message in look.damaged.items():
                    reason = f"{message}: batch {self.batch} does not need it; {_RESTORE}"
                    yield Step("not-needed", place, self.batch, name, reason)
        for one in check_logs(self._checkpoint, self._batches):
            cure = one.cure
            if one.rule in _MENDED_BY_REMOVAL:
                if self.batch is None:
                    cure = _NOT_COMMITTED
                elif (one.batch or 0) > self.batch:
                    continue
            if one.object_name not in mended:
                reason = f"{one.message}: {cure}"
                yield Step("none", None, one.batch, one.object_name, reason)

    # -- its execution ---------------------------------------------------------------------------

    def apply(
        self, *, local_dir: Path | None = None, progress: Progress | None = None
    ) -> tuple[Step, ...]:
        """Carry the steps out, while no driver runs on the checkpoint.

        Args:
            local_dir: on the local disk, for new snapshots: as large as the largest partition.
                ``None``: the folder of temporary files.
            progress: called with the number of steps that were carried out, and of all.

        Returns:
            What is left as it was.

        Raises:
            NotThereError: ``to_batch`` cannot be read: ``left`` says why.
            InUseError: a driver seems to run, or the checkpoint is no longer that of the plan.
            CairnError: some steps are carried out; make a new plan.
        """
        if self._command == "restore" and self.batch is None:
            raise NotThereError(
                f"there is no way back to batch {self._candidates[0]}: {self.left[0].reason}",
                object_name=self.left[0].object_name,
                next_step="`cairn verify` shows all that is missing",
            )
        if not self.steps:
            return self.left
        with HeldCheckpoint(self._checkpoint, self._command, self._clock) as held:
            if held.batches != self._batches:
                raise InUseError(
                    "the query has gone on since the plan was made",
                    object_name=self._checkpoint.url,
                    next_step="stop the query, and repeat the command",
                )
            record = Record(
                self._checkpoint,
                self._command,
                held.token,
                [one.as_json() for one in self.steps],
                self._clock,
            )
            removed: set[int] = set()
            with StoreEngine(local_dir, held.token) as engine:
                for done, step in enumerate(self._mending, 1):
                    self._carry_out(step, record, engine)
                    if step.object_name == self._checkpoint.object_url(
                        f"{COMMITS_PREFIX}{step.batch}"
                    ):
                        removed.add(step.batch or 0)
                    if progress is not None:
                        progress(done, len(self._mending))
            held.check(removed)
            record.end([one.as_json() for one in self.steps])
        return self.left

    def _carry_out(self, step: Step, record: Record, engine: StoreEngine) -> None:
        if step.action == "take-snapshot" and step.place is not None:
            store = self._stores[step.place]
            with store.open() as root:
                own = manifest_name(store.newest(store.versions(root)))
                if any(info.key == own for info in root.list(own)):
                    # It is damaged, and a version has one name for its snapshot.
                    record.keep(f"{store.folder}/{own}")
                    root.delete([own])
            engine.take_snapshot(store.open(), store.id, store.version, store.checkpoint_id)
            return
        key = (step.object_name or "").removeprefix(self._checkpoint.object_url(""))
        if step.action == "put-back":
            self._checkpoint.put(key, self._put_back[self._checkpoint.object_url(key)])
            return
        record.keep(key)
        self._checkpoint.delete([key])


def later_metadata(checkpoint: ObjectStore, view: BatchView) -> Iterator[str]:
    """Yield the metadata of operators that later batches have written.

    Spark reads the newest up to a batch, and replaces none: once the query is there again, it would
    read what the batches that were given up have left.
    """
    for operator in view.operators:
        folder = f"state/{operator.id}/_metadata/v2/"
        for info in checkpoint.list(folder):
            batch = batch_of(info.key.removeprefix(folder))
            if batch is not None and batch > view.batch:
                yield info.key


def _needs_snapshot(store: PartitionStore, damaged: Mapping[str | None, str]) -> bool:
    """Return whether the version has no snapshot of its own that is whole."""
    with store.open() as root:
        versions = store.versions(root)
        try:
            manifest = versions.fetch_manifest(store.newest(versions))
        except DataError:
            return True
        needed = {root.object_url(file.object_name) for file in manifest.files}
        return not needed.isdisjoint(damaged)


def _obstacles(store: PartitionStore, batch: int) -> Iterator[Step]:
    """Yield the damaged changelogs of later versions: in format 1 a commit cannot replace them."""
    with store.open() as root:
        for info in root.list(CHANGELOG_PREFIX):
            name = parse_name(info.key)
            if not isinstance(name, ChangelogName) or name.checkpoint_id is not None:
                continue
            if name.version <= store.version:
                continue
            url = root.object_url(info.key)
            try:
                data = root.get(info.key, max_bytes=changelog.MAX_OBJECT_BYTES).data
                changelog.decode(data, object_name=url, store=store.id, version=name.version)
            except MissingError:
                continue
            except CorruptError as failure:
                reason = f"batch {name.version - 1} could not replace it: {failure.message}"
                yield Step("set-aside", store.place, batch, url, reason)
            except DataError:
                continue  # of another release or program: nobody but a person may move it
