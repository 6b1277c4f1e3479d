"""A query has the same results with and without prefetch, on a state far larger than its cache.

The cache of 1 MiB holds a part of the state, so that most keys are read from the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from harness.control import Control
from harness.differential import PlannedRun
from harness.events import Events
from harness.killed_workers import kill_at_work
from harness.operators import BY_NAME, Operator
from harness.spark import CAIRN, CAIRN_CONF, CONTROL

# Spark's Python workers cannot import this module: its functions are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

pytestmark = pytest.mark.usefixtures("driver")

FILES = 3
NODE = "CairnPrefetch"
SMALL_CACHE = {CAIRN_CONF + "cacheMemory": "1m"}
OFF = {CAIRN_CONF + "optimizePlans": "false"}


def _distinct_then_limit(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.select("k", "name").dropDuplicates(["k", "name"]).limit(500)


def _distinct_by_time(left: DataFrame, _: DataFrame) -> DataFrame:
    timed = left.withColumn("ts", f.date_trunc("minute", "ts")).select("k", "name", "ts")
    return timed.withWatermark("ts", "10 minutes").dropDuplicates(["k", "name", "ts"])


def _distinct_within_watermark(left: DataFrame, _: DataFrame) -> DataFrame:
    timed = left.withWatermark("ts", "10 minutes").select("k", "name", "ts")
    return timed.dropDuplicatesWithinWatermark(["k", "name"])


def _survives(k: int) -> bool:
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0 and (k or 0) % 1000 == 0:
        raise RuntimeError("the first attempt of each task fails after some rows")
    return True


def _distinct_failing_once(left: DataFrame, _: DataFrame) -> DataFrame:
    # Spark would take the annotations of the function itself for those of another kind of function.
    survives = f.udf(lambda k: _survives(k), "boolean")  # noqa: PLW0108
    return left.select("k", "name").dropDuplicates(["k", "name"]).where(survives("k"))


def _totals_by_name(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.groupBy("k", "name").agg(f.sum("v").alias("total"))


def _keep_large_state(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    rows = sum(len(frame) for frame in frames) + (state.get[0] if state.exists else 0)
    state.update((rows, "x" * 1500))
    yield pd.DataFrame([(key[0], rows)], columns=["k", "events"])


def _groups(left: DataFrame, _: DataFrame) -> DataFrame:
    return (
        left.where("k is not null and k % 4 = 0")
        .groupBy("k")
        .applyInPandasWithState(
            _keep_large_state,
            "k int, events bigint",
            "events bigint, filler string",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


DISTINCT_THEN_LIMIT = Operator("distinct_then_limit", _distinct_then_limit)
DISTINCT_FAILING_ONCE = Operator("distinct_failing_once", _distinct_failing_once)
PREFETCHING = (
    BY_NAME["windows_update"],
    BY_NAME["windows_append"],
    Operator("totals_complete", _totals_by_name, "complete"),
    BY_NAME["distinct"],
    # The rows have a name: without it the state of an operator may fit into the cache.
    Operator("distinct_by_time", _distinct_by_time),
    Operator("distinct_within_watermark", _distinct_within_watermark),
    BY_NAME["windows_then_distinct"],
    DISTINCT_THEN_LIMIT,
    Operator("groups", _groups),
    BY_NAME["sessions"],
)
# Each kind of operator; the others are slow tests.
QUICK = {"windows_update", "distinct_by_time", "groups", "sessions", "join_left_outer_v4"}
# The removal of old rows reads their keys too, and no input row names these.
JOINS = (
    BY_NAME["join_inner_v2"],
    BY_NAME["join_left_outer_v2"],
    BY_NAME["join_left_outer_v3"],
    BY_NAME["join_left_outer_v4"],
)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Return input whose keys do not fit into the cache, and come back in later files."""
    events = Events(tmp_path_factory.mktemp("input"), rows_per_file=4000, keys=6000)
    events.add_files(0, FILES)
    return events


class Runs:
    """Finished runs over one input. Tests that need the same run share it."""

    def __init__(self, events: Events, folder: Path) -> None:
        self.events = events
        self._folder = folder
        self._finished: dict[tuple[str, ...], PlannedRun] = {}

    def of(self, operator: Operator, conf: Mapping[str, str] | None = None) -> PlannedRun:
        """Return the run of a query over all files."""
        settings = {**SMALL_CACHE, **(conf or {})}
        key = (operator.name, *map(str, sorted(settings.items())))
        if key not in self._finished:
            checkpoint = str(self._folder / str(len(self._finished)))
            done = PlannedRun(operator, self.events, checkpoint, CAIRN, 2, conf=settings)
            done.advance()
            self._finished[key] = done
        return self._finished[key]


