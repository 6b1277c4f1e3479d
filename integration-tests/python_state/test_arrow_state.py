"""`cairn.apply_in_arrow_with_state` is `applyInPandasWithState` for chunks of keys.

The same function runs in both forms on the same input: rows and state are equal, and a checkpoint
goes on with the other form.
"""

# The functions have the parameters that Cairn gives them.
# ruff: noqa: ARG005

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame

import cairn
from cairn.errors import ConfigError
from harness.differential import PlannedRun, Run
from harness.events import Events
from harness.operators import BY_NAME, Operator, StateView
from harness.spark import CAIRN, MINOR, ROCKSDB

# Spark's Python workers cannot import this module: its functions are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

pytestmark = [
    pytest.mark.usefixtures("driver"),
    pytest.mark.skipif(MINOR != "4.3", reason="apply_in_arrow_with_state is for Spark 4.3"),
]

# The stubs of pyarrow know arrays of known types alone.
pc: Any = pyarrow.compute
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
FILES = 3
KEYS = 20


def both(
    timeout: str, folder: Path, events: Events, conf: dict[str, str], form: int = 2
) -> tuple[Run, Run]:
    """Return the runs of the function for single keys, and for chunks."""
    single, chunks = (
        Run(BY_NAME[f"steps_{name}_{timeout}"], events, str(folder / name), CAIRN, form, conf)
        for name in ("pandas", "arrow")
    )
    return single, chunks


def assert_equal(single: Run, chunks: Run) -> None:
    """Check that both have the same rows, counts that do not tell of writes, and state."""
    assert chunks.record.rows == single.record.rows
    for batch, counts in single.record.counts.items():
        for one, other in zip(counts, chunks.record.counts[batch], strict=True):
            assert (one[0], one[3]) == (other[0], other[3]), f"rows of state or late, batch {batch}"
    (view,) = single.operator.views
    last = single.record.last_batch
    assert chunks.state(view, batchId=last) == single.state(view, batchId=last)


@pytest.mark.parametrize(
    ("timeout", "seed", "max_records", "form"),
    [
        ("EventTimeTimeout", 1, 7, 2),
        ("ProcessingTimeTimeout", 2, 1, 1),
        ("NoTimeout", 3, 10_000, 2),
        *(
            pytest.param(timeout, seed, seed % 30, 1 + seed % 2, marks=pytest.mark.slow)
            for seed in range(10, 20)
            for timeout in ("EventTimeTimeout", "ProcessingTimeTimeout")
        ),
    ],
)
def test_rows_and_state_are_those_of_single_keys(
    tmp_path: Path, timeout: str, seed: int, max_records: int, form: int
) -> None:
    """Also after a restart at which each takes the place of the other."""
    events = Events(tmp_path / "input", seed=seed, keys=KEYS)
    events.add_files(0, FILES)
    single, chunks = both(timeout, tmp_path, events, {MAX_RECORDS: str(max_records)}, form)
    for run in (single, chunks):
        run.advance()
    assert_equal(single, chunks)

    events.add_files(FILES, FILES)
    single.operator, chunks.operator = chunks.operator, single.operator
    for run in (single, chunks):
        run.advance()
    assert_equal(chunks, single)
    rows = "".join(row for rows in single.record.rows.values() for row in rows)
    assert ("timed out True, had True" in rows) == (timeout != "NoTimeout")


def test_the_reader_of_cairn_reads_the_state(tmp_path: Path) -> None:
    """It knows nothing of the function: the state is that of applyInPandasWithState."""
    events = Events(tmp_path / "input", keys=KEYS)
    events.add_files(0, FILES)
    runs = both("EventTimeTimeout", tmp_path, events, {})
    tables = []
    for run in runs:
        run.advance()
        with cairn.open_checkpoint(run.checkpoint) as checkpoint:
            rows = checkpoint.state().to_table().to_pylist()
        tables.append(sorted(map(repr, rows)))
    assert tables[0]
    assert tables[1] == tables[0]


