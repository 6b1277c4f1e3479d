"""`cairn.repair`: a new snapshot around a damaged one, or the way back to a whole batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from running_checkpoint import RunningCheckpoint, age
from small_checkpoint import SmallCheckpoint

import cairn
from cairn.errors import AccessError, CairnError
from cairn.storage.base import StoredObject
from cairn.storage.local import LocalStore

PARTITION = 1


def rules_of(written: RunningCheckpoint) -> list[str]:
    """Return the rules that the checkpoint breaks."""
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        return [finding.rule for finding in checkpoint.verify()]


def actions_of(written: RunningCheckpoint) -> list[str]:
    """Return the actions of a plan, which changes nothing."""
    before = files_of(written.folder)
    with cairn.repair(str(written.folder)) as plan:
        actions: list[str] = [step.action for step in plan.steps]
    assert files_of(written.folder) == before
    return actions


def files_of(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def newest(written: RunningCheckpoint, pattern: str) -> Path:
    """Return the newest file of a partition's store that fits."""
    found = (written.folder / f"state/0/{PARTITION}").glob(pattern)
    return max(found, key=lambda path: int(path.name.partition("_")[0].partition(".")[0]))


def spoil(path: Path) -> None:
    """Change a byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(bytes(data))


def goes_on(written: RunningCheckpoint) -> None:
    """Run two more batches with a new engine, and compare the state with what was written."""
    written.start()
    for batch in range(2):
        written.commit({user: (100 + batch, user) for user in range(5)})
        written.snapshot()
    assert written.state() == written.rows[-1]


def test_a_whole_checkpoint_needs_nothing(written: RunningCheckpoint) -> None:
    """A repair that always finds something is not believed."""
    written.stop()

    assert actions_of(written) == []
    assert rules_of(written) == []


def newest_sst(written: RunningCheckpoint) -> Path:
    """Return the youngest file of the newest manifest."""
    files = json.loads(newest(written, "snapshot/*").read_text())["files"]
    names = [str(one["object"]) for one in files]
    paths = [written.folder / f"state/0/{PARTITION}" / name for name in names]
    return max(paths, key=lambda path: path.stat().st_mtime_ns)


def harm_manifest(written: RunningCheckpoint) -> None:
    """Change a byte of the newest manifest."""
    spoil(newest(written, "snapshot/*"))


def lose_sst(written: RunningCheckpoint) -> None:
    """Delete a file that the newest manifest alone names."""
    newest_sst(written).unlink()


def harm_sst(written: RunningCheckpoint) -> None:
    """Change a byte of a file that the newest manifest alone names; its size stays."""
    spoil(newest_sst(written))


@pytest.mark.parametrize("harm", [harm_manifest, lose_sst, harm_sst])
def test_a_damaged_snapshot_gets_a_new_one_beside_it(
    written: RunningCheckpoint, harm: Callable[[RunningCheckpoint], None]
) -> None:
    """The state is still whole: nothing is lost, and the query does not have to run to be safe."""
    written.stop()
    rows = written.state()
    harm(written)

    assert actions_of(written) == ["take-snapshot"]
    with cairn.repair(str(written.folder)) as plan:
        left = plan.apply()

    assert written.state() == rows
    assert actions_of(written) == []
    own = newest(written, "snapshot/*")
    assert json.loads(own.read_text())["writer"]["run_id"] == "repair"
    assert "state-unreadable" not in rules_of(written)
    assert [one.action for one in left if "newest" in one.reason] == []
    goes_on(written)


def test_nothing_of_the_damaged_snapshot_is_in_the_new_one(written: RunningCheckpoint) -> None:
    """It would be as damaged."""
    written.stop()
    lose_sst(written)
    gone = {path.name for path in (written.folder / f"state/0/{PARTITION}/sst").iterdir()}
    with cairn.repair(str(written.folder)) as plan:
        plan.apply()

    manifest = json.loads(newest(written, "snapshot/*").read_text())
    stored = {path.name for path in (written.folder / f"state/0/{PARTITION}/sst").iterdir()}
    assert {Path(one["object"]).name for one in manifest["files"]} <= stored
    assert stored != gone


def test_a_version_that_nothing_leads_to_is_left_for_the_batch_before(
    written: RunningCheckpoint,
) -> None:
    """The query goes on from there, and repeats the batch with the input that was planned."""
    written.commit({user: (500, user) for user in range(20)})
    written.stop()
    if written.checkpoint_format == 1:
        spoil(newest(written, "changelog/*"))
    else:
        newest(written, "changelog/*").unlink()
    planned = (written.folder / "offsets/10").read_bytes()

    with cairn.repair(str(written.folder)) as plan:
        assert plan.batch == 9
        actions = [step.action for step in plan.steps]
        plan.apply()

    set_aside = ["set-aside"] if written.checkpoint_format == 1 else []
    assert actions == [*set_aside, "remove-entry"]
    assert not (written.folder / "commits/10").exists()
    assert (written.folder / "offsets/10").read_bytes() == planned
    kept = files_of(written.folder / "cairn-log")
    assert any(name.endswith("removed/commits/10") for name in kept)
    written.go_back(9)
    assert written.state() == written.rows[-1]
    goes_on(written)


def test_entries_of_later_batches_go_too(written: RunningCheckpoint) -> None:
    """Spark would run the newest planned batch, on the state of one that is gone."""
    written.commit({user: (500, user) for user in range(20)})
    written.plan(11)
    written.stop()
    path = newest(written, "changelog/*")
    path.unlink()

    with cairn.repair(str(written.folder)) as plan:
        removed = {
            str(step.object_name).removeprefix(f"{written.folder}/")
            for step in plan.steps
            if step.action == "remove-entry"
        }
        plan.apply()

    assert {Path(name).parent.name + "/" + Path(name).name for name in removed} == {
        "commits/10",
        "offsets/11",
    }
    written.go_back(9)
    goes_on(written)


@pytest.mark.parametrize("log", ["commits", "offsets"])
def test_an_entry_that_was_cut_goes(written: RunningCheckpoint, log: str) -> None:
    """A machine that lost its power leaves such files; Spark does not start with one."""
    if log == "offsets":
        written.plan(10)
    written.stop()
    entry = written.folder / log / ("9" if log == "commits" else "10")
    entry.write_bytes(b"v1\n{")
    age(entry)

    with cairn.repair(str(written.folder)) as plan:
        plan.apply()

    assert not entry.exists()
    written.go_back(8 if log == "commits" else 9)
    assert written.state() == written.rows[-1]
    goes_on(written)


def test_the_first_plan_goes_if_it_was_cut(tmp_path: Path) -> None:
    """Nothing was committed: Spark plans the batch anew."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local")
    written.plan(0)
    (written.folder / "commits").mkdir()
    (written.folder / "offsets/0").write_bytes(b"v1")
    written.stop()

    with cairn.repair(str(written.folder)) as plan:
        left = plan.apply()

    assert left == ()
    assert list((written.folder / "offsets").glob("[0-9]*")) == []


