"""A replay prefetches as much as memory allows, and reports the bytes that it downloaded."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, family

from cairn.checkpoint.recovery import Recovery
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.stored_versions import Head
from cairn.errors import CorruptError, MissingError
from cairn.format.changelog import Changelog
from cairn.ids import CheckpointId, VersionRef
from cairn.storage.progress import Progress
from cairn.store.load.changelog_stream import ChangelogStream
from cairn.store.shared.resources import ByteBudget

FAMILY = family(0, multi=False)
VERSIONS = 14


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Return a store that takes no snapshots."""
    conf = {"minDeltasForSnapshot": 50}
    rig = Rig(tmp_path / "local", str(tmp_path / "objects"), 2, conf)
    rig.load(0, None)
    yield rig
    rig.crash()


def commit_all(rig: Rig, value_bytes: int) -> list[str | None]:
    """Commit versions of ten rows each, load version 0, and return their ids."""
    ids: list[str | None] = [None]
    for version in range(1, VERSIONS + 1):
        rig.write([(1, 0, b"%d-%d" % (version, row), b"v" * value_bytes, 2) for row in range(10)])
        ids.append(rig.commit(version, ids[-1], [FAMILY])["checkpoint_id"])
        rig.load(version, ids[-1])
    rig.until_applied(VERSIONS)
    rig.load(0, None)
    return ids


class ReadsAhead:
    """Counts the changelogs that are fetched and not enqueued yet."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        read, enqueue = StoreCheckpoint.read, rig.local.enqueue

        def counted(*arguments: Any) -> object:  # noqa: ANN401
            with self._lock:
                self._now += 1
                self.most = max(self.most, self._now)
            return read(*arguments)

        def enqueued(delta: Any, *, wakes: bool) -> None:  # noqa: ANN401
            # All fetches that may begin have begun before this one is counted as enqueued.
            rig.resources.transfers.downloads.submit(int).result()
            with self._lock:
                self._now -= 1
            enqueue(delta, wakes=wakes)

        monkeypatch.setattr(StoreCheckpoint, "read", counted)
        monkeypatch.setattr(rig.local, "enqueue", enqueued)


def test_small_changelogs_are_fetched_several_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a round trip to the object store."""
    ids = commit_all(rig, 10)
    ahead = ReadsAhead(rig, monkeypatch)

    assert rig.load(VERSIONS, ids[-1])["changelogs_replayed"] == VERSIONS
    assert ahead.most > 4


