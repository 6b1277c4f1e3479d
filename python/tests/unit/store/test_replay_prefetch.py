"""A replay prefetches as much as memory allows, and reports the bytes that it downloaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, family

from cairn.checkpoint.store_checkpoint import StoreCheckpoint

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

        def enqueued(delta: Any) -> None:  # noqa: ANN401
            # All fetches that may begin have begun before this one is counted as enqueued.
            rig.resources.transfers.downloads.submit(int).result()
            with self._lock:
                self._now -= 1
            enqueue(delta)

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
    # The requested version, two before any size is known, one more when the first is enqueued.
    assert ahead.most <= 4


def test_bytes_downloaded_are_those_of_the_objects(rig: Rig) -> None:
    """It measures the network, where rows of equal bytes are a hundredth of their size."""
    ids = commit_all(rig, 60_000)
    sizes = [one.size_bytes for one in rig.state.checkpoint.objects.list("changelog/")]

    assert rig.load(VERSIONS, ids[-1])["bytes_downloaded"] == sum(sizes)