def test_no_batch_is_whole(tmp_path: Path) -> None:
    """Whether to begin anew is for a person to decide."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local")
    for batch in range(3):
        written.commit({user: (batch, user) for user in range(20)})
    written.stop()
    next((written.folder / f"state/0/{PARTITION}/changelog").glob("1_*")).write_bytes(b"other")

    with cairn.repair(str(written.folder)) as plan:
        assert (plan.batch, plan.steps) == (None, ())
        (left,) = plan.left

    assert left.place is not None
    assert "no batch is whole; restore it" in left.reason


def test_lost_commits_are_not_taken_for_a_whole_checkpoint(tmp_path: Path) -> None:
    """Nothing is committed, though several batches are planned."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local")
    for batch in range(3):
        written.commit({user: (batch, user) for user in range(20)})
    written.stop()
    for entry in (written.folder / "commits").iterdir():
        entry.unlink()

    with cairn.repair(str(written.folder)) as plan:
        assert plan.steps == ()
        (left,) = plan.left

    assert left.reason.startswith("the batches 0 to 2 are planned and not committed: if ")


def test_an_entry_of_a_newer_spark_stays(written: RunningCheckpoint) -> None:
    """It is not damaged: that Spark repeats the batch with the same input."""
    written.plan(10)
    written.stop()
    (written.folder / "offsets/10").write_bytes(b"v3\n{}\n-")

    with pytest.raises(CairnError, match="CAIRN_FORMAT_VERSION"):
        actions_of(written)


