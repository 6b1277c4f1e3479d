"""clone: a new query goes on behind a batch of another one, at another place.

Layer: offline.  Spec: docs/moving.md#clone. Only what leads to the batch is copied. The source may
run; it is only read, but for pins that keep its retention away.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from cairn.checkpoint.reader_pins import ReaderPins
from cairn.clock import SYSTEM_ENTROPY
from cairn.errors import CairnError, CorruptError, MissingError, NotThereError
from cairn.format import manifest
from cairn.format.spark_log import COMMITS_PREFIX
from cairn.offline.hold import list_unheld
from cairn.offline.new_checkpoint import NewCheckpoint, find_begun, require_apart
from cairn.offline.parallel import in_parallel
from cairn.offline.plan import Plan
from cairn.offline.stores import PartitionStore
from cairn.offline.version_objects import VersionObjects, cairn_objects, spark_objects
from cairn.reader.batch import BatchView
from cairn.reader.saved_files import SavedFiles
from cairn.reader.savepoints import read_savepoint
from cairn.reader.stores.cairn import PinnedVersions
from cairn.storage.copying import copy_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.checkpoint.reader_pins import ReaderPin
    from cairn.clock import Clock
    from cairn.format.savepoint import Savepoint
    from cairn.ids import StoreId, VersionRef
    from cairn.offline.version_objects import StoreObject
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
COMMAND = "clone"
THREADS = 32
_ATTEMPTS = 3


class CopyProgress(Protocol):
    """Is called while objects are copied."""

    def __call__(self, done: int, count: int, done_bytes: int, count_bytes: int) -> None:
        """Take the number of objects that are copied, that of all, and the same in bytes."""


def _silent(done: int, count: int, done_bytes: int, count_bytes: int) -> None:
    """Show nothing."""


class ClonePlan(Plan):
    """What a clone takes; ``apply`` makes it.

    Making the plan reads headers, manifests and listings, of 32 stores at a time.

    Args:
        checkpoint: at the location of the query that is cloned; ``close`` closes it.
        target: at the place of the clone; ``close`` closes it, too.
        clock: tells the time.
        batch: a committed batch whose state is retained; ``None``: the newest, or that of a clone
            at ``target`` that was cut off.
        savepoint: its batch instead.
        keep_id: the clone has the query's id.

    Attributes:
        batch: the clone goes on behind it.
        savepoint: the name of the savepoint; ``None``: it is a batch of the logs.
        provider: whose state it is: ``cairn``, ``rocksdb`` or ``hdfs``.
        objects: the objects of the state that are copied.
        bytes: their size, without manifests.

    Raises:
        NotThereError: there is no such batch or savepoint, or its state is not retained any more.
        InUseError: a command changes the checkpoint, or has not finished it.
        ConfigError: one place is in the other one.
    """

    def __init__(
        self,
        checkpoint: ObjectStore,
        target: ObjectStore,
        clock: Clock,
        *,
        batch: int | None = None,
        savepoint: str | None = None,
        keep_id: bool = False,
    ) -> None:
        super().__init__(checkpoint, clock)
        target.cleans = False
        self._target = target
        self._keep_id = keep_id
        self.savepoint = savepoint
        require_apart(checkpoint, target)
        if batch is None and savepoint is None:
            batch = self._begun_batch()
        for attempt in range(1, _ATTEMPTS + 1):
            self._view, kept = self._open(batch)
            try:
                self._versions = self._look(kept)
            except NotThereError:
                # A query that runs may have left the newest batch behind meanwhile.
                if batch is not None or savepoint is not None or attempt == _ATTEMPTS:
                    raise
                continue
            break
        self.batch = self._view.batch
        self.provider = self._view.provider
        self.objects = tuple(one for version in self._versions for one in version.objects)
        self.bytes = sum(one.size_bytes for one in self.objects)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        super().close()
        self._target.close()

    # -- the plan --------------------------------------------------------------------------------

    def _begun_batch(self) -> int | None:
        """Return the batch of a clone of this query that was begun at the target."""
        found = find_begun(
            self._target, COMMAND, {"source": self._checkpoint.origin, "savepoint": None}
        )
        batch = None if found is None else found.steps[0].get("batch")
        return batch if isinstance(batch, int) else None

    def _open(self, batch: int | None) -> tuple[BatchView, Savepoint | None]:
        checkpoint = self._checkpoint
        if self.savepoint is not None:
            kept = read_savepoint(checkpoint, self.savepoint)
            return BatchView(SavedFiles(checkpoint, kept), kept.batch), kept
        found, held = list_unheld(checkpoint)
        if held is not None:
            raise held
        committed = found.committed
        chosen = max(committed, default=-1) if batch is None else batch
        if chosen not in committed:
            there = f"{committed[0]} to {committed[-1]}" if committed else "none"
            raise NotThereError(
                f"there is no batch {chosen} to clone; committed are: {there}",
                object_name=checkpoint.object_url(COMMITS_PREFIX),
                next_step="choose one of these, or a savepoint",
            )
        return BatchView(checkpoint, chosen), None

    def _look(self, kept: Savepoint | None) -> list[VersionObjects]:
        """Return what leads to the batch in each store.

        Raises:
            NotThereError: a part of it is gone.
        """
        view = self._view
        refs: dict[StoreId, VersionRef] = {}
        if kept is not None:
            refs = {one.store: one.ref for one in kept.stores}

        def look(at: PartitionStore) -> VersionObjects:
            if view.provider != "cairn":
                return spark_objects(at)
            return cairn_objects(at, refs.get(at.id))

        stores = [
            PartitionStore(view.place(operator, store), partition)
            for operator in view.operators
            for store in operator.stores
            for partition in range(view.partitions(operator))
        ]
        try:
            return in_parallel(look, stores, threads=THREADS)
        except MissingError as failure:
            raise self._gone(failure) from failure

    def _gone(self, failure: MissingError) -> NotThereError:
        batch = self._view.batch
        if self.savepoint is not None:
            message = f"the savepoint lacks an object of batch {batch}: {failure.message}"
            step = "`cairn verify` shows what else is missing; restore it from a backup, or choose "
            step += "another savepoint"
        else:
            message = f"the state of batch {batch} is not all there: {failure.message}"
            step = "if the query runs, it may have deleted it: choose a later batch, "
            step += (
                "or a savepoint (`cairn savepoint create`)"
                if self._view.provider == "cairn"
                else "raise spark.sql.streaming.minBatchesToRetain, or stop the query meanwhile"
            )
            step += "; otherwise `cairn verify` shows what is missing"
        return NotThereError(
            message,
            store=failure.store,
            version=failure.version,
            object_name=failure.object_name,
            next_step=step,
        )

    # -- its execution ---------------------------------------------------------------------------

    def apply(self, progress: CopyProgress = _silent) -> None:
        """Make the clone.

        Args:
            progress: called while the state is copied.

        Raises:
            AlreadyExistsError: the place is not empty.
            InUseError: another command makes a checkpoint there, or a driver uses it.
            NotThereError: the query has deleted a part of the batch meanwhile.
            CorruptError: an object has another size or checksum than it should have.
            UnavailableError, CairnError: the same command finishes it.
        """
        work = {"savepoint": self.savepoint}
        made = NewCheckpoint(
            self._target, self._view, COMMAND, work, keep_id=self._keep_id, clock=self._clock
        )
        with made:
            if not made.is_done:
                try:
                    with self._pinned():
                        made.copy_spark_files()
                        self._copy(made.left, progress)
                except MissingError as failure:
                    raise self._gone(failure) from failure
                self._check()
            made.finish()

    @contextmanager
    def _pinned(self) -> Iterator[None]:
        """Keep purges and sweeps of the query away from the batch, in stores of Cairn's."""
        readings = [one for one in self._versions if one.reading is not None]
        if self.savepoint is not None or not readings:
            yield  # it has pins of its own, or there are none
            return
        pins = ReaderPins(self._clock, SYSTEM_ENTROPY, pin_after_ms=0)
        pins.start()
        begun: list[tuple[ReaderPin, ObjectStore]] = []
        try:
            for one in readings:
                root = one.at.open()
                begun.append((pins.begin(PinnedVersions(one.at.versions(root))), root))
            in_parallel(_pin, zip(readings, begun, strict=True), threads=THREADS)
            yield
        finally:
            with ThreadPoolExecutor(THREADS) as threads:
                list(threads.map(_unpin, begun))

    def _copy(self, left: dict[str, int], progress: CopyProgress) -> None:
        """Copy the objects of the state; delete those of the same work that are not among them."""
        targets = {one.target for one in self.objects}
        needless = [key for key in left if key.startswith("state/") and "/_" not in key]
        self._target.delete([key for key in needless if key not in targets])
        todo = [
            one
            for one in self.objects
            if not (one.is_unique and left.get(one.target) == one.size_bytes)
        ]
        skipped = len(self.objects) - len(todo)
        done, done_bytes = skipped, self.bytes - sum(one.size_bytes for one in todo)
        progress(done, len(self.objects), done_bytes, self.bytes)
        self._sizes: dict[str, int] = {one.target: one.size_bytes for one in self.objects}
        # The largest first: then none is left alone at the end.
        todo.sort(key=lambda one: one.size_bytes, reverse=True)
        with ThreadPoolExecutor(THREADS) as threads:
            runs = [threads.submit(self._copy_one, one) for one in todo]
            try:
                for one, run in zip(todo, runs, strict=True):
                    run.result()
                    done, done_bytes = done + 1, done_bytes + one.size_bytes
                    progress(done, len(self.objects), done_bytes, self.bytes)
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise

    def _copy_one(self, one: StoreObject) -> None:
        source, target = self._checkpoint, self._target
        if one.is_manifest:
            data = source.get(one.key, max_bytes=manifest.MAX_OBJECT_BYTES).data
            found = manifest.decode(data, object_name=source.object_url(one.key))
            # The clone has no other manifest, and no objects of others.
            alone = replace(found, changelogs=(), retained=(), garbage=(), swept_at_ms=0)
            data = manifest.encode(alone)
            self._sizes[one.target] = len(data)
            target.put(one.target, data)
            return
        copy_object(
            source, one.key, target, one.target, size_bytes=one.size_bytes, crc32c=one.crc32c
        )

    def _check(self) -> None:
        """Compare the sizes of all objects of the state with what was to be copied.

        Raises:
            CorruptError: one differs, or is missing.
        """
        found = {info.key: info.size_bytes for info in self._target.list("state/")}
        for key, size in self._sizes.items():
            if found.get(key) != size:
                raise CorruptError(
                    f"the copy has {found.get(key, 'no')} bytes instead of {size}",
                    object_name=self._target.object_url(key),
                    next_step="repeat the command",
                )


def _pin(item: tuple[VersionObjects, tuple[ReaderPin, ObjectStore]]) -> None:
    version, (pin, _) = item
    if version.reading is not None:
        pin.reads(version.reading)
    try:
        pin.keep()
    except CairnError as failure:
        # Its thread tries it again; if retention is faster, the copy of the object fails.
        _LOG.warning("a store that is cloned is pinned later, or not at all: %s", failure)


def _unpin(item: tuple[ReaderPin, ObjectStore]) -> None:
    pin, root = item
    pin.end()
    try:
        pin.keep()
    except CairnError as failure:
        _LOG.info("a pin is left for the sweep: %s", failure)
    root.close()
