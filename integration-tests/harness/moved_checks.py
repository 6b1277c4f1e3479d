"""What a query whose state was moved must have in common with the one that was never moved."""

from __future__ import annotations

from typing import Any

import cairn
from harness.moves import MovedQuery, Stage
from harness.state_cases import compared


def require_same_sink(query: MovedQuery) -> None:
    """Require the rows of each batch."""
    for stage in query.stages:
        _require_same_batches(stage, query.control.record.rows, stage.run.record.rows)


def require_same_progress(query: MovedQuery) -> None:
    """Require the counts of each batch behind a move."""
    for stage in query.later:
        _require_same_batches(stage, query.control.record.counts, stage.run.record.counts)


def _require_same_batches(stage: Stage, unmoved: dict[int, Any], found: dict[int, Any]) -> None:
    """Require of a stage what the query that was never moved has of its batches."""
    expected = {
        number + stage.shift: unmoved[number]
        for number in range(stage.first, stage.last + 1)
        if number in unmoved
    }

    assert found == expected, stage.form.name
    assert expected


def require_same_state(query: MovedQuery) -> None:
    """Require the state as it was moved, and as the query has left it, by Spark's source."""
    has_rows = False
    for stage in query.later:
        # What a stage has left is what the next one begins with.
        batches = [stage.first - 1, *([stage.last] if stage == query.stages[-1] else [])]
        for view in query.control.operator.views:
            for batch in batches:
                expected = query.control.state(view, batchId=batch)

                found = stage.run.state(view, batchId=batch + stage.shift)

                assert found == expected, f"{stage.form.name}, {view}, batch {batch}"
                has_rows |= len(expected) > 0
    assert has_rows, "no view has a row: nothing was compared"


def require_same_in_reader(query: MovedQuery) -> None:
    """Require that the reader shows what Spark's source shows, of all families that both show."""
    rows = 0
    for stage in query.later:
        options = stage.options
        with cairn.open_checkpoint(stage.run.checkpoint, storage_options=options) as checkpoint:
            batch = stage.first - 1 + stage.shift
            for name, found, expected in compared(stage.run.session(), checkpoint, batch):
                assert not found.difference(expected), f"{stage.form.name}, {name}"
                rows += len(expected.rows)
    assert rows, "no family has a row: nothing was compared"


def require_same_changes(query: MovedQuery) -> None:
    """Require the change feed of the batches behind each move."""
    for stage in query.later:
        for view in query.control.operator.views:
            if view.has_changes:
                expected = query.control.changes(view, stage.last, stage.first)

                found = stage.run.changes(view, stage.last + stage.shift, stage.first + stage.shift)

                assert _without_shift(found, stage.shift) == expected, f"{stage.form.name}, {view}"


def _without_shift(changes: list[str], shift: int) -> list[str]:
    """Return changes with the numbers that their batches have in the other query."""
    split = (change.split(" ", 1) for change in changes)
    return sorted(f"{int(number) - shift} {rest}" for number, rest in split)
