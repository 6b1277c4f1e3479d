"""The state of a query is read while the query runs in the same JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME, StateView
from harness.spark import CONTROL, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

VIEW = StateView()
FILES = 5


def test_a_reader_sees_whole_versions_of_a_running_query_and_does_not_disturb_it(
    tmp_path: Path,
) -> None:
    """A reader of a running query's state must see a whole batch, and not stop the query."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = Run(BY_NAME["windows_update"], events, str(tmp_path / "subject"), SUBJECT)
    other = Run(run.operator, events, str(tmp_path / "control"), CONTROL)
    control = Control("reader-beside", other)
    control.advance()
    expected = {
        batch: control.state(VIEW, batchId=batch) for batch in range(control.record.last_batch)
    }
    seen: dict[int, list[str]] = {}

    query = run.start()
    while query.isActive:
        for batch in committed_batches(tmp_path / "subject") & expected.keys() - seen.keys():
            seen[batch] = run.state(VIEW, batchId=batch)
    run.finish(query)

    assert seen, "the query ended before its state was read"
    assert seen == {batch: expected[batch] for batch in seen}
    assert run.record.rows == control.record.rows


def committed_batches(checkpoint: Path) -> set[int]:
    """List the batches that Spark has committed."""
    return {int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()}
