"""`cairn.repartition`: the same rows in the partitions of their keys' hash, or nothing at all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dying_store import Killed, Life, killed_behind_the_commit, opener
from running_checkpoint import RunningCheckpoint, age
from small_checkpoint import PARTITIONS, SmallCheckpoint, partition_of_user

import cairn
from cairn.cli.main import main
from cairn.errors import (
    CairnError,
    ConfigError,
    InUseError,
    NotThereError,
    UnavailableError,
    UnsupportedStateError,
)
from cairn.format.spark_log import PARTITIONS as SETTING
from cairn.format.spark_log import parse_commit, parse_offsets
from cairn.offline.move.running import MoveProgress
from cairn.offline.move.shuffle import Gatherer
from cairn.reader.spark.logs import STRICT_DISTRIBUTION

V2 = "state/0/_metadata/v2/3"


def repartition(written: RunningCheckpoint, partitions: int, **how: Any) -> Any:  # noqa: ANN401
    """Repartition in this process; let the logs be old again, and the kit know the new batch."""
    with cairn.repartition(str(written.folder), partitions=partitions) as plan:
        moved = plan.apply(**{"processes": 1, **how})
    note_batch(written)
    return moved


def note_batch(written: RunningCheckpoint) -> None:
    """Let the kit know the batch that was appended."""
    for log in ("offsets", "commits"):
        for path in (written.folder / log).iterdir():
            age(path)
    written.adopt(written.rows[-1])


def settings_of(written: RunningCheckpoint) -> dict[str, str]:
    """Return the settings in the newest plan."""
    return dict(parse_offsets((written.folder / f"offsets/{newest(written)}").read_bytes()).conf)


def newest(written: RunningCheckpoint) -> int:
    """Return the newest batch that is planned."""
    return max(int(path.name) for path in (written.folder / "offsets").glob("[0-9]*"))


def require_whole(written: RunningCheckpoint, partitions: int) -> None:
    """Require the newest rows, in partitions whose number the newest plan has."""
    assert settings_of(written)[SETTING] == str(partitions)
    assert written.state() == written.rows[-1]
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        assert checkpoint.operators[0].partitions == partitions
        assert list(checkpoint.verify()) == []


def test_the_rows_are_where_the_hash_of_their_keys_says(stopped: RunningCheckpoint) -> None:
    """More partitions, fewer, one, and the former number, in whose folders old objects are."""
    stages: list[MoveProgress] = []
    with cairn.open_checkpoint(str(stopped.folder)) as checkpoint:
        expected = stopped.rows[9]
        for partitions in (7, 2, 1, 3):
            (moved,) = repartition(stopped, partitions, progress=stages.append)

            assert (moved.partitions, moved.keys) == (partitions, len(expected))
            require_whole(stopped, partitions)
        # Batches of the former partitions are read as before.
        rows = checkpoint.state(batch=9).to_table().to_pylist()
    assert {row["user"]: (row["max"], row["max_2"]) for row in rows} == expected
    assert stages[0] == MoveProgress(0, 10, 0, 0, None)
    assert (stages[-1].stores, stages[-1].of_stores) == (4, 4)


def test_the_batch_has_no_input_and_only_another_number(stopped: RunningCheckpoint) -> None:
    """The next batch reads what comes behind the same offsets, with the same watermark."""
    before = parse_offsets((stopped.folder / "offsets/9").read_bytes())
    committed_ms = (stopped.folder / "commits/9").stat().st_mtime_ns // 1_000_000

    repartition(stopped, 5)

    after = parse_offsets((stopped.folder / "offsets/10").read_bytes())
    assert after == before.with_conf({SETTING: "5"})
    commits = [
        parse_commit((stopped.folder / f"commits/{batch}").read_bytes()) for batch in (9, 10)
    ]
    assert commits[0].watermark_ms == commits[1].watermark_ms
    ids = commits[1].unique_ids
    assert (ids and len(ids[0])) == (5 if stopped.checkpoint_format == 2 else None)
    (record,) = stopped.folder.glob("cairn-log/*/record.json")
    fields = json.loads(record.read_text())
    steps = [{"batch": 10, "committed_ms": committed_ms, "before": 3, "partitions": 5}]
    assert fields["steps"] == steps
    assert fields["done"][0]["keys"] == len(stopped.rows[-1])
    kept = [path for path in record.parent.rglob("*") if path.is_file()]
    assert kept == [record], "what was kept until the end is left"


def test_a_query_goes_on_in_folders_that_have_objects_of_a_former_life(
    stopped: RunningCheckpoint,
) -> None:
    """An old version under the same name, or an old snapshot, would bring back old rows."""
    repartition(stopped, 2)
    repartition(stopped, PARTITIONS)
    stopped.start()
    for batch in range(20, 26):
        stopped.commit({user: (batch, user) for user in range(batch)} | {batch + 3: None})
        stopped.snapshot()
    stopped.stop()

    require_whole(stopped, PARTITIONS)


def test_versions_that_were_given_up_before_are_not_read(stopped: RunningCheckpoint) -> None:
    """In checkpoint format 1 they have the names of those that a repartition writes."""
    stopped.start()
    for batch in (10, 11, 12):
        stopped.commit(dict.fromkeys(range(40), (batch, -1)))
        stopped.snapshot()
    stopped.stop()
    for batch in (10, 11, 12):
        for log in ("offsets", "commits"):
            (stopped.folder / log / str(batch)).unlink()
    stopped.go_back(9)

    repartition(stopped, 2)
    require_whole(stopped, 2)
    repartition(stopped, PARTITIONS)
    require_whole(stopped, PARTITIONS)
    stopped.start()
    for batch in (12, 13):
        stopped.commit({3: (batch, batch)})
        stopped.snapshot()
    stopped.stop()

    require_whole(stopped, PARTITIONS)


def give_up(stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repartition a checkpoint, until all is written but the batch."""

    def fails(*_: object, **__: object) -> None:
        raise UnavailableError("the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr("cairn.offline.appended_batch.AppendedBatch.finish", fails)
        with pytest.raises(UnavailableError):
            repartition(stopped, 2)


def test_a_query_goes_on_after_a_repartition_that_was_given_up(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver may have started before the command, as in a notebook."""
    give_up(stopped, monkeypatch)
    stopped.start()
    stopped.commit({3: (10, 10), 1000: (10, 1000)})
    stopped.snapshot()
    stopped.stop()

    require_whole(stopped, PARTITIONS)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("written", [2], indirect=True)
def test_two_hundred_partitions_become_fifty(
    stopped: RunningCheckpoint, processes: int, tmp_path: Path
) -> None:
    """More partitions than keys: most stores have no row, and each exists."""
    repartition(stopped, 200, processes=processes, local_dir=tmp_path / "spill")
    repartition(stopped, 50, processes=processes, local_dir=tmp_path / "spill")

    require_whole(stopped, 50)
    assert len(list((stopped.folder / "state/0").glob("[0-9]*"))) == 200
    assert not [path for path in (tmp_path / "spill").rglob("*") if path.is_file()]


def test_without_apply_nothing_changes(stopped: RunningCheckpoint) -> None:
    """A person looks first."""
    before = sorted(path for path in stopped.folder.rglob("*"))

    result = CliRunner().invoke(main, ["repartition", str(stopped.folder), "--partitions", "5"])

    assert result.exit_code == 3
    assert "Batch 9 has 3 partitions, the next one would have 5" in result.stderr
    assert sorted(path for path in stopped.folder.rglob("*")) == before


def test_the_command_prints_what_it_compared(stopped: RunningCheckpoint) -> None:
    """The counts are the proof that a person keeps."""
    arguments = ["repartition", str(stopped.folder), "--partitions", "5", "--output", "json"]

    result = CliRunner().invoke(main, [*arguments, "--apply", "--processes", "1"])

    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["partitions"], row["keys"]) == (5, len(stopped.rows[-1]))


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "message"), [(0, "cannot have 0"), (-1, "cannot have -1"), (3, "already")]
)
def test_a_number_that_changes_nothing_is_refused(
    stopped: RunningCheckpoint, partitions: int, message: str
) -> None:
    """A typing error must not cost a rewrite of the state."""
    with pytest.raises(ConfigError, match=message):
        cairn.repartition(str(stopped.folder), partitions=partitions)


def test_a_limit_is_refused(stopped: RunningCheckpoint) -> None:
    """Its only row is in partition 0, whatever the hash says."""
    path = stopped.folder / "state/0/_metadata/metadata"
    path.write_text(path.read_text().replace("stateStoreSave", "globalLimit"))

    with pytest.raises(UnsupportedStateError, match="operator 0 is a limit"):
        cairn.repartition(str(stopped.folder), partitions=5)


def test_a_query_from_before_strict_distribution_is_refused(stopped: RunningCheckpoint) -> None:
    """Its operators look for rows where another hash says."""
    path = stopped.folder / "offsets/9"
    entry = parse_offsets(path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b'"true"', b'"false"'))
    assert entry.conf[STRICT_DISTRIBUTION] == "true"

    with pytest.raises(UnsupportedStateError, match="began before Spark"):
        cairn.repartition(str(stopped.folder), partitions=5)


def test_the_state_of_sparks_own_provider_is_refused(tmp_path: Path) -> None:
    """What a cut off run leaves would have the names of files that a driver reads later."""
    written = SmallCheckpoint(tmp_path / "ck")
    written.commit({1: (2, 3)})

    with pytest.raises(UnsupportedStateError) as caught:
        cairn.repartition(str(written.folder), partitions=5)

    assert "cairn migrate" in str(caught.value)


def test_a_query_without_a_batch_is_refused(stopped: RunningCheckpoint) -> None:
    """It has no state yet."""
    for path in (stopped.folder / "commits").iterdir():
        path.unlink()

    with pytest.raises(NotThereError, match="not committed a batch"):
        cairn.repartition(str(stopped.folder), partitions=5)


def test_a_batch_that_is_planned_must_end_first(stopped: RunningCheckpoint) -> None:
    """Its plan has the former number of partitions."""
    stopped.plan(10)
    age(stopped.folder / "offsets/10")
    before = files(stopped.folder)

    with pytest.raises(InUseError, match="batch 10 is planned, and not committed"):
        repartition(stopped, 5)

    assert files(stopped.folder) == before


def test_rows_that_are_elsewhere_are_refused(written: RunningCheckpoint) -> None:
    """Spark would not find them in the partitions of their keys, either."""
    # By a provider that hashes in another way.
    written.commit({1000: (1, 1)}, lambda user: (partition_of_user(user) + 1) % PARTITIONS)
    written.stop()
    before = files(written.folder)

    with pytest.raises(UnsupportedStateError, match="not in the partition of their keys"):
        repartition(written, 5)

    assert files(written.folder) == before


def files(folder: Path) -> dict[str, bytes]:
    """Return the files but the records."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "cairn-log" not in path.parts and path.name != ".cairn.lock"
    }


# -- kills, faults and others ----------------------------------------------------------------------


@pytest.fixture
def with_metadata(stopped: RunningCheckpoint) -> RunningCheckpoint:
    """Return a checkpoint whose operator has metadata per batch, too."""
    path = stopped.folder / V2
    path.parent.mkdir()
    text = (stopped.folder / "state/0/_metadata/metadata").read_text()
    path.write_text(text.replace("v1", "v2", 1))
    return stopped


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_a_kill_at_any_point_has_changed_nothing_until_the_end(
    with_metadata: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch, *, is_behind: bool
) -> None:
    """The same command goes on; or another one takes the hold over, and the query goes on."""
    written, folder = with_metadata, str(with_metadata.folder)
    before = files(written.folder)
    kept = {key for key in before if key.startswith(("offsets", "commits", "state/0/_metadata"))}
    commit, plan_key, metadata = "commits/10", "offsets/10", "state/0/_metadata/v2/10"
    points, was_planned = 0, False
    while not was_planned:
        points += 1
        life = Life(points, is_behind=is_behind)
        with monkeypatch.context() as patch:
            patch.setattr("cairn.location.open_store", opener(life))
            with pytest.raises(Killed):
                repartition(written, 2)
        found = files(written.folder)
        was_planned = plan_key in found and is_plan(found[plan_key])
        if was_planned:
            break
        assert {key: found[key] for key in kept} == {key: before[key] for key in kept}
        # Another command ends the hold, with what was stored under it.
        with cairn.gc(folder) as plan:
            plan.apply()
        found = files(written.folder)
        assert not {commit, plan_key, metadata} & found.keys()
        assert written.state() == written.rows[-1]
        shutil.rmtree(written.folder / "cairn-log", ignore_errors=True)  # else it goes on
    assert points > 15
    note_batch(written)
    require_whole(written, 2)
    assert json.loads(files(written.folder)[metadata].partition(b"\n")[2])["stateStoreInfo"] == [
        {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}
    ]


def is_plan(data: bytes) -> bool:
    """Return whether an entry of the offset log is a plan, and no hold."""
    try:
        parse_offsets(data)
    except InUseError:
        return False
    return True


@pytest.mark.slow
def test_a_command_whose_processes_are_killed_again_and_again_ends(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """Signal 9, at any moment of a real command with two processes."""
    command = [sys.executable, "-m", "cairn", "repartition", str(stopped.folder), "--apply"]
    command += ["--partitions", "40", "--processes", "2", "--local-dir", str(tmp_path / "spill")]
    lives = 0
    while True:
        lives += 1
        with subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                _, errors = process.communicate(timeout=lives)
                # It may have been killed after its last step.
                assert process.returncode == 0 or "has 40 partitions already" in errors, errors
                break
            except subprocess.TimeoutExpired:
                process.kill()
        assert stopped.state() == stopped.rows[-1]
    assert lives > 1
    note_batch(stopped)
    require_whole(stopped, 40)
    assert not [path for path in (tmp_path / "spill").rglob("*.rows*") if path.is_file()]


def test_a_command_that_was_killed_behind_its_commit_ends_its_record(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an error: the query has the partitions that were asked for."""
    with killed_behind_the_commit(monkeypatch):
        repartition(stopped, 2)
    note_batch(stopped)
    (record,) = stopped.folder.glob("cairn-log/*/record.json")
    assert json.loads(record.read_text())["ended"] is None

    with cairn.repartition(str(stopped.folder), partitions=2) as plan:
        (moved,) = plan.apply(processes=1)

    assert (moved.partitions, moved.keys) == (2, len(stopped.rows[-1]))
    assert json.loads(record.read_text())["ended"] is not None
    assert not list(record.parent.glob("results/**/*.json"))
    assert newest(stopped) == 10
    require_whole(stopped, 2)
    with pytest.raises(ConfigError, match="already"):
        cairn.repartition(str(stopped.folder), partitions=2)


def test_what_a_driver_has_written_since_is_not_taken_for_what_was_written(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In checkpoint format 1 it has the same name: the batch would have the driver's rows."""
    give_up(stopped, monkeypatch)
    stopped.start()
    stopped.commit(dict.fromkeys(range(40), (10, -1)))
    stopped.snapshot()
    stopped.stop()
    for log in ("offsets", "commits"):
        (stopped.folder / log / "10").unlink()  # as Spark's documents say
    stopped.go_back(9)

    repartition(stopped, 2)

    require_whole(stopped, 2)


def test_the_same_command_goes_on_with_the_stores_that_are_left(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large state is not written twice."""
    written: list[int] = []
    gather = Gatherer.gather

    def fails(self: Gatherer, ref: Any, pieces: Any) -> Any:  # noqa: ANN401
        if len(written) == 4:
            written.append(-1)
            raise UnavailableError("the storage is away")
        written.append(ref.partition)
        return gather(self, ref, pieces)

    monkeypatch.setattr(Gatherer, "gather", fails)
    with pytest.raises(UnavailableError):
        repartition(stopped, 7)
    assert written == [0, 1, 2, 3, -1]

    repartition(stopped, 7)

    assert written[5:] == [4, 5, 6]
    require_whole(stopped, 7)
    assert len(list(stopped.folder.glob("cairn-log/*/record.json"))) == 1


def test_stores_that_were_written_and_deleted_since_are_written_again(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing leads to them until the end: gc, or a driver that runs between, takes them."""

    def fails(*_: object, **__: object) -> None:
        raise UnavailableError("the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr("cairn.offline.appended_batch.AppendedBatch.finish", fails)
        with pytest.raises(UnavailableError):
            repartition(stopped, 5)
    for path in stopped.folder.rglob("*"):
        if path.is_file():
            age(path)
    with cairn.gc(str(stopped.folder)) as plan:
        assert {one.place.partition for one in plan.apply()} >= {3, 4}

    repartition(stopped, 5)

    require_whole(stopped, 5)


def test_of_two_at_once_one_is_refused(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would append the same batch."""
    gather = Gatherer.gather
    refused: list[CairnError] = []

    def gathers(self: Gatherer, ref: Any, pieces: Any) -> Any:  # noqa: ANN401
        if not refused:
            with pytest.raises(InUseError) as caught:
                repartition(stopped, 2)
            refused.append(caught.value)
        return gather(self, ref, pieces)

    monkeypatch.setattr(Gatherer, "gather", gathers)
    repartition(stopped, 7)

    assert "cairn repartition" in str(refused[0])
    require_whole(stopped, 7)


# -- what is left of former partitions -------------------------------------------------------------


def test_gc_finds_what_is_left_of_partitions_that_no_batch_has(stopped: RunningCheckpoint) -> None:
    """No driver runs maintenance there; as long as a batch of the logs has them, they stay."""
    repartition(stopped, 7)
    repartition(stopped, 2)
    for path in (stopped.folder / "state").rglob("*"):
        if path.is_file():
            age(path)
    with cairn.gc(str(stopped.folder)) as plan:
        assert plan.orphans == ()
    for batch in range(11):
        for log in ("offsets", "commits"):
            (stopped.folder / log / str(batch)).unlink()

    with cairn.gc(str(stopped.folder)) as plan:
        deleted = plan.apply()

    assert {one.place.partition for one in deleted} >= {2, 3, 4, 5, 6}
    left = {
        path.relative_to(stopped.folder / "state/0").parts[0]
        for path in (stopped.folder / "state/0").rglob("*")
        if path.is_file() and path.name != ".cairn.lock"
    }
    assert left == {"0", "1", "_metadata"}
    require_whole(stopped, 2)


def test_gc_keeps_what_a_savepoint_names_in_a_former_partition(stopped: RunningCheckpoint) -> None:
    """A savepoint of four partitions is cloned when the query has two."""
    cairn.create_savepoint(str(stopped.folder), name="before")
    repartition(stopped, 2)
    for path in (stopped.folder / "state").rglob("*"):
        if path.is_file():
            age(path)
    for batch in range(10):
        for log in ("offsets", "commits"):
            (stopped.folder / log / str(batch)).unlink()
    before = files(stopped.folder / "state/0/2")

    with cairn.gc(str(stopped.folder)) as plan:
        plan.apply()

    assert files(stopped.folder / "state/0/2") == before
    cairn.delete_savepoint(str(stopped.folder), name="before")
    with cairn.gc(str(stopped.folder)) as plan:
        plan.apply()
    assert not files(stopped.folder / "state/0/2")


def test_a_query_without_state_has_its_number_already(stopped: RunningCheckpoint) -> None:
    """It has no store that a killed command could have written."""
    shutil.rmtree(stopped.folder / "state")

    with pytest.raises(ConfigError, match="has 3 partitions already"):
        cairn.repartition(str(stopped.folder), partitions=3)
