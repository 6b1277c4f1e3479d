"""Moves in tasks of Spark whose driver is killed: the same call goes on with what is left.

Until the end of the move nothing has happened to the query. The call is repeated in processes of
this machine, or in tasks of another session.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cairn
from cairn.format import hold
from harness.differential import Run, as_text, copy_checkpoint
from harness.moves import ended_query
from harness.processes import Process, descendants, wait_until, wait_until_ended
from harness.spark import CAIRN, ROCKSDB, driver_conf, new_session

pytestmark = pytest.mark.usefixtures("driver")

PARTITIONS = 8
NEW_PARTITIONS = 6
TIMEOUT_S = 180
END_S = 20
# The driver of a move. It waits for ever when so many stores are done: no later step is taken.
DRIVER = """
import json, sys, threading
from pathlib import Path
import cairn
from pyspark.sql import SparkSession

verb, checkpoint, arguments, conf, local_dir, waits_at, sign = json.loads(sys.argv[1])

def wait_there(progress):
    if progress.stores == waits_at:
        Path(sign).touch()
        threading.Event().wait()  # until it is killed

builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
with getattr(cairn, verb)(checkpoint, **arguments) as plan:
    plan.apply(session=session, local_dir=Path(local_dir), progress=wait_there)
"""


@dataclass(frozen=True)
class Move:
    """A move of a query that has ended.

    Attributes:
        verb: the function that makes the plan.
        arguments: its other arguments than the checkpoint.
        run: the query before it.
        result: the checkpoint after it.
        stores: how many are written.
        local_dir: for files of both calls.
    """

    verb: str
    arguments: dict[str, Any]
    run: Run
    result: str
    stores: int
    local_dir: Path

    def apply(self, session: Any) -> None:  # noqa: ANN401 - as `apply` has it
        """Do it."""
        make: Callable[..., Any] = getattr(cairn, self.verb)
        with make(self.run.checkpoint, **self.arguments) as plan:
            plan.apply(session=session, processes=2, local_dir=self.local_dir)

    def done(self) -> set[int]:
        """Return the partitions that are written."""
        results = "results/written" if self.verb == "repartition" else "results"
        found = Path(self.result).glob(f"cairn-log/*/{results}/*.json")
        return {int(path.name.split("-")[1]) for path in found}

    def objects(self, partitions: set[int]) -> dict[Path, int]:
        """Return the objects of some partitions, and when they were stored; not Spark's files."""
        folders = (Path(self.result, "state/0", str(number)) for number in partitions)
        found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        return {path: path.stat().st_mtime_ns for path in found if "_metadata" not in path.parts}

    def holds(self) -> list[str]:
        """Return the entries of the offset log that keep drivers away."""
        entries = Path(self.result, "offsets").glob("[0-9]*")
        return [path.name for path in entries if hold.parse(path.read_bytes()) is not None]

    def committed(self) -> list[str]:
        """Return the batches that are committed after the move."""
        return sorted(path.name for path in Path(self.result, "commits").glob("[0-9]*"))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return what runs a query of some batches under a provider, once for all tests."""

    @functools.cache
    def run(provider: str) -> Run:
        return ended_query(tmp_path_factory.mktemp("ended"), provider, PARTITIONS)

    return run


def move_of(what: str, ended: Callable[[str], Run], folder: Path) -> Move:
    """Return a move of a copy of a query."""
    run = copy_checkpoint(ended(CAIRN if what == "repartition" else ROCKSDB), folder / "query")
    local_dir = folder / "local"
    local_dir.mkdir()
    if what == "repartition":
        partitions = {"partitions": NEW_PARTITIONS}
        return Move(what, partitions, run, run.checkpoint, NEW_PARTITIONS, local_dir)
    result = str(folder / "target") if what == "migrate" else run.checkpoint
    to = {"to": result if what == "migrate" else None, "provider": "cairn"}
    return Move("migrate", to, run, result, PARTITIONS, local_dir)


def kill_driver(move: Move, moment: str, folder: Path) -> list[Process]:
    """Begin a move in Spark, and kill its driver; return the processes that it leaves for good.

    Args:
        move: the move.
        moment: `hold`: no store is done; `half`; `all`: but nothing is committed.
        folder: for Spark's files.
    """
    sign = folder / "waits"
    waits_at = 0 if moment == "hold" else move.stores
    conf = driver_conf(folder, "local[1]")
    arguments = [move.verb, move.run.checkpoint, move.arguments, conf, str(move.local_dir)]
    log = folder / "driver.log"

    def has_come() -> bool:
        if driver.poll() is not None:
            return True
        return sign.exists() if moment != "half" else len(move.done()) >= move.stores // 2

    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-c", DRIVER, json.dumps([*arguments, waits_at, str(sign)])],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as driver,
    ):
        try:
            wait_until(has_come, TIMEOUT_S, "the moment of the kill", log.read_text)
            assert driver.poll() is None, log.read_text()
            children = descendants(driver.pid)
        finally:
            driver.kill()
        # Its Python workers are not killed: they must end alone.
        for child in children:
            if "org.apache.spark.deploy.SparkSubmit" in child.command:
                child.kill()
    return wait_until_ended(children, END_S)


@pytest.mark.parametrize(
    ("what", "moment", "again"),
    [
        pytest.param("migrate-in-place", "hold", "spark"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("migrate", "hold", "here"),
                ("migrate", "half", "here"),
                ("migrate", "half", "spark"),
                ("migrate", "all", "spark"),
                ("migrate-in-place", "half", "here"),
                ("migrate-in-place", "all", "here"),
                ("repartition", "hold", "here"),
                ("repartition", "half", "spark"),
                ("repartition", "half", "here"),
                ("repartition", "all", "spark"),
            )
        ),
    ],
)
def test_the_same_call_finishes_a_move_whose_driver_was_killed(
    ended: Callable[[str], Run], tmp_path: Path, what: str, moment: str, again: str
) -> None:
    """A cluster takes the driver away, too: the query must not begin with half of its state."""
    move = move_of(what, ended, tmp_path)
    before, committed = rows_of(move.run.checkpoint), move.committed()

    left = kill_driver(move, moment, tmp_path)

    assert not left, "processes outlive their driver"
    done = move.done()
    stored = move.objects(done)
    assert moment != "hold" or not done
    assert moment != "half" or move.stores // 2 <= len(done) < move.stores
    assert moment != "all" or len(done) == move.stores
    assert len(move.holds()) == 1
    assert move.committed() == committed, "a part of the state is a batch"
    assert rows_of(move.run.checkpoint) == before

    move.apply(move.run.session() if again == "spark" else None)

    assert move.holds() == []
    assert rows_of(move.result) == before
    assert move.objects(done).items() >= stored.items(), "a store was written twice"
    assert not [path for path in move.local_dir.rglob("*") if path.is_file()]
    with cairn.open_checkpoint(move.result) as opened:
        assert [one for one in opened.verify() if one.severity == "error"] == []
        assert opened.operators[0].partitions == move.stores
    assert_goes_on(move)


def rows_of(checkpoint: str) -> list[str]:
    """Return the rows of a state, without their partitions."""
    with cairn.open_checkpoint(checkpoint) as opened:
        rows = opened.state().to_table().drop_columns("partition").to_pylist()
    return sorted(map(repr, rows))


def assert_goes_on(move: Move) -> None:
    """Run the next batch on Cairn: it adds to the totals that were moved."""
    run = move.run
    after = Run(run.operator, run.events, move.result, CAIRN, run.checkpoint_format, run.conf)
    run.events.add_files(2, 1)
    after.advance()
    expected = as_text(run.operator.batch(new_session({}), run.events))
    assert after.record.rows[after.record.last_batch] == expected
