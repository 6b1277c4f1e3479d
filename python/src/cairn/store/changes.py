"""The lineage of a version, and the change feed: changelogs as rows, one per key, page by page.

Layer: store.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from cairn.checkpoint.reader_pins import Reading
from cairn.errors import MissingError
from cairn.format.header import counts_to_json
from cairn.format.names import (
    SNAPSHOT_PREFIX,
    changelog_name,
    manifest_name,
    plain_changelog_name,
)
from cairn.ids import CheckpointId, VersionRef
from cairn.protocol.calls import ChangesAnswer
from cairn.store.version import StoreVersion
from cairn.store.writes import reduced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cairn.checkpoint.reader_pins import ReaderPin, ReaderPins
    from cairn.checkpoint.store_checkpoint import StoreCheckpoint
    from cairn.format.changelog import Changelog
    from cairn.protocol.calls import ChangesRequest, LoadSnapshotRequest

MAX_PAGE_ROWS = 65_536
MAX_PAGE_BYTES = 4 << 20


def _with_base_below(checkpoint: StoreCheckpoint, end: StoreVersion, version: int) -> StoreVersion:
    """Return ``end`` with the newest base of its lineage that is not above ``version``.

    Follows the changelogs of the bases, without a LIST. An empty state may be above ``version``.

    Raises:
        MissingError: an older changelog was purged.
    """
    while end.base.version > version and end.base.ref is not None:
        older = checkpoint.read(end.base.version, str(end.base.checkpoint_id)).header
        end = replace(end, base=older.base, lineage=(*older.lineage, *end.lineage))
    return end


def ways_from(
    checkpoint: StoreCheckpoint, end: StoreVersion, request: LoadSnapshotRequest
) -> Iterator[StoreVersion]:
    """Yield ``end`` with the requested snapshot as its base; then with each one before it.

    Those before it are for a version of which nobody has stored a snapshot. The last one begins
    with the empty state.

    Raises:
        MissingError: nothing leads from the requested version to ``end``.
    """
    version, id_ = request.snapshot_version, request.snapshot_checkpoint_id
    wanted = None if id_ is None else VersionRef.named(version, id_)
    failure: MissingError | None = None
    try:
        way = _with_base_below(checkpoint, end, version if wanted is None else wanted.version)
        # The changelog of the oldest kept snapshot was purged: only a base names that version.
        past = way.lineage if way.base.ref is None else (way.base.ref, *way.lineage)
        # The snapshot of an empty commit is that of its real version, the newest one up to it.
        at = max((ref for ref in past if ref.version <= version), default=None)
        if at is not None and wanted in (None, at):
            yield way.rebased(at) or way
            if at == way.base.ref:
                way = _with_base_below(checkpoint, way, at.version - 1)
            while True:
                yield way
                if way.base.ref is None:
                    return
                way = _with_base_below(checkpoint, way, way.base.version - 1)
    except MissingError as error:
        failure = error
    name = SNAPSHOT_PREFIX if wanted is None else manifest_name(wanted)
    raise MissingError(
        f"nothing leads from version {version} to {end.version}: neither a snapshot of it, nor an "
        "earlier one and all changelogs from there",
        store=str(checkpoint.store),
        version=version,
        object_name=checkpoint.objects.object_url(name),
        next_step="choose a version that is retained",
    ) from failure


def reading_of(version: StoreVersion) -> Reading:
    """Return what a load of ``version`` needs. REQUIRES: it is not empty."""
    assert version.ref is not None  # noqa: S101 - see above
    oldest: tuple[str, ...] = ()
    if version.base.ref is not None:
        oldest = (manifest_name(version.base.ref),)
    elif version.lineage:
        oldest = _names_of(version.lineage[0])
    return Reading(version.base.version, version.ref.version, version.ref.checkpoint_id, oldest)


def _names_of(ref: VersionRef) -> tuple[str, ...]:
    return changelog_name(ref), plain_changelog_name(ref.version)


class ChangeFeed:
    """Reads changelogs for the change feed; keeps the one whose pages are being read.

    Pins those that are still to be read, if that takes long. Thread-safe.

    Args:
        checkpoint: returns the store's objects, with the present credentials.
        pins: the worker's.
    """

    def __init__(self, checkpoint: Callable[[], StoreCheckpoint], pins: ReaderPins) -> None:
        self._new_checkpoint = checkpoint
        self._pins = pins
        self._lock = threading.Lock()
        self._last: Changelog | None = None
        self._pin_lock = threading.Lock()  # never held during a request
        self._pin: ReaderPin | None = None
        self._end: VersionRef | None = None  # the last version that is to be read

    @property
    def _checkpoint(self) -> StoreCheckpoint:
        return self._new_checkpoint()

    def versions(self, request: ChangesRequest) -> ChangesAnswer:
        """List the versions from start to end that have changes; empty commits have none.

        Reads the changelog of the end, and those of the bases before it. No version is loaded.
        """
        pin = self._pins.begin(self._new_checkpoint)
        try:
            end = self._end_of(request)
            refs = self._refs(end, request.start_version)
        except BaseException:
            pin.end()
            raise
        if refs:
            first, last = refs[0], refs[-1]
            base = first.version - 1
            pin.reads(Reading(base, last.version, last.checkpoint_id, _names_of(first)))
        else:
            pin.end()
        with self._pin_lock:
            former, self._pin = self._pin, pin
            self._end = refs[-1] if refs else None
        if former is not None:
            former.end()
        return ChangesAnswer(
            versions=[(ref.version, str(ref.checkpoint_id)) for ref in refs],
            version=end.version,
            checkpoint_id=str(end.checkpoint_id),
            counts=counts_to_json(end.counts),
            column_families=[family.to_json() for family in end.families],
            max_cf_id=end.max_cf_id,
        )

    def _end_of(self, request: ChangesRequest) -> StoreVersion:
        head = self._checkpoint.read(request.end_version, request.end_checkpoint_id).header
        return replace(StoreVersion.of_header(head), version=request.end_version)

    def _refs(self, end: StoreVersion, start: int) -> list[VersionRef]:
        lineage = _with_base_below(self._checkpoint, end, start - 1).lineage
        return [ref for ref in lineage if ref.version >= start]

    def close(self) -> None:
        """Protect nothing any more. Idempotent."""
        with self._pin_lock:
            pin, self._pin = self._pin, None
        if pin is not None:
            pin.release()

    def page(
        self, version: int, checkpoint_id: str, from_row: int, limit_rows: int
    ) -> tuple[pa.RecordBatch | None, bool]:
        """Return rows of one changelog from ``from_row`` on, and whether more follow.

        Only rows that count are numbered: the last one of each key. A page has at most
        ``MAX_PAGE_BYTES``, or a single larger row. May do I/O: not on the event loop.
        """
        with self._lock:
            last = self._last
            wanted = VersionRef(version, CheckpointId.parse(checkpoint_id))
            if last is None or last.header.ref != wanted:
                last = self._last = self._read(version, checkpoint_id)
        page, more = _page_of(last.table.to_batches(), from_row, limit_rows)
        if not more:
            # Free it: the next page is that of another changelog, or is requested much later.
            with self._lock:
                self._last = None if self._last is last else self._last
            with self._pin_lock:
                pin = self._pin if wanted == self._end else None
            if pin is not None:
                pin.end()
        return page, more

    def _read(self, version: int, checkpoint_id: str) -> Changelog:
        try:
            changelog = self._checkpoint.read(version, checkpoint_id)
        except MissingError as failure:
            if self._pin is not None:
                self._pin.explain(failure)
            raise
        rows = reduced(changelog.table.to_batches())
        return replace(changelog, table=pa.Table.from_batches(rows, changelog.table.schema))


def _page_of(
    batches: Sequence[pa.RecordBatch], from_row: int, limit_rows: int
) -> tuple[pa.RecordBatch | None, bool]:
    limit = max(1, min(limit_rows or MAX_PAGE_ROWS, MAX_PAGE_ROWS))
    start = 0
    for index, batch in enumerate(batches):
        if from_row < start + batch.num_rows:
            page = batch.slice(from_row - start, limit)
            while page.nbytes > MAX_PAGE_BYTES and page.num_rows > 1:
                page = page.slice(0, page.num_rows // 2)
            more = from_row + page.num_rows < start + batch.num_rows
            return page, more or index + 1 < len(batches)
        start += batch.num_rows
    return None, False
