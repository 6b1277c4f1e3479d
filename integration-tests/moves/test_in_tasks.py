"""What runs as tasks of Spark where a session is given: an export, an erasure."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow.parquet as pq
import pytest

import cairn
from cairn.errors import MissingError
from cairn.offline.move.moving import Location, Move
from cairn.offline.move.running import MoveProgress, run_in_spark
from harness.differential import Run
from harness.moves import age_logs, ended_query
from harness.spark import CAIRN

pytestmark = pytest.mark.usefixtures("driver")

PARTITIONS = 4


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a query of four partitions, which has ended."""
    return ended_query(tmp_path_factory.mktemp("source"), CAIRN, PARTITIONS)


def rows_of(folder: Path) -> dict[str, list[dict[str, object]]]:
    """Return the rows of an export, by its files."""
    return {
        str(path.relative_to(folder)): pq.read_table(path).to_pylist()
        for path in sorted(folder.rglob("*.parquet"))
    }


def test_an_export_by_tasks_of_spark_has_the_same_files(source: Run, tmp_path: Path) -> None:
    """A large state leaves as fast as the cluster."""
    here, there = tmp_path / "here", tmp_path / "there"

    expected = cairn.export(source.checkpoint, to=str(here))
    found = cairn.export(source.checkpoint, to=str(there), session=source.session())

    assert rows_of(there) == rows_of(here)
    assert sum(map(len, rows_of(there).values())) > PARTITIONS
    assert [(one.partition, one.rows) for one in found] == [
        (one.partition, one.rows) for one in expected
    ]


def test_an_error_in_a_task_of_an_export_is_that_of_the_state(source: Run, tmp_path: Path) -> None:
    """It names the object, as in this process."""
    copied = tmp_path / "copied"
    shutil.copytree(source.checkpoint, copied)
    for lost in copied.glob("state/0/2/changelog/*"):
        lost.unlink()

    with pytest.raises(MissingError, match="state/0/2"):
        cairn.export(str(copied), to=str(tmp_path / "to"), session=source.session())


def test_a_key_is_erased_by_tasks_of_spark(source: Run, tmp_path: Path) -> None:
    """All rows but those of the key stay."""
    copied = tmp_path / "copied"
    shutil.copytree(source.checkpoint, copied)
    age_logs(copied)
    with cairn.open_checkpoint(str(copied)) as checkpoint:
        state = checkpoint.state(0)
        before = state.to_table().to_pylist()
    names = [column.name for column in state.family.columns if column.is_key]
    key = {name: before[0][name] for name in names}

    with cairn.erase(str(copied), key=key) as plan:
        erased = plan.apply(session=source.session())

    with cairn.open_checkpoint(str(copied)) as checkpoint:
        after = checkpoint.state(0).to_table().to_pylist()
    assert sum(sum(one.keys.values()) for one in erased) == 1
    assert sorted(map(str, after)) == sorted(str(row) for row in before if row != before[0])
    record = json.loads(next(copied.glob("cairn-log/*erase*/record.json")).read_text())
    assert record["ended"]


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_progress_raises_cancels_the_job(source: Run, jobs: int) -> None:
    """Also one that begins later: Ctrl-C in a notebook must not leave tasks that write stores."""
    session = source.session()
    context = session.sparkContext
    what = {"target": Location(source.checkpoint), "token": f"jobs-{jobs}", "results": "none"}
    move = SimpleNamespace(**what)
    begun: list[float] = []

    def job() -> list[None]:
        for _ in range(jobs):
            begun.append(time.monotonic())
            with suppress(Exception):
                context.parallelize([600], 1).map(time.sleep).collect()
        return []

    def interrupt(_: MoveProgress) -> None:
        if begun:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_spark(session, job, cast("Move", move), [], interrupt)

    assert time.monotonic() - begun[0] < 300
    assert len(begun) == jobs
    assert list(context.statusTracker().getActiveJobsIds()) == []
