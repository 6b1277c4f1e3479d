"""`cairn.gc`: what nothing needs goes, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running_checkpoint import RunningCheckpoint, age

import cairn
from cairn.errors import CairnError

STORE = "state/0/1"
ORPHAN = f"{STORE}/sst/{'ab' * 16}.sst"


@pytest.fixture(params=[1, 2], ids=["format1", "format2"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningCheckpoint]:
    """Return a checkpoint with ten batches and several snapshots, whose engine has ended."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", request.param)
    for batch in range(10):
        written.commit({user: (batch, user) for user in range(batch, batch + 20)})
        written.snapshot()
    written.stop()
    yield written
    if written.stores:
        written.stop()


def age_all(written: RunningCheckpoint) -> None:
    """Let all objects be older than the grace period."""
    for path in (written.folder / "state").rglob("*"):
        if path.is_file():
            age(path)


def files_of(folder: Path) -> set[str]:
    """Return the names of all files of a folder, without the locks of writers."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not Path(name).name.startswith(".")}


def names_of(written: RunningCheckpoint) -> set[str]:
    """Return what a plan names; it changes nothing."""
    before = files_of(written.folder)
    with cairn.gc(str(written.folder)) as plan:
        names = {str(Path(one.object_name).relative_to(written.folder)) for one in plan.orphans}
    assert files_of(written.folder) == before
    return names


def test_a_healthy_checkpoint_has_nothing_to_delete(written: RunningCheckpoint) -> None:
    """Each batch of the logs stays as it is."""
    age_all(written)

    assert names_of(written) == set()


def test_what_a_failed_upload_left_is_deleted_and_nothing_else(written: RunningCheckpoint) -> None:
    """The record in the checkpoint names it."""
    (written.folder / ORPHAN).write_bytes(b"left")
    age_all(written)
    before = files_of(written.folder)

    assert names_of(written) == {ORPHAN}
    with cairn.gc(str(written.folder)) as plan:
        deleted = plan.apply()

    assert [(one.size_bytes, one.reason) for one in deleted] == [(4, "no snapshot names this file")]
    after = files_of(written.folder)
    assert before - after == {ORPHAN}
    (record,) = after - before
    assert ORPHAN in (written.folder / record).read_text()
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        assert list(checkpoint.verify()) == []
        rows = checkpoint.state(batch=0).to_table().to_pylist()
    assert {row["user"]: (row["max"], row["max_2"]) for row in rows} == written.rows[0]


def test_what_is_young_may_be_part_of_an_upload(written: RunningCheckpoint) -> None:
    """A task that was cut off from its driver may still be about to use it."""
    age_all(written)
    (written.folder / ORPHAN).write_bytes(b"young")

    assert names_of(written) == set()
    with cairn.gc(str(written.folder), grace_s=0) as plan:
        assert len(plan.orphans) == 1


def test_versions_of_batches_that_were_rolled_back_go(written: RunningCheckpoint) -> None:
    """Their objects have ids, or are replaced by the next attempts."""
    for batch in (7, 8, 9):
        for log in ("offsets", "commits"):
            (written.folder / log / str(batch)).unlink()
    age_all(written)

    names = names_of(written)

    versions = {int(Path(name).name.partition("_")[0]) for name in names if "sst" not in name}
    assert names
    assert min(versions) > 7
    assert any("sst" in name for name in names)
    with cairn.gc(str(written.folder)) as plan:
        assert {str(Path(one.object_name).relative_to(written.folder)) for one in plan.apply()} == (
            names
        )
    assert names_of(written) == set()


def test_pins_protect_what_they_name_until_nobody_renews_them(written: RunningCheckpoint) -> None:
    """A long read, or an upload, of another process."""
    (written.folder / ORPHAN).write_bytes(b"left")
    age_all(written)
    pin = written.folder / STORE / f"pin/upload-{'ab' * 8}_1.json"
    pin.parent.mkdir(exist_ok=True)
    pin.write_bytes(b"{}")

    assert names_of(written) == set()
    age(pin)
    assert names_of(written) == {ORPHAN, str(pin.relative_to(written.folder))}
    with cairn.gc(str(written.folder)) as plan:
        plan.apply()
    assert not pin.exists()
    assert not (written.folder / ORPHAN).exists()


def test_nothing_is_deleted_where_the_way_to_the_state_is_damaged(
    written: RunningCheckpoint,
) -> None:
    """What looks like an orphan may be all that is left."""
    (written.folder / ORPHAN).write_bytes(b"left")
    newest = max(
        (written.folder / STORE / "changelog").iterdir(), key=lambda one: one.stat().st_mtime_ns
    )
    newest.write_bytes(b"damaged")
    age_all(written)

    assert names_of(written) == set()


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_nothing_is_deleted_where_a_file_of_a_snapshot_is_damaged(
    written: RunningCheckpoint, harm: Callable[[Path], object]
) -> None:
    """Older objects, which no batch of the logs needs, lead around it."""
    for batch in range(9):
        for log in ("offsets", "commits"):
            (written.folder / log / str(batch)).unlink()
    age_all(written)
    assert {str(Path(name).parents[1]) for name in names_of(written)} >= {STORE}
    manifests = (written.folder / STORE / "snapshot").iterdir()
    newest = max(manifests, key=lambda one: one.stat().st_mtime_ns)
    harm(written.folder / STORE / json.loads(newest.read_text())["files"][0]["object"])

    with cairn.gc(str(written.folder)) as plan:
        deleted = plan.apply()

    assert {one.place.partition for one in deleted} == {0, 2}
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        rows = checkpoint.state().to_table().to_pylist()
    assert {row["user"]: (row["max"], row["max_2"]) for row in rows} == written.rows[-1]


def test_a_query_that_runs_is_not_touched(written: RunningCheckpoint) -> None:
    """It deletes its orphans by itself."""
    (written.folder / ORPHAN).write_bytes(b"left")
    age_all(written)
    (written.folder / "offsets/9").touch()

    with (
        cairn.gc(str(written.folder)) as plan,
        pytest.raises(CairnError, match=r"CAIRN_IN_USE.*written \d+ s ago"),
    ):
        plan.apply()

    assert (written.folder / ORPHAN).exists()
