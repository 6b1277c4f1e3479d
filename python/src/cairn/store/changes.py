"""The lineage of a version, and the change feed: changelogs as rows, page by page.

Layer: store.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from cairn.checkpoint.reader_pins import Reading
from cairn.errors import MissingError
from cairn.format.header import Base, counts_to_json
from cairn.format.names import changelog_name, manifest_name, plain_changelog_name
from cairn.ids import CheckpointId, VersionRef
from cairn.protocol.calls import ChangesAnswer
from cairn.store.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from cairn.checkpoint.reader_pins import ReaderPin, ReaderPins
    from cairn.checkpoint.store_checkpoint import StoreCheckpoint
    from cairn.format.changelog import Changelog
    from cairn.protocol.calls import ChangesRequest, LoadSnapshotRequest

MAX_PAGE_ROWS = 65_536
MAX_PAGE_BYTES = 4 << 20


def _lineage_from(
    checkpoint: StoreCheckpoint, head: StoreVersion, version: int
) -> tuple[tuple[VersionRef, ...], Base]:
    """Return the changelogs up to ``head``, and their base, which is not above ``version``.

    Follows the changelogs of the bases, without a LIST.

    Raises:
        MissingError: an older changelog was purged.
    """
    refs, base = head.lineage, head.base
    while base.version > version and base.ref is not None:
        older = checkpoint.read(base.version, str(base.ref.checkpoint_id)).header
        refs, base = (*older.lineage, *refs), older.base
    return refs, base


def on_snapshot(
    checkpoint: StoreCheckpoint, head: StoreVersion, request: LoadSnapshotRequest
) -> StoreVersion:
    """Return ``head`` with exactly the requested snapshot as its base.

    Raises:
        MissingError: its lineage has no such version, or has it under another id.
    """
    version, id_ = request.snapshot_version, request.snapshot_checkpoint_id
    wanted = None if id_ is None else VersionRef.named(version, id_)
    refs, base = _lineage_from(checkpoint, head, version if wanted is None else wanted.version)
    # The changelog of the oldest kept snapshot was purged: only a base names that version.
    past = refs if base.ref is None else (base.ref, *refs)
    # The snapshot of an empty commit is that of its real version, the newest one up to it.
    at = max((ref for ref in past if ref.version <= version), default=None)
    if at is None or (wanted is not None and at != wanted):
        raise MissingError(
            f"version {head.version} does not come from a snapshot of version {version}",
            store=str(checkpoint.store),
            version=version,
            next_step="choose a version that has a snapshot",
        )
    return replace(
        head,
        base=Base(at.version, at.checkpoint_id),
        lineage=tuple(ref for ref in refs if ref > at),
    )


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
        refs, _ = _lineage_from(self._checkpoint, end, start - 1)
        return [ref for ref in refs if ref.version >= start]

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

        A page has at most ``MAX_PAGE_BYTES``, or a single larger row. May do I/O: not on the event
        loop.
        """
        with self._lock:
            last = self._last
            wanted = VersionRef(version, CheckpointId.parse(checkpoint_id))  # `versions` names own ids
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
            return self._checkpoint.read(version, checkpoint_id)
        except MissingError as failure:
            if self._pin is not None:
                self._pin.explain(failure)
            raise


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
