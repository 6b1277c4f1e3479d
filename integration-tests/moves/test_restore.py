"""A query goes on from each batch that is retained, with the rows that it had the first time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import cairn
from harness.differential import Record, Run, as_text, copy_checkpoint, forget_batches
from harness.events import Events
from harness.moves import age_logs
from harness.operators import BY_NAME
from harness.spark import STATE_STORE, SUBJECT, new_session

pytestmark = pytest.mark.usefixtures("driver")

FILES = 8
MORE_FILES = 2
RETAINED = 4
CONF = {
    "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
    STATE_STORE + "maintenanceInterval": "100ms",
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param("sessions", 1, id="sessions-format1"),
        *(
            pytest.param(name, form, id=f"{name}-format{form}", marks=pytest.mark.slow)
            for name, form in (
                ("sessions", 2),
                ("totals_complete", 2),
                ("join_left_outer_v2", 1),
                ("join_left_outer_v4", 2),
                ("transform_ttl", 1),
                ("transform_event_time", 2),
            )
        ),
    ],
)
def test_a_query_goes_on_from_each_retained_batch(tmp_path: Path, name: str, form: int) -> None:
    """Its sink gets the same rows again, and the state at the end is the same one."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = Run(BY_NAME[name], events, str(tmp_path / "ck"), SUBJECT, form, CONF)
    run.advance()
    rows, last = run.record.rows, run.record.last_batch
    with cairn.open_checkpoint(run.checkpoint) as checkpoint:
        retained = [batch for batch in checkpoint.batches if batch < last]
    assert len(retained) > 2

    for batch in retained:
        again = copy_checkpoint(run, tmp_path / f"to-{batch}")
        age_logs(Path(again.checkpoint))
        with cairn.restore(again.checkpoint, to_batch=batch) as plan:
            plan.apply()
        # The source of files would give all that it has listed to the batch after the repeated one:
        # here it takes the same parts again, as other sources do.
        for source in Path(again.checkpoint, "sources").iterdir():
            forget_batches(source, ".", batch + 2)
        again.advance()

        assert again.record.rows == {one: rows[one] for one in rows if one > batch}, batch
        for view in run.operator.views:
            assert again.state(view) == run.state(view), f"{view}, {batch}"
        with cairn.open_checkpoint(again.checkpoint) as checkpoint:
            assert [one for one in checkpoint.verify() if one.severity == "error"] == []


@pytest.mark.parametrize(
    "checkpoint_format", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2)]
)
def test_a_sink_that_keeps_the_last_row_per_key_ends_with_the_rows_of_a_batch_job(
    tmp_path: Path, checkpoint_format: int
) -> None:
    """A restore leaves the log of the source: the input comes again, in other batches.

    Input that is lost, or is added twice to a total, would stay wrong in such a sink for ever.
    """
    operator = replace(BY_NAME["totals_complete"], name="totals_update", output_mode="update")
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = Run(operator, events, str(tmp_path / "ck"), SUBJECT, checkpoint_format, CONF)
    run.advance()
    before, last = run.record.rows, run.record.last_batch
    # The oldest one that is retained for sure: maintenance may delete the state of the one before.
    to_batch = last + 1 - RETAINED
    age_logs(Path(run.checkpoint))

    with cairn.restore(run.checkpoint, to_batch=to_batch) as plan:
        assert plan.batch == to_batch
        plan.apply()
    events.add_files(FILES, MORE_FILES)
    again = replace(run, record=Record())
    again.advance()

    after = again.record.rows
    assert to_batch + 2 < last
    # The batch that was planned; one with a new file and all others that the source knew; new ones.
    assert list(after) == list(range(to_batch + 1, to_batch + 2 + MORE_FILES))
    assert after[to_batch + 1] == before[to_batch + 1]
    assert after[to_batch + 2] != before[to_batch + 2]
    expected = as_text(operator.batch(new_session({}), events))
    assert sorted((last_rows(before) | last_rows(after)).values()) == expected


def last_rows(rows: Mapping[int, list[str]]) -> dict[str, str]:
    """Return the last row of each key."""
    in_order = (row for batch in sorted(rows) for row in rows[batch])
    return {row.partition(", total=")[0]: row for row in in_order}
