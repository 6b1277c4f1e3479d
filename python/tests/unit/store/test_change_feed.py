"""Pages of the change feed are bounded by rows and by bytes."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest
from rig import Rig, family

from cairn.checkpoint.reader_pins import ReaderPins
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.format.changelog import CHANGELOG_SCHEMA, Changelog
from cairn.format.header import Base, ChangelogHeader
from cairn.ids import Attempt, CheckpointId, StoreId, VersionRef
from cairn.protocol.calls import ChangesRequest
from cairn.store.front import change_feed
from cairn.store.front.change_feed import ChangeFeed

ID = "u" + "0" * 32
KIB = 1 << 10
FAMILY = family(0, multi=False)


class OneChangelog:
    """An object store with one version in it."""

    def __init__(self, value_bytes: list[int]) -> None:
        rows = pa.record_batch(
            [
                pa.array([1] * len(value_bytes), pa.uint8()),
                pa.array([0] * len(value_bytes), pa.uint16()),
                pa.array([b"%05d" % row for row in range(len(value_bytes))]),
                pa.array([b"v" * size for size in value_bytes], pa.binary()),
            ],
            schema=CHANGELOG_SCHEMA,
        )
        ref = VersionRef(1, CheckpointId.parse(ID))
        attempt = Attempt("run", 1, 0, 0, 0)
        header = ChangelogHeader(
            StoreId(0, 0), ref, attempt, Base(0, None), (ref,), {}, (), max_cf_id=0, written_at_ms=0
        )
        self.read_count = 0
        self.changelog = Changelog(header, pa.Table.from_batches([rows]), rows.nbytes)

    def read(self, _version: int, _checkpoint_id: str) -> Changelog:
        self.read_count += 1
        return self.changelog


def new_feed(objects: OneChangelog) -> ChangeFeed:
    checkpoint = cast("StoreCheckpoint", objects)
    return ChangeFeed(checkpoint, ReaderPins(SYSTEM_CLOCK, SYSTEM_ENTROPY))


def pages(value_bytes: list[int], limit_rows: int = 4096) -> list[pa.RecordBatch]:
    feed = new_feed(OneChangelog(value_bytes))
    found: list[pa.RecordBatch] = []
    more = True
    while more:
        page, more = feed.page(1, ID, sum(one.num_rows for one in found), limit_rows)
        assert page is not None
        found.append(page)
    return found


def test_large_values_make_short_pages() -> None:
    """4,096 rows of 20 KiB are 80 MiB: more than a message holds."""
    found = pages([20 * KIB] * 1000)

    assert max(page.nbytes for page in found) <= change_feed.MAX_PAGE_BYTES
    keys = [key for page in found for key in page.column("key").to_pylist()]
    assert keys == [b"%05d" % row for row in range(1000)]
    assert len(found) < 20


def test_a_row_larger_than_a_page_is_returned_alone() -> None:
    """A long list must not stop the feed."""
    found = pages([1, 5 << 20, 1])

    assert [page.num_rows for page in found] == [1, 1, 1]


def test_small_rows_fill_a_page_to_its_row_limit() -> None:
    """Each page is a round trip."""
    assert [page.num_rows for page in pages([10] * 250, limit_rows=100)] == [100, 100, 50]


def test_a_changelog_is_kept_only_while_its_pages_are_read() -> None:
    """One fetch serves all its pages; after the last it would only use memory."""
    objects = OneChangelog([10] * 250)
    feed = new_feed(objects)

    for start in (0, 100, 200):
        feed.page(1, ID, start, 100)

    assert objects.read_count == 1
    feed.page(1, ID, 0, 100)
    assert objects.read_count == 2


def versions_with_a_snapshot(rig: Rig) -> list[str | None]:
    """Commit 12 versions, with a snapshot of the sixth; return their ids, from version 0 on."""
    ids: list[str | None] = [None]
    for version in range(1, 13):
        rig.load(version - 1, ids[-1])
        rig.write([(1, 0, b"k%d" % version, b"v", 0)])
        ids.append(rig.commit(version, ids[-1], [FAMILY])["checkpoint_id"])
        if version == 6:
            rig.maintain(cleanup=False)
    return ids


def test_the_versions_are_listed_without_reading_their_changelogs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of the feed fetches each of them anyway; twice is twice the time and money."""
    ids = versions_with_a_snapshot(rig)
    read: list[int] = []
    whole = StoreCheckpoint.read

    def counted(self: StoreCheckpoint, version: int, checkpoint_id: str | None) -> Changelog:
        read.append(version)
        return whole(self, version, checkpoint_id)

    monkeypatch.setattr(StoreCheckpoint, "read", counted)

    answer = rig.instance.changes.versions(ChangesRequest(1, 1, 12, ids[12]))

    assert answer.versions == [(version, ids[version]) for version in range(1, 13)]
    assert len(read) <= 4, read
    assert (answer.version, answer.checkpoint_id, answer.counts) == (12, ids[12], {"0": 12})
    assert answer.column_families == [FAMILY.to_json()]


def test_a_feed_moves_with_each_changelog(rig: Rig) -> None:
    """Who waits for it gives it up if nothing moves, and large changelogs take minutes each."""
    ids = versions_with_a_snapshot(rig)
    activity = rig.resources.transfers.activity
    before = activity.count

    rig.instance.changes.versions(ChangesRequest(1, 1, 12, ids[12]))

    assert activity.count >= before + 2, "the changelogs of the end, and of the base's version"
    before = activity.count

    rig.instance.changes.page(3, str(ids[3]), 0, 10)

    assert activity.count > before