def test_large_changelogs_are_prefetched_only_as_memory_allows(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight of 500 MB each would end the worker, and then the next one."""
    ids = commit_all(rig, 60_000)  # 600 kB each; the rig's bound is 1 MiB
    ahead = ReadsAhead(rig, monkeypatch)

    assert rig.load(VERSIONS, ids[-1])["changelogs_replayed"] == VERSIONS
    # Two before any size is known, one more when the first is enqueued.
    assert ahead.most <= 3
    assert rig.resources.fetched.current == 0


def test_bytes_downloaded_are_those_of_the_objects(rig: Rig) -> None:
    """It measures the network, where rows of equal bytes are a hundredth of their size."""
    ids = commit_all(rig, 60_000)
    sizes = [one.size_bytes for one in rig.state.checkpoint.objects.list("changelog/")]

    assert rig.load(VERSIONS, ids[-1])["bytes_downloaded"] == sum(sizes)


def test_changelogs_are_fetched_beside_the_ssts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load would take the time of both, one after the other."""
    conf = {"minDeltasForSnapshot": 1}
    base = Rig(Path(rig.url).parent / "first", rig.url, 2, conf)
    base.load(0, None)
    base.write([(1, 0, b"base", b"1", 2)])
    ids: list[str | None] = [None, base.commit(1, None, [FAMILY])["checkpoint_id"]]
    base.maintain()
    base.load(1, ids[1])
    for version in (2, 3):
        base.write([(1, 0, b"%d" % version, b"1", 2)])
        ids.append(base.commit(version, ids[-1], [FAMILY])["checkpoint_id"])
        base.load(version, ids[-1])
    base.crash()
    is_read = threading.Event()
    read, materialize = StoreCheckpoint.read, Recovery.materialize

    def note(*arguments: Any) -> Changelog:  # noqa: ANN401
        changelog = read(*arguments)
        is_read.set()
        return changelog

    def wait_for_changelog(*arguments: Any) -> object:  # noqa: ANN401
        assert is_read.wait(20)
        return materialize(*arguments)

    monkeypatch.setattr(StoreCheckpoint, "read", note)
    monkeypatch.setattr(Recovery, "materialize", wait_for_changelog)

    answer = rig.load(3, ids[3])

    assert (answer["source"], answer["changelogs_replayed"]) == ("snapshot", 2)
    assert len(rig.contents(0, 3)) == 3


# -- the head is read by its header ----------------------------------------------------------------


@pytest.fixture
def large_head(rig: Rig) -> list[str | None]:
    """Commit two versions; the second one's object is larger than what a plan reads."""
    ids: list[str | None] = [None]
    for version in (1, 2):
        rig.write([(1, 0, b"%d-%d" % (version, row), noise(row), 2) for row in range(500)])
        ids.append(rig.commit(version, ids[-1], [FAMILY])["checkpoint_id"])
        rig.load(version, ids[-1])
    rig.load(0, None)
    return ids


def noise(row: int) -> bytes:
    """Return bytes that do not compress."""
    return hashlib.shake_128(b"%d" % row).digest(500)


def test_a_large_head_is_planned_by_its_header(rig: Rig, large_head: list[str | None]) -> None:
    """Its rows are fetched with those of the other changelogs."""
    heads: list[Head] = []
    read_header = rig.state.checkpoint.read_header

    def note(version: int, checkpoint_id: str | None) -> Head:
        heads.append(read_header(version, checkpoint_id))
        return heads[-1]

    rig.state.checkpoint.read_header = note  # type: ignore[method-assign]

    answer = rig.load(2, large_head[2])

    assert heads[0].changelog is None
    assert answer["changelogs_replayed"] == 2
    assert len(rig.contents(0, 2)) == 1000


@pytest.mark.parametrize("field", ["counts", "base", "lineage"])
def test_a_header_that_is_not_the_verified_one_is_not_used(
    rig: Rig, large_head: list[str | None], field: str
) -> None:
    """The first bytes have no checksum of their own: they may have changed in transit."""
    read_header = rig.state.checkpoint.read_header
    wrong = VersionRef(1, CheckpointId("u" + "0" * 32))

    def misread(version: int, checkpoint_id: str | None) -> Head:
        head = read_header(version, checkpoint_id)
        header = head.header
        changed = {
            "counts": lambda: replace(header, counts={0: 7}),
            "base": lambda: replace(
                header, base=replace(header.base, version=1), lineage=header.lineage[1:]
            ),
            "lineage": lambda: replace(header, lineage=(wrong, header.ref)),
        }
        return replace(head, header=changed[field]())

    rig.state.checkpoint.read_header = misread  # type: ignore[method-assign]

    answer = rig.load(2, large_head[2])

    assert answer["counts"] == {"0": 1000}
    assert len(rig.contents(0, 2)) == 1000
    known = rig.state.chain.changelogs(rig.state.require_version().lineage)
    assert [entry.ref.checkpoint_id for entry in known] == large_head[1:]


@pytest.mark.parametrize("offset", [*range(8, 2500, 61), -40, -10])
def test_a_flipped_bit_in_a_large_head_is_an_error(
    rig: Rig, large_head: list[str | None], offset: int
) -> None:
    """Never another version, and the error names the object."""
    path = Path(rig.url) / "changelog" / f"2_{large_head[2]}.arrow"
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x01
    path.write_bytes(content)

    with pytest.raises(CorruptError) as failed:
        rig.load(2, large_head[2])

    assert path.name in str(failed.value.object_name)


def test_a_truncated_large_head_is_an_error(rig: Rig, large_head: list[str | None]) -> None:
    """Its header is whole, its rows are not."""
    path = Path(rig.url) / "changelog" / f"2_{large_head[2]}.arrow"
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(CorruptError):
        rig.load(2, large_head[2])


# -- the budget of all loads -----------------------------------------------------------------------


@dataclass
class Table:
    """Rows of a size."""

    nbytes: int


@dataclass
class Fetched:
    """A changelog of a size."""

    version: int
    table: Table


def stream_of(
    count: int, size: int, budget: ByteBudget, threads: ThreadPoolExecutor, missing: int = 0
) -> ChangelogStream:
    """Return a stream over changelogs of one size; that of version ``missing`` is gone."""

    def read(ref: VersionRef) -> Any:  # noqa: ANN401 - a changelog as far as the stream looks
        if ref.version == missing:
            raise MissingError("gone")
        return Fetched(ref.version, Table(size))

    refs = [VersionRef(version, CheckpointId("u")) for version in range(1, count + 1)]
    return ChangelogStream(refs, read, threads, budget, Progress())


def test_all_loads_share_one_budget() -> None:
    """Ten loads at once, each with the whole bound, would be ten times the bound."""
    budget = ByteBudget(1000)
    with ThreadPoolExecutor(4) as threads:
        streams = [stream_of(50, 100, budget, threads) for _ in range(10)]
        readers = [iter(stream) for stream in streams]
        most = 0
        for version in range(1, 51):
            for reader in readers:
                found: Any = next(reader)
                assert found.version == version
                most = max(most, budget.current)
        for reader in readers:
            assert next(reader, None) is None

    # Each load has one changelog in use, one fetched, and one begun before its size was known.
    assert most <= 1000 + 10 * 3 * 100
    assert budget.current == 0


def test_a_stream_that_ends_early_returns_its_bytes() -> None:
    """A failed load must not make the next ones slow for ever."""
    budget = ByteBudget(1000)
    with ThreadPoolExecutor(4) as threads:
        failing = stream_of(20, 100, budget, threads, missing=5)
        with pytest.raises(MissingError):
            list(failing)
        failing.close()
        stopped = stream_of(20, 100, budget, threads)
        next(iter(stopped))
        stopped.close()
        stopped.close()

    assert budget.current == 0


@pytest.mark.parametrize(
    ("checkpoint_format", "source", "replayed"), [(1, "replay", 5), (2, "snapshot", 0)]
)
def test_only_an_id_that_is_certain_leads_to_a_versions_own_snapshot(
    tmp_path: Path, checkpoint_format: int, source: str, replayed: int
) -> None:
    """In format 1 the id of a large version comes from a header that nobody has verified."""
    url, conf = str(tmp_path / "objects"), {"minDeltasForSnapshot": 5}
    first = Rig(tmp_path / "first", url, checkpoint_format, conf)
    first.load(0, None)
    ids: list[str | None] = [None]
    for version in range(1, 6):
        first.write([(1, 0, b"%d-%d" % (version, row), noise(row), 2) for row in range(500)])
        ids.append(first.commit(version, ids[-1], [FAMILY])["checkpoint_id"])
        first.load(version, ids[-1])
    assert first.maintain()["snapshot_version"] == 5
    first.crash()
    other = Rig(tmp_path / "other", url, checkpoint_format, conf)

    answer = other.load(5, ids[5] if checkpoint_format == 2 else None)

    assert (answer["source"], answer["changelogs_replayed"]) == (source, replayed)
    assert answer["checkpoint_id"] == ids[5]
    assert len(other.contents(0, 5)) == 2500
    other.crash()
