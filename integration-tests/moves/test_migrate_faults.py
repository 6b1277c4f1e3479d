"""A migration that is killed, whose disk is full, or that runs in tasks of Spark.

The same command finishes it. Whether the rows are the same is seen by their digests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cairn
from cairn.errors import DataError, DiskFullError, MissingError
from cairn.offline.move.running import MoveProgress
from cairn.offline.move.totals import MovedFamily
from harness.differential import Run
from harness.moves import ended_query
from harness.processes import descendants, wait_until, wait_until_ended
from harness.small_disk import SmallDisk, mounted_disk
from harness.spark import ROCKSDB

pytestmark = pytest.mark.usefixtures("driver")

PARTITIONS = 8
TIMEOUT_S = 120
END_S = 10
DISK_MIB = 16


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a query of eight partitions under Spark's RocksDB provider, which has ended."""
    return ended_query(tmp_path_factory.mktemp("source"), ROCKSDB, PARTITIONS)


@pytest.fixture(scope="module")
def expected(source: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[MovedFamily, ...]:
    """Return what a migration moves that nothing disturbs."""
    with cairn.migrate(
        source.checkpoint, to=str(tmp_path_factory.mktemp("whole") / "target"), provider="cairn"
    ) as plan:
        return plan.apply(processes=2)


def command(source: Run, target: Path) -> list[str]:
    """Return the command that migrates."""
    options = ["--provider", "cairn", "--apply", "--processes", "2", "-o", "ndjson"]
    verb = [sys.executable, "-m", "cairn", "migrate", source.checkpoint]
    return [*verb, "--to", str(target), *options]


def results(target: Path) -> int:
    """Return how many stores are done."""
    return len(list(target.glob("cairn-log/*/results/*.json")))


def has_hold(target: Path) -> bool:
    """Return whether the place is held."""
    return any(target.glob("offsets/*"))


def has_results(count: int) -> Callable[[Path], bool]:
    """Return what says whether so many stores are done."""
    return lambda target: results(target) >= count


@pytest.mark.parametrize(
    ("has_come", "victim"),
    [
        pytest.param(has_hold, "command", id="hold"),
        pytest.param(has_results(1), "command", id="first-store", marks=pytest.mark.slow),
        pytest.param(has_results(4), "command", id="half"),
        pytest.param(has_results(PARTITIONS), "command", id="all", marks=pytest.mark.slow),
        pytest.param(has_results(3), "children", id="children"),
        pytest.param(has_results(6), "all", id="children-too", marks=pytest.mark.slow),
    ],
)
def test_the_same_command_finishes_a_killed_one(
    source: Run,
    expected: tuple[MovedFamily, ...],
    tmp_path: Path,
    has_come: Callable[[Path], bool],
    victim: str,
) -> None:
    """The machine is restarted, or memory runs out: hours of work must not be lost."""
    target = tmp_path / "target"
    before = files(Path(source.checkpoint))
    with subprocess.Popen(
        command(source, target), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        wait_until(lambda: has_come(target), TIMEOUT_S, "the moment of the kill")
        children = descendants(run.pid)
        if victim != "children":
            os.kill(run.pid, signal.SIGKILL)
        if victim != "command":
            for child in children:
                child.kill()
        _, errors = run.communicate(timeout=TIMEOUT_S)
    left = wait_until_ended(children, END_S)
    done = results(target)
    is_whole = any(target.glob("commits/*"))

    again = subprocess.run(command(source, target), capture_output=True, text=True, check=False)

    assert not left, "processes outlive the command that has started them"
    assert run.returncode != 0 or is_whole
    if victim == "children":
        assert "a process that moves stores has ended" in errors
        assert done < PARTITIONS
    assert again.returncode == 0 or is_whole, again.stderr
    if not is_whole:
        (line,) = again.stdout.splitlines()
        (family,) = expected
        moved = json.loads(line)
        assert (moved["keys"], moved["digest"]) == (family.keys, family.digest)
    assert state_of(target) == state_of(Path(source.checkpoint))
    assert files(Path(source.checkpoint)) == before


def state_of(checkpoint: Path) -> list[str]:
    """Return the rows of a state."""
    with cairn.open_checkpoint(str(checkpoint)) as opened:
        return sorted(map(repr, opened.state().to_table().to_pylist()))


def files(folder: Path) -> dict[str, int]:
    """Return the files of a folder, with their sizes."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Mount a file system of a few MiB."""
    with mounted_disk(tmp_path / "disk", DISK_MIB) as mounted:
        yield mounted


@pytest.mark.parametrize("provider", ["cairn", "rocksdb", "hdfs"])
def test_a_full_local_disk_is_one_clear_error(
    source: Run, disk: SmallDisk, tmp_path: Path, provider: str
) -> None:
    """With free space the same call goes on with the stores that are left."""
    target = tmp_path / "target"
    seen: list[int] = []

    def fill(progress: MoveProgress) -> None:
        if progress.stores == 3:
            disk.fill()

    with cairn.migrate(source.checkpoint, to=str(target), provider=provider) as plan:
        with pytest.raises(DiskFullError) as failure:
            plan.apply(processes=1, local_dir=disk.path, progress=fill)
        disk.free()
        plan.apply(processes=1, local_dir=disk.path, progress=lambda one: seen.append(one.stores))

    assert str(disk.path) in str(failure.value)
    assert "--local-dir" in str(failure.value.next_step)
    assert seen[0] == 3
    assert state_of(target) == state_of(Path(source.checkpoint))
    assert not list(disk.path.glob("*/*/*.sst"))


@pytest.mark.parametrize("provider", ["cairn", "rocksdb", "hdfs"])
def test_a_full_disk_of_the_target_is_one_clear_error(
    source: Run, disk: SmallDisk, provider: str
) -> None:
    """No driver uses what is there; with free space the same command goes on."""
    target = disk.path / "target"

    def fill(progress: MoveProgress) -> None:
        if progress.stores == 3:
            disk.fill()

    with (
        cairn.migrate(source.checkpoint, to=str(target), provider=provider) as plan,
        pytest.raises(DiskFullError),
    ):
        plan.apply(processes=1, progress=fill)
    assert not any(target.glob("commits/*"))
    disk.free()
    seen: list[int] = []
    with cairn.migrate(source.checkpoint, to=str(target), provider=provider) as plan:
        plan.apply(processes=1, progress=lambda one: seen.append(one.stores))

    assert seen[0] == 3
    assert state_of(target) == state_of(Path(source.checkpoint))


def test_stores_are_moved_in_tasks_of_spark(
    source: Run, expected: tuple[MovedFamily, ...], tmp_path: Path
) -> None:
    """A large state moves as fast as the cluster."""
    seen: list[MoveProgress] = []
    target = tmp_path / "target"

    with cairn.migrate(source.checkpoint, to=str(target), provider="cairn") as plan:
        moved = plan.apply(session=source.session(), progress=seen.append)

    assert moved == expected
    assert state_of(target) == state_of(Path(source.checkpoint))
    assert (seen[0].stores, seen[-1].stores) == (0, PARTITIONS)
    assert seen[-1].rows == moved[0].keys


def test_an_error_in_a_task_of_spark_is_the_error_of_the_store(source: Run, tmp_path: Path) -> None:
    """It names store, version and object; what the other tasks have done is kept."""
    (lost,) = Path(source.checkpoint).glob("state/0/5/2.changelog")
    whole = lost.read_bytes()
    lost.unlink()
    target = str(tmp_path / "target")
    seen: list[int] = []
    try:
        with (
            cairn.migrate(source.checkpoint, to=target, provider="cairn") as plan,
            pytest.raises(DataError) as here,
        ):
            plan.apply(processes=1)
        with (
            cairn.migrate(source.checkpoint, to=f"{target}-2", provider="cairn") as plan,
            pytest.raises(MissingError) as failure,
        ):
            plan.apply(session=source.session())
    finally:
        lost.write_bytes(whole)
    with cairn.migrate(source.checkpoint, to=f"{target}-2", provider="cairn") as plan:
        plan.apply(session=source.session(), progress=lambda one: seen.append(one.stores))

    assert str(failure.value) == str(here.value)
    assert failure.value.store == "0/5/default"
    assert seen == [PARTITIONS - 1, PARTITIONS]
