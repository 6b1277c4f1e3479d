"""How the stores of a move are moved: by processes of this machine, by a job of Spark."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from pathlib import Path

import pytest
from slow_move import SlowMove
from small_checkpoint import PARTITIONS, SmallCheckpoint

from cairn.errors import CairnError
from cairn.format.spark_log import PROVIDER
from cairn.offline.move.moving import Location, Move, StoreRef
from cairn.offline.move.running import MoveProgress, run_in_spark, run_move
from cairn.reader.batch import BatchView
from cairn.reader.spark.logs import class_of
from cairn.reader.stores.base import ReadLimits

STORES = [StoreRef(0, "default", partition) for partition in range(PARTITIONS)]


@pytest.fixture
def move(tmp_path: Path) -> Move:
    """Return a move of a small state to Cairn."""
    written = SmallCheckpoint(tmp_path / "source")
    written.commit({user: (1, user) for user in range(40)})
    source = Location(str(written.folder))
    with source.open() as objects:
        conf = BatchView(objects, 0).conf
    return Move(
        source=source,
        source_batch=0,
        target=Location(str(tmp_path / "target")),
        batch=0,
        checkpoint_format=1,
        conf=replace(conf, entry=conf.entry.with_conf({PROVIDER: class_of("cairn")})),
        results="cairn-log/a-move/results",
        token="work",  # noqa: S106 - no secret
        memory_bytes=ReadLimits().memory_bytes,
    )


def test_processes_that_move_stores_end_at_once_if_the_move_does(
    move: Move, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends a move would else wait until the partitions of now are done."""
    kit = Path(__file__).parents[1] / "kit"
    monkeypatch.setenv("PYTHONPATH", str(kit))
    slow = SlowMove(**{one.name: getattr(move, one.name) for one in fields(move)})

    def end(done: MoveProgress) -> None:
        if done.rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_move(slow, STORES, processes=2, progress=end)

    assert not list((tmp_path / "target").glob(f"{move.results}/*"))


class Context:
    """What the driver of a job uses of a ``SparkContext``, and is its own session."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.tags: list[str] = []
        self.cancelled = threading.Event()

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """Note the tag of the job that begins."""
        self.tags.append(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        """End the job with this tag."""
        if tag in self.tags:
            self.cancelled.set()

    def job(self) -> list[CairnError | None]:
        """Run until it is cancelled."""
        self.cancelled.wait()
        return []


def test_a_job_of_spark_is_cancelled_if_the_move_ends(move: Move) -> None:
    """Its tasks would else run on for hours, and the caller wait for them."""
    spark = Context()

    def end(_: MoveProgress) -> None:
        if spark.tags:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_spark(spark, spark.job, move, STORES, end)

    assert spark.cancelled.is_set()
