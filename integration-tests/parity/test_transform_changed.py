"""A program of transformWithState that is changed between two runs of its query.

Subject and Spark's provider run the same forms of the program, one after the other, on the same
checkpoint. Each form has the same rows and the same state under both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from harness import processors
from harness.differential import Record, Run
from harness.events import Events
from harness.operators import BY_NAME, Operator
from harness.spark import CONTROL, SUBJECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.usefixtures("driver")

T = TypeVar("T")
PROVIDERS = (SUBJECT, CONTROL)
FILES_PER_FORM = 2
DELETED = ("transform_event_time", "transform_without_names", "transform_event_time")
# The views with changes of variables that all forms have.
VIEWS_OF_CHANGES = [view for view in BY_NAME[DELETED[1]].views if view.has_changes]
WIDER = ("transform_avro", "transform_avro_largest")


def run_forms(names: tuple[str, ...], folder: Path, checkpoint_format: int = 1) -> list[list[Run]]:
    """Run the forms one after the other; return the runs of each form under both providers."""
    events = Events(folder / "input")
    records = {provider: Record() for provider in PROVIDERS}
    ended = []
    for number, name in enumerate(names):
        events.add_files(number * FILES_PER_FORM, FILES_PER_FORM)
        runs = [
            Run(
                BY_NAME[name],
                events,
                str(folder / provider),
                provider,
                checkpoint_format,
                record=records[provider],
            )
            for provider in PROVIDERS
        ]
        both(runs, Run.advance)
        # The record of this form, which the next one continues.
        copies = [Record(dict(run.record.rows), dict(run.record.counts)) for run in runs]
        ended.append([replace(run, record=copy) for run, copy in zip(runs, copies, strict=True)])
    return ended


def both(runs: list[Run], call: Callable[[Run], T]) -> list[T]:
    """Call for both providers concurrently."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(call, runs))


@pytest.mark.parametrize("checkpoint_format", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(DELETED, id="deleted"),
        # In `make test` test_evolution has it.
        pytest.param(WIDER, id="wider", marks=pytest.mark.slow),
    ],
)
def test_a_changed_program_has_the_rows_and_the_state_of_sparks_provider(
    tmp_path: Path, names: tuple[str, ...], checkpoint_format: int
) -> None:
    """A deleted variable must not come back with old rows; a wider value must keep its old ones.

    The change feed of a variable that stayed must not end where another one was deleted.
    """
    forms = run_forms(names, tmp_path, checkpoint_format)
    for subject, control in forms:
        assert subject.record.rows == control.record.rows
        assert subject.record.counts == control.record.counts
        for view in control.operator.views:
            read = partial(Run.state, view=view, batchId=control.record.last_batch)
            ours, sparks = both([subject, control], read)
            assert ours == sparks, f"{subject.operator.name}, {view}"
            assert sparks, f"{subject.operator.name} has no state: {view}"
    last_form = forms[-1]
    last = last_form[1].record.last_batch
    for view in VIEWS_OF_CHANGES:
        ours, sparks = both(last_form, partial(Run.changes, view=view, last=last))
        assert ours == sparks, f"changes, {view}"
        assert sparks


def test_a_wider_value_without_avro_fails_as_under_sparks_provider(tmp_path: Path) -> None:
    """The error names the schemas; a query that went on would read wrong fields."""
    conditions = []
    for provider in PROVIDERS:
        folder = tmp_path / provider
        events = Events(folder / "input")
        events.add_files(0, FILES_PER_FORM)
        first = Run(BY_NAME["transform_event_time"], events, str(folder / "checkpoint"), provider)
        first.advance()
        events.add_files(FILES_PER_FORM, 1)
        with pytest.raises(StreamingQueryException) as failure:
            replace(first, operator=BY_NAME["transform_largest"]).advance()
        conditions.append(re.findall(r"\[([A-Z_]+)", str(failure.value)))

    assert conditions[0] == conditions[1]
    assert any("SCHEMA" in name for name in conditions[0]), conditions


def test_the_state_of_another_query_is_an_initial_state(tmp_path: Path) -> None:
    """Users move to a new query with the `statestore` source; its rows must be all of the state."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES_PER_FORM)
    rows = []
    for provider in PROVIDERS:
        old = Run(BY_NAME["transform_ttl"], events, str(tmp_path / f"{provider}-old"), provider)
        old.advance()
        operator = Operator("seeded", partial(_seeded, checkpoint=old.checkpoint))
        new = Run(operator, events, str(tmp_path / f"{provider}-new"), provider)
        new.advance()
        rows.append(new.record.rows)
        assert new.record.rows[0] != old.record.rows[0]

    assert rows[0] == rows[1]


def _seeded(left: DataFrame, right: DataFrame, checkpoint: str) -> DataFrame:
    """Return the query whose initial state are the totals and the lists of a checkpoint."""

    def read(variable: str) -> DataFrame:
        reader = left.sparkSession.read.format("statestore")
        return reader.option("stateVarName", variable).load(checkpoint)

    totals = read("total").select("key.k", "value.value.*")
    values = read("values").select("key.k", "list_element.value.v")
    seen = values.groupBy("k").agg(f.sort_array(f.collect_list("v")).alias("seen"))
    initial = totals.join(seen, "k").select("k", "events", "total", "seen")
    return processors.visits(processors.Visits, "EventTime", initial=initial)(left, right)