def test_lists_and_maps_are_state(tmp_path: Path) -> None:
    """Spark 4.3.0's worker cannot read a schema of state that has one; both readers can."""

    def collect(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        of_key: dict[int | None, list[int | None]] = {}
        for row in rows.to_pylist():
            of_key.setdefault(row["k"], []).append(row["v"])
        after = [
            {
                "k": row["k"],
                "exists": True,
                "seen": sorted([*(row["seen"] or []), *of_key[row["k"]]], key=repr),
                "by_name": [("ü", {"n": len(of_key[row["k"]])}), ("none", None)],
            }
            for row in state.to_pylist()
        ]
        seen = [{"k": row["k"], "n": len(row["seen"])} for row in after]
        return pa.Table.from_pylist(seen), pa.Table.from_pylist(after, state.schema)

    run = run_of(collect, tmp_path)
    state = "seen array<bigint>, by_name map<string,struct<n:bigint>>"
    run.operator = replace(run.operator, plan=counts(collect, state))
    run.advance()
    assert run.record.rows == {batch: expected_counts(run, batch) for batch in (0, 1)}
    keys = {row.partition(",")[0] for rows in run.record.rows.values() for row in rows}
    with cairn.open_checkpoint(run.checkpoint) as checkpoint:
        rows = checkpoint.state().to_table().to_pylist()
    assert len(rows) == len(keys)
    assert "('none', None)" in repr(rows[0])
    assert sum(text.count("Row(key") for text in run.state(StateView())) == len(keys)


def counts(
    function: Callable[..., Any], state: str = "n bigint", timeout: str = "NoTimeout"
) -> Callable[[DataFrame, DataFrame], DataFrame]:
    """Return a plan of a function over the keys `k`."""

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        grouped = left.groupBy("k")
        return cairn.apply_in_arrow_with_state(
            grouped, function, "k int, n bigint", state, "update", timeout
        )

    return plan


def count(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Count the rows of each key."""
    counted = rows.group_by("k").aggregate([([], "count_all")]).sort_by("k")
    before = state.sort_by("k")
    n = pc.add(pc.fill_null(before["n"], 0), counted["count_all"])
    after = pa.table({"k": before["k"], "n": n})
    return after, after


def run_of(function: Callable[..., Any], folder: Path, **more: Any) -> Run:  # noqa: ANN401
    """Return a run of a function over new input."""
    events = Events(folder / "input", keys=KEYS)
    events.add_files(0, 2)
    operator = Operator("arrow", counts(function), "update")
    return Run(operator, events, str(folder / "checkpoint"), **{"provider": CAIRN, **more})


def expected_counts(run: Run, batch: int) -> list[str]:
    """Count the rows so far of each key that a batch has."""
    counted: dict[int | None, int] = {}
    keys: list[int | None] = []
    for number in range(batch + 1):
        lines = run.events.path("left", number).read_text().splitlines()
        keys = [json.loads(line)["k"] for line in lines]
        for k in keys:
            counted[k] = counted.get(k, 0) + 1
    return sorted(f"Row(k={k}, n={counted[k]})" for k in set(keys))


@pytest.mark.parametrize("provider", [CAIRN, ROCKSDB])
def test_a_null_key_is_a_key_and_any_provider_will_do(tmp_path: Path, provider: str) -> None:
    """The operator is Cairn's, also where the stores are Spark's."""
    run = run_of(count, tmp_path, provider=provider)
    run.operator = replace(run.operator, conf={MAX_RECORDS: "3"})
    run.advance()
    assert "Row(k=None" in "".join(run.record.rows[0])
    assert run.record.rows == {batch: expected_counts(run, batch) for batch in (0, 1)}


def test_a_worker_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """The next attempt begins from the state before; no key is counted twice."""

    def dies_once(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0 and state.num_rows and state["n"].null_count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return count(rows, state)

    run = run_of(dies_once, tmp_path, conf={MAX_RECORDS: "9"})
    planned = PlannedRun(**vars(run))
    planned.advance()
    assert planned.failed_tasks > 0
    assert "ApplyInArrowWithState" in planned.plan
    assert planned.record.rows == {batch: expected_counts(run, batch) for batch in (0, 1)}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows, state: state, "returned an object of type Table"),
        (lambda rows, state: (None, state.slice(1)), "lacks keys of the chunk: 1, such as k="),
        (lambda rows, state: (state, state), "output has besides its own: column 'exists'"),
        (lambda rows, state: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_errors_name_the_function_and_the_column(
    tmp_path: Path, function: Callable[..., Any], message: str
) -> None:
    """They end the query, and nothing of the batch is stored."""
    function.__name__ = "mine"
    run = run_of(function, tmp_path)
    with pytest.raises(Exception, match=message) as error:
        run.advance()
    if "ZeroDivision" not in message:
        assert "[CAIRN_ARROW_STATE] cairn.apply_in_arrow_with_state(mine): " in str(error.value)
    run.operator = replace(run.operator, plan=counts(count))
    run.advance()
    assert run.record.rows[0] == expected_counts(run, 0)


def test_state_format_1_is_refused(tmp_path: Path) -> None:
    """Spark would call the function key by key: an error says why it cannot."""
    name = "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion"
    run = run_of(count, tmp_path, conf={name: "1"})
    with pytest.raises(Exception, match=r"CAIRN_ARROW_STATE.*operator is not in the plan"):
        run.advance()


def test_names_that_come_twice_are_refused(tmp_path: Path) -> None:
    """A table with two columns of one name would mix up key and state."""
    run = run_of(count, tmp_path)
    for state, name in (("k bigint", "k"), ("exists boolean", "exists")):
        run.operator = replace(run.operator, plan=counts(count, state))
        with pytest.raises(ConfigError, match=f"state would have two columns named '{name}'"):
            run.start()


def test_a_frame_without_keys_is_refused(tmp_path: Path) -> None:
    """Spark would fail in the first batch, with a message about its own plan."""
    run = run_of(count, tmp_path)

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        every = left.groupBy()
        return cairn.apply_in_arrow_with_state(
            every, count, "n bigint", "n bigint", "append", "NoTimeout"
        )

    run.operator = replace(run.operator, plan=plan)
    with pytest.raises(ConfigError, match="grouped by no column"):
        run.start()


def test_unchanged_state_is_not_written(tmp_path: Path) -> None:
    """A function that returns `state` costs no write: the batch has nothing to store."""
    run = run_of(count, tmp_path)
    run.advance()
    run.events.add_files(2, 1)
    run.operator = replace(run.operator, plan=counts(lambda rows, state: (None, state)))
    run.advance()
    updated, removed = run.record.counts[2][0][1:3]
    assert (updated, removed) == (0, 0)
