"""Workers on a storage without conditional PUT: what they load, upload and delete there.

An S3 server that ignores If-None-Match, and a file system without hard links.

Checkpoint format 2; format 1 is refused (docs/adr/0034). What two writers may do to each other is
in ``unit/checkpoint/test_unconditional_store.py``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client import PUT, EngineError, Store, WorkerProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage" / "kit"))

from s3_stub import S3Stub

URL = "s3://bucket/state/0/3"
SWEPT_AT_ONCE = """
import cairn.checkpoint.upload
cairn.checkpoint.upload.next_sweep = lambda swept_at_ms, store, now: (swept_at_ms, True)
"""
"""A sweep at each snapshot, which is otherwise due once a day."""

WITHOUT_LINKS = """
import errno
import os

def refuse(*_):
    raise OSError(errno.EPERM, "Operation not permitted")

os.link = refuse
"""
"""As on FAT and on some network file systems."""


@pytest.fixture
def bucket() -> Iterator[S3Stub]:
    """A server that takes every PUT."""
    with S3Stub(ignores_conditions=True) as stub:
        yield stub


def store_in(worker: WorkerProcess, bucket: S3Stub, **conf: int) -> Store:
    """Open the store in a worker."""
    settings = {"minDeltasForSnapshot": 1, "orphanGraceMs": 0, **conf}
    named: dict[str, Any] = {"conf": settings, "storage": bucket.settings}
    return Store(worker, 1, URL, **named)


def commit(store: Store, *numbers: int) -> None:
    """Commit a version per number, each with rows that no other one writes."""
    for number in numbers:
        store.write([(PUT, 0, b"%d-%d" % (number, row), b"v" * 50) for row in range(100)])
        store.commit()
        store.load(store.version, store.checkpoint_id)


def maintain(store: Store, bucket: S3Stub) -> dict[str, Any]:
    """Take a snapshot and clean up."""
    return store.worker.call(
        "maintain", instance=1, storage=bucket.settings, snapshot=True, cleanup=True
    )


def rows(*numbers: int) -> dict[bytes, bytes]:
    """Return the rows of these commits."""
    return {b"%d-%d" % (number, row): b"v" * 50 for number in numbers for row in range(100)}


def ssts_of(bucket: S3Stub) -> dict[str, set[str]]:
    """Return the SSTs that each stored manifest names."""
    return {
        key: {file["object"] for file in json.loads(data)["files"]}
        for key, (data, _) in bucket.objects.items()
        if "/snapshot/" in key
    }


def deleted(bucket: S3Stub) -> list[str]:
    """Return the keys that were deleted, but for the probe's own."""
    keys = [request.key for request in bucket.of("DELETE")]
    for request in bucket.of("POST"):
        keys += [f"bucket/{key}" for key in re.findall("<Key>(.*?)</Key>", request.body.decode())]
    return [key for key in keys if ".cairn-probe-" not in key]


def lists(bucket: S3Stub) -> list[str]:
    """Return the LIST requests."""
    return [request.path for request in bucket.of("GET") if "list-type" in request.path]


def test_a_fresh_worker_loads_from_a_snapshot_without_a_list(
    spawn: Callable[..., WorkerProcess], bucket: S3Stub, tmp_path: Path
) -> None:
    """Without snapshots each load there would replay all changelogs from the first one."""
    first = store_in(spawn(), bucket)
    first.load(0)
    commit(first, 1, 2)
    assert maintain(first, bucket)["snapshot_version"] == 2
    commit(first, 3)
    bucket.requests.clear()

    # No snapshot was due after the one that version 3 names: that is not looked for.
    conf = {"minDeltasForSnapshot": 2}
    fresh = store_in(spawn(local=tmp_path / "other"), bucket, **conf)
    loaded = fresh.load(3, first.checkpoint_id)

    assert (loaded["source"], loaded["changelogs_replayed"]) == ("snapshot", 1)
    assert fresh.scan() == rows(1, 2, 3)
    assert {request.method for request in bucket.requests} == {"GET"}
    assert lists(bucket) == []


def test_the_next_snapshot_shares_no_file_and_deletes_nothing(
    spawn: Callable[..., WorkerProcess], bucket: S3Stub, tmp_path: Path
) -> None:
    """A file of two manifests would be deleted by one writer and needed by the other.

    Two workers store the manifest of one version, and both believe that theirs is the stored one.
    """
    first = store_in(spawn(patch=SWEPT_AT_ONCE), bucket)
    first.load(0)
    commit(first, 1, 2)
    twin = store_in(spawn(local=tmp_path / "twin", patch=SWEPT_AT_ONCE), bucket)
    twin.load(2, first.checkpoint_id)
    bucket.requests.clear()

    taken = [maintain(store, bucket) for store in (first, twin, first)]
    (of_twin,) = ssts_of(bucket).values()
    commit(first, 3)
    taken.append(maintain(first, bucket))

    assert [one["snapshot_version"] for one in taken] == [2, 2, 2, 3]
    assert [one["reused_files"] for one in taken] == [0] * 4
    assert all(one["uploaded_files"] for one in (taken[0], taken[1], taken[3]))
    named = list(ssts_of(bucket).values())
    assert of_twin in named
    assert len(named) == 2
    assert not named[0] & named[1]
    assert deleted(bucket) == []
    assert lists(bucket) == []
    for version, numbers in ((2, (1, 2)), (3, (1, 2, 3))):
        fresh = store_in(spawn(local=tmp_path / f"fresh-{version}"), bucket)
        names = [key for key in bucket.objects if f"/changelog/{version}_" in key]
        fresh.load(version, names[0].partition(f"/{version}_")[2].removesuffix(".arrow"))
        assert fresh.scan() == rows(*numbers)


def test_a_folder_without_hard_links_takes_snapshots(
    spawn: Callable[..., WorkerProcess], url: str, tmp_path: Path
) -> None:
    """Each upload of an SST failed, and the query stopped at the end of its longest lineage."""
    conf: dict[str, Any] = {"minDeltasForSnapshot": 1, "orphanGraceMs": 0}
    store = Store(spawn(patch=WITHOUT_LINKS), 1, url, conf=conf)
    which: dict[str, Any] = {"instance": 1, "storage": None, "snapshot": True, "cleanup": True}
    store.load(0)
    taken = []
    for number in (1, 2):
        commit(store, number)
        taken.append(store.worker.call("maintain", **which))
    commit(store, 3)

    fresh = Store(spawn(local=tmp_path / "other", patch=WITHOUT_LINKS), 1, url, conf=conf)
    loaded = fresh.load(3, store.checkpoint_id)

    assert [one["snapshot_version"] for one in taken] == [1, 2]
    assert [one["reused_files"] for one in taken] == [0, 0]
    assert (loaded["source"], loaded["changelogs_replayed"]) == ("snapshot", 1)
    assert fresh.scan() == rows(1, 2, 3)


def test_format_1_is_refused(spawn: Callable[..., WorkerProcess], bucket: S3Stub) -> None:
    """A zombie's commit would replace the version on which later ones were built."""
    named: dict[str, Any] = {"checkpoint_format": 1, "storage": bucket.settings}
    store = Store(spawn(), 1, URL, **named)
    store.load(0)
    store.write([(PUT, 0, b"key", b"value")])

    with pytest.raises(EngineError, match="CAIRN_NO_CONDITIONAL_PUT"):
        store.commit()

    assert [key for key in bucket.objects if ".cairn-probe-" not in key] == []