def test_a_commit_that_was_cut_behind_its_version_goes(written: RunningCheckpoint) -> None:
    """Its first line alone is an entry of checkpoint format 2 without ids."""
    written.stop()
    entry = written.folder / f"commits/{9 if written.checkpoint_format == 2 else 8}"
    entry.write_bytes(f"v{written.checkpoint_format}".encode())
    (written.folder / "commits/5").write_bytes(b"v2\n{}")
    age(entry)

    with cairn.repair(str(written.folder)) as plan:
        assert plan.batch == (8 if written.checkpoint_format == 2 else 9)


@pytest.mark.parametrize("pattern", ["changelog/*", "snapshot/*"])
def test_an_object_that_may_not_be_read_is_not_damaged(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """The query may read it, and its batch is whole: it must not be given up."""
    written.stop()
    denied = newest(written, pattern)
    if pattern == "snapshot/*":
        newest(written, "changelog/*").unlink()
    real = LocalStore.get

    def get(self: LocalStore, key: str, **limits: int) -> StoredObject:
        if key.endswith(denied.name):
            raise AccessError("access is denied", object_name=self.object_url(key))
        return real(self, key, **limits)

    monkeypatch.setattr(LocalStore, "get", get)

    with pytest.raises(CairnError, match="CAIRN_ACCESS"):
        actions_of(written)


def test_a_query_that_runs_is_not_touched(written: RunningCheckpoint) -> None:
    """A wrong command must not stop a healthy query."""
    harm_manifest(written)

    with (
        cairn.repair(str(written.folder)) as plan,
        pytest.raises(CairnError, match=r"CAIRN_IN_USE.*written \d+ s ago.*stop the query"),
    ):
        plan.apply()

    assert not (written.folder / "cairn-log").exists()
    assert sorted(path.name for path in (written.folder / "offsets").iterdir()) == sorted(
        str(batch) for batch in range(10)
    )


def test_a_checkpoint_of_sparks_is_refused(tmp_path: Path) -> None:
    """Cairn does not write what it does not own."""
    other = SmallCheckpoint(tmp_path / "ck")
    other.commit({1: (1, 1)})

    with pytest.raises(CairnError, match="CAIRN_UNSUPPORTED_STATE"):
        cairn.repair(str(other.folder))


class KilledError(Exception):
    """The process was killed."""


@pytest.mark.parametrize("calls", range(9))
def test_a_repair_that_was_killed_is_finished_by_the_next(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Nobody has to know how far it came."""
    written.commit({user: (500, user) for user in range(20)})
    written.plan(11)
    written.stop()
    spoil(newest(written, "changelog/*"))
    spoil(newest(written, "snapshot/*"))
    rows = written.rows[9]
    left = calls

    def dies(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError
            return real(*args, **kwargs)

        return call

    with cairn.repair(str(written.folder)) as plan, monkeypatch.context() as patch:
        for name in ("put", "put_if_absent", "delete", "upload"):
            patch.setattr(LocalStore, name, dies(getattr(LocalStore, name)))
        try:
            plan.apply()
        except (KilledError, CairnError):
            pass
        else:
            assert left >= 0
    for log in ("offsets", "commits"):
        for path in (written.folder / log).iterdir():
            age(path)
    monkeypatch.setattr("cairn.offline.hold.os.kill", gone)

    with cairn.repair(str(written.folder)) as plan:
        plan.apply()

    assert actions_of(written) == []
    written.go_back(9)
    assert written.state() == rows
    goes_on(written)


def gone(pid: int, signal: int) -> None:
    """Answer as the system does for a process that has ended."""
    assert signal == 0
    raise ProcessLookupError(pid)
