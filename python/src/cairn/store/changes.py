"""The past of a version, and the change feed: changelogs as rows, a page at a time.

Layer: store.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cairn.errors import MissingError
from cairn.format.header import Base
from cairn.store.version import StoreVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from cairn.ids import VersionRef
    from cairn.store.durable import Durable, LoadedVersion

MAX_PAGE_ROWS = 65_536
MAX_PAGE_BYTES = 4 << 20


def _back_to(
    durable: Durable, head: StoreVersion, version: int
) -> tuple[tuple[VersionRef, ...], Base]:
    """Return the changelogs up to ``head`` and their base, which is at ``version`` or before it.

    Goes back over manifests by the changelogs of their versions; no listing.

    Raises:
        MissingError: an older changelog was purged.
    """
    refs, base = head.lineage, head.base
    while base.version > version and base.ref is not None:
        older = durable.read(base.version, str(base.ref.checkpoint_id)).standing
        refs, base = (*older.lineage, *refs), older.base
    return refs, base


def standing_upon(
    durable: Durable, head: StoreVersion, version: int, checkpoint_id: str | None
) -> StoreVersion:
    """Return ``head`` as it is reached from the snapshot of exactly ``version``.

    Raises:
        MissingError: its past has no such version, or only under another id.
    """
    refs, base = _back_to(durable, head, version)
    # The oldest snapshot that is kept has no changelog any more: it is known as a base alone.
    past = refs if base.ref is None else (base.ref, *refs)
    at = next((ref for ref in past if ref.version == version), None)
    if at is None or (checkpoint_id is not None and at.checkpoint_id != checkpoint_id):
        raise MissingError(
            f"version {head.version} does not come from a snapshot of version {version}",
            store=str(durable.store),
            version=version,
            next_step="choose a version that has a snapshot",
        )
    return StoreVersion(
        head.version,
        head.ref,
        Base(at.version, at.checkpoint_id),
        tuple(ref for ref in refs if ref.version > version),
        head.counts,
        head.families,
        head.max_cf_id,
    )


class ChangeFeed:
    """Reads changelogs for the change feed; keeps the one that is being paged through.

    Thread-safe.

    Args:
        durable: whose.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._lock = threading.Lock()
        self._last: LoadedVersion | None = None

    def versions(self, start: int, end: int, end_id: str | None) -> list[list[Any]]:
        """Return ``[version, checkpoint id, row count]`` of the versions from start to end."""
        head = self._durable.read(end, end_id)
        refs, _ = _back_to(self._durable, head.standing, start - 1)
        answer: list[list[Any]] = []
        for ref in refs:
            if ref.version < start:
                continue
            changelog = (
                head
                if ref == head.standing.ref
                else self._durable.read(ref.version, str(ref.checkpoint_id))
            )
            rows = sum(batch.num_rows for batch in changelog.batches)
            answer.append([ref.version, str(ref.checkpoint_id), rows])
        return answer

    def page(
        self, version: int, checkpoint_id: str, from_row: int, limit_rows: int
    ) -> tuple[pa.RecordBatch | None, bool]:
        """Return rows of one changelog from ``from_row`` on, and whether more follow.

        At least one row, if there is one; else at most ``MAX_PAGE_BYTES``. May do I/O: not on the
        owner thread.
        """
        with self._lock:
            last = self._last
            if (
                last is None
                or last.standing.version != version
                or last.standing.checkpoint_id != checkpoint_id
            ):
                last = self._last = self._durable.read(version, checkpoint_id)
        page, more = _page_of(last.batches, from_row, limit_rows)
        if not more:
            # Read to its end: who pages on reads another one, or nothing for hours.
            with self._lock:
                self._last = None if self._last is last else self._last
        return page, more


def _page_of(
    batches: list[pa.RecordBatch], from_row: int, limit_rows: int
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
