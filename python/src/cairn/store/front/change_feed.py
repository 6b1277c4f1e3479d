"""ChangeFeed: changelogs as rows, one per key, page by page.

Layer: store.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from cairn.checkpoint.reader_pins import Reading
from cairn.errors import MissingError
from cairn.format.header import counts_to_json
from cairn.ids import CheckpointId, VersionRef
from cairn.protocol.calls import ChangesAnswer
from cairn.store.load.lineage import changelog_names, with_base_below
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from cairn.checkpoint.reader_pins import ReaderPin, ReaderPins
    from cairn.checkpoint.store_checkpoint import StoreCheckpoint
    from cairn.format.changelog import Changelog
    from cairn.protocol.calls import ChangesRequest

MAX_PAGE_ROWS = 65_536
MAX_PAGE_BYTES = 4 << 20


class ChangeFeed:
    """Reads changelogs for the change feed; keeps the one whose pages are being read.

    Pins those that are still to be read, if that takes long. Thread-safe.

    Args:
        checkpoint: the store's objects.
        pins: the worker's.
    """

    def __init__(self, checkpoint: StoreCheckpoint, pins: ReaderPins) -> None:
        self._checkpoint = checkpoint
        self._pins = pins
        self._lock = threading.Lock()
        self._last: Changelog | None = None
        self._pin_lock = threading.Lock()  # never held during a request
        self._pin: ReaderPin | None = None
        self._end: VersionRef | None = None  # the last version that is to be read

    def versions(self, request: ChangesRequest) -> ChangesAnswer:
        """List the versions from start to end that have changes; empty commits have none.

        Reads the changelog of the end, and those of the bases before it. No version is loaded.
        """
        pin = self._pins.begin(self._checkpoint)
        try:
            end = self._end_of(request)
            refs = self._refs(end, request.start_version)
        except BaseException:
            pin.end()
            raise
        if refs:
            first, last = refs[0], refs[-1]
            base = first.version - 1
            pin.reads(Reading(base, last.version, last.checkpoint_id, changelog_names(first)))
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
        lineage = with_base_below(self._checkpoint.recovery, end, start - 1).lineage
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

        A page has at most ``MAX_PAGE_BYTES``, or a single larger row. May do I/O: not on the event
        loop.
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