@pytest.fixture(scope="module")
def runs(events: Events, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return the runs of this file."""
    return Runs(events, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in QUICK else [pytest.mark.slow])
        for one in (*PREFETCHING, *JOINS)
    ],
)
def test_prefetch_changes_no_row_and_no_count(operator: Operator, runs: Runs) -> None:
    """Users turn it on for speed alone: rows, order of groups, limits and counts must stay."""
    on = runs.of(operator)
    off = runs.of(operator, OFF)

    assert NODE in on.plan
    assert NODE not in off.plan
    assert on.record.rows == off.record.rows
    assert on.record.counts == off.record.counts
    assert any(on.record.rows.values())
    assert on.record.metrics["cairnPrefetchHits"] > 0
    assert off.record.metrics["cairnPrefetchHits"] == off.record.metrics["cairnPrefetchMisses"] == 0
    # Refills between batches save reads in both runs; without prefetch perhaps all of them.
    without = max(_read_alone(off.record.metrics), on.record.metrics["cairnPrefetchHits"])
    saved = 1 - _read_alone(on.record.metrics) / without
    assert saved > (0.3 if operator in JOINS else 0.5), (on.record.metrics, off.record.metrics)


def _read_alone(metrics: Mapping[str, Any]) -> int:
    """Return the number of keys that tasks waited for one by one."""
    prefetched = metrics["cairnPrefetchHits"]
    return int(metrics["cairnPrefetchMisses"] if prefetched else metrics["cairnCacheMisses"])


def test_whole_stage_code_generation_changes_nothing(runs: Runs) -> None:
    """The other tests turn it off to save time; jobs have it on."""
    compiled = {"spark.sql.codegen.wholeStage": "true"}

    on = runs.of(BY_NAME["windows_update"], compiled)
    off = runs.of(BY_NAME["windows_update"], OFF)

    assert "*(1)" in on.plan
    assert on.record.metrics["cairnPrefetchHits"] > 0
    assert on.record.rows == off.record.rows


def test_a_retried_task_has_the_same_rows(runs: Runs) -> None:
    """The first attempt fails while keys are on their way: the second must start from nothing."""
    on = runs.of(DISTINCT_FAILING_ONCE)
    off = runs.of(BY_NAME["distinct"], OFF)

    assert on.failed_tasks
    assert on.record.metrics["cairnPrefetchHits"] > 0
    assert on.record.rows == off.record.rows
    assert on.record.counts == off.record.counts


@pytest.mark.parametrize(
    "name",
    [pytest.param("windows_update", marks=pytest.mark.slow), "sessions", "join_left_outer_v4"],
)
def test_workers_killed_during_a_batch_change_no_row(name: str, runs: Runs, tmp_path: Path) -> None:
    """A prefetched key is a hint: its loss must not fail a task that would have survived."""
    on = PlannedRun(BY_NAME[name], runs.events, str(tmp_path / "on"), CAIRN, 2, conf=SMALL_CACHE)
    # Once: a second kill could hit the start of the next worker, which fails the task.
    killed = kill_at_work(on, 1)

    on.advance()

    off = runs.of(BY_NAME[name], OFF)

    assert killed, "there was no engine to kill"
    assert on.record.metrics["cairnPrefetchHits"] > 0
    assert not on.failed_tasks
    assert on.record.rows == off.record.rows
    assert on.record.counts == off.record.counts


@pytest.mark.parametrize(
    "name",
    [
        "sessions",
        pytest.param("join_inner_v2", marks=pytest.mark.slow),
        "join_left_outer_v3",
        "join_left_outer_v4",
    ],
)
def test_rows_are_those_of_sparks_provider(name: str, runs: Runs, tmp_path: Path) -> None:
    """Prefetched rows are merged with those that the batch has written."""
    ours = runs.of(BY_NAME[name])
    run = PlannedRun(BY_NAME[name], runs.events, str(tmp_path / "theirs"), CONTROL, 2)
    theirs = Control(f"prefetch/{name}", run)

    theirs.advance()

    assert ours.record.metrics["cairnPrefetchHits"] > 0
    assert ours.record.rows == theirs.record.rows
    assert ours.record.counts == theirs.record.counts


def test_a_cache_with_the_whole_state_prefetches_nothing(runs: Runs) -> None:
    """Buffering rows would only cost where all reads are local."""
    large = runs.of(BY_NAME["distinct"], {CAIRN_CONF + "cacheMemory": "64m"})

    assert NODE in large.plan
    assert (
        large.record.metrics["cairnCacheMisses"] == large.record.metrics["cairnPrefetchHits"] == 0
    )


def test_plans_of_other_providers_are_left_alone(tmp_path: Path) -> None:
    """A session may run queries under Spark's provider beside those under Cairn."""
    small = Events(tmp_path / "input")
    small.add_files(0, 1)

    control = PlannedRun(BY_NAME["distinct"], small, str(tmp_path / "control"), CONTROL)
    control.advance()

    assert control.plan
    assert NODE not in control.plan


def test_a_row_keeps_the_name_of_its_file(tmp_path: Path) -> None:
    """Spark tells the file that the task reads now; to read on would change it."""
    input_ = Events(tmp_path / "input", rows_per_file=4000, keys=6000)
    input_.add_files(0, 4)

    def named(left: DataFrame, _: DataFrame) -> DataFrame:
        stream = left.sparkSession.readStream.schema(left.schema).option("maxFilesPerTrigger", 2)
        rows = stream.json(str(input_.folder / "left")).coalesce(1)
        return rows.dropDuplicates(["k", "name", "v"]).withColumn("file", f.input_file_name())

    def run(name: str, conf: Mapping[str, str]) -> PlannedRun:
        one_task = {**SMALL_CACHE, "spark.sql.shuffle.partitions": "1", **conf}
        operator = Operator("named", named)
        done = PlannedRun(operator, input_, str(tmp_path / name), CAIRN, 2, conf=one_task)
        done.advance()
        return done

    on, off = run("on", {}), run("off", OFF)

    assert "Exchange" not in on.plan
    assert off.record.metrics["cairnCacheMisses"] > 0
    assert on.record.rows == off.record.rows
