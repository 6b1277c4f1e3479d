"""A query goes on from each batch that is retained, with the rows that it had the first time."""

from __future__ import annotations

from pathlib import Path

import pytest

import cairn
from harness.differential import Run, copy_checkpoint, forget_batches
from harness.events import Events
from harness.moves import age_logs
from harness.operators import BY_NAME
from harness.spark import STATE_STORE, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

FILES = 8
CONF = {
    "spark.sql.streaming.minBatchesToRetain": "4",
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
