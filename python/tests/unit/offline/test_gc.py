"""`cairn.gc`: what nothing needs goes, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from running_checkpoint import RunningCheckpoint, age

import cairn
from cairn.errors import CairnError
from cairn.storage.local import LocalStore

STORE = "state/0/1"
ORPHAN = f"{STORE}/sst/{'ab' * 16}.sst"


def age_all(stopped: RunningCheckpoint) -> None:
    """Let all objects be older than the grace period."""
    for path in (stopped.folder / "state").rglob("*"):
        if path.is_file():
            age(path)


def files_of(folder: Path) -> set[str]:
    """Return the names of all files of a folder, without the locks of writers."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not Path(name).name.startswith(".")}


def names_of(stopped: RunningCheckpoint) -> set[str]:
    """Return what a plan names; it changes nothing."""
    before = files_of(stopped.folder)
    with cairn.gc(str(stopped.folder)) as plan:
        names = {str(Path(one.object_name).relative_to(stopped.folder)) for one in plan.orphans}
    assert files_of(stopped.folder) == before
    return names


def test_a_healthy_checkpoint_has_nothing_to_delete(stopped: RunningCheckpoint) -> None:
    """Each batch of the logs stays as it is."""
    age_all(stopped)

    assert names_of(stopped) == set()


def test_what_a_failed_upload_left_is_deleted_and_nothing_else(stopped: RunningCheckpoint) -> None:
    """The record in the checkpoint names it."""
    (stopped.folder / ORPHAN).write_bytes(b"left")
    age_all(stopped)
    before = files_of(stopped.folder)

    assert names_of(stopped) == {ORPHAN}
    with cairn.gc(str(stopped.folder)) as plan:
        deleted = plan.apply()

    assert [(one.size_bytes, one.reason) for one in deleted] == [(4, "no snapshot names this file")]
    after = files_of(stopped.folder)
    assert before - after == {ORPHAN}
    (record,) = after - before
    assert ORPHAN in (stopped.folder / record).read_text()
    with cairn.open_checkpoint(str(stopped.folder)) as checkpoint:
        assert list(checkpoint.verify()) == []
        rows = checkpoint.state(batch=0).to_table().to_pylist()
    assert {row["user"]: (row["max"], row["max_2"]) for row in rows} == stopped.rows[0]


def test_what_is_young_may_be_part_of_an_upload(stopped: RunningCheckpoint) -> None:
    """A task that was cut off from its driver may still be about to use it."""
    age_all(stopped)
    (stopped.folder / ORPHAN).write_bytes(b"young")

    assert names_of(stopped) == set()
    with cairn.gc(str(stopped.folder), grace_s=0) as plan:
        assert len(plan.orphans) == 1


def test_versions_of_batches_that_were_rolled_back_go(stopped: RunningCheckpoint) -> None:
    """Their objects have ids, or are replaced by the next attempts."""
    for batch in (7, 8, 9):
        for log in ("offsets", "commits"):
            (stopped.folder / log / str(batch)).unlink()
    age_all(stopped)

    names = names_of(stopped)

    versions = {int(Path(name).name.partition("_")[0]) for name in names if "sst" not in name}
    assert names
    assert min(versions) > 7
    assert any("sst" in name for name in names)
    with cairn.gc(str(stopped.folder)) as plan:
        assert {str(Path(one.object_name).relative_to(stopped.folder)) for one in plan.apply()} == (
            names
        )
    assert names_of(stopped) == set()


def test_pins_protect_what_they_name_until_nobody_renews_them(stopped: RunningCheckpoint) -> None:
    """A long read, or an upload, of another process."""
    (stopped.folder / ORPHAN).write_bytes(b"left")
    age_all(stopped)
    pin = stopped.folder / STORE / f"pin/upload-{'ab' * 8}_1.json"
    pin.parent.mkdir(exist_ok=True)
    pin.write_bytes(b"{}")

    assert names_of(stopped) == set()
    age(pin)
    assert names_of(stopped) == {ORPHAN, str(pin.relative_to(stopped.folder))}
    with cairn.gc(str(stopped.folder)) as plan:
        assert plan.apply() == plan.orphans
    assert not pin.exists()
    assert not (stopped.folder / ORPHAN).exists()


def test_no_row_is_read(stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state of terabytes is looked through by its names."""
    (stopped.folder / ORPHAN).write_bytes(b"left")
    age_all(stopped)
    read: list[str] = []
    real = LocalStore.get_range

    def get_range(self: LocalStore, key: str, offset: int, length: int) -> bytes:
        read.append(key)
        return real(self, key, offset, length)

    monkeypatch.setattr(LocalStore, "get_range", get_range)

    with cairn.gc(str(stopped.folder)) as plan:
        plan.apply()

    assert read == []
    list(cairn.open_checkpoint(str(stopped.folder)).verify())
    assert any(key.startswith("sst/") for key in read)


def test_nothing_is_deleted_where_the_way_to_the_state_is_damaged(
    stopped: RunningCheckpoint,
) -> None:
    """What looks like an orphan may be all that is left."""
    (stopped.folder / ORPHAN).write_bytes(b"left")
    newest = max(
        (stopped.folder / STORE / "changelog").iterdir(), key=lambda one: one.stat().st_mtime_ns
    )
    newest.write_bytes(b"damaged")
    age_all(stopped)

    assert names_of(stopped) == set()


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_nothing_is_deleted_where_a_file_of_a_snapshot_is_damaged(
    stopped: RunningCheckpoint, harm: Callable[[Path], object]
) -> None:
    """Older objects, which no batch of the logs needs, lead around it."""
    for batch in range(9):
        for log in ("offsets", "commits"):
            (stopped.folder / log / str(batch)).unlink()
    age_all(stopped)
    assert {str(Path(name).parents[1]) for name in names_of(stopped)} >= {STORE}
    manifests = (stopped.folder / STORE / "snapshot").iterdir()
    newest = max(manifests, key=lambda one: one.stat().st_mtime_ns)
    harm(stopped.folder / STORE / json.loads(newest.read_text())["files"][0]["object"])

    with cairn.gc(str(stopped.folder)) as plan:
        deleted = plan.apply()

    assert {one.place.partition for one in deleted} == {0, 2}
    with cairn.open_checkpoint(str(stopped.folder)) as checkpoint:
        rows = checkpoint.state().to_table().to_pylist()
    assert {row["user"]: (row["max"], row["max_2"]) for row in rows} == stopped.rows[-1]


def test_a_query_that_runs_is_not_touched(stopped: RunningCheckpoint) -> None:
    """It deletes its orphans by itself."""
    (stopped.folder / ORPHAN).write_bytes(b"left")
    age_all(stopped)
    (stopped.folder / "offsets/9").touch()

    with (
        cairn.gc(str(stopped.folder)) as plan,
        pytest.raises(CairnError, match=r"CAIRN_IN_USE.*written \d+ s ago"),
    ):
        plan.apply()

    assert (stopped.folder / ORPHAN).exists()
