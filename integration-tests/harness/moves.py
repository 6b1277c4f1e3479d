"""A query whose state is moved while it runs: some batches, a move, some more, and so on.

Beside it runs the same query, which is never moved. A move in place adds a batch without input, so
that the numbers of the later batches differ by one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cairn
from cairn.offline.move.totals import MovedFamily
from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME, Operator
from harness.spark import CAIRN, HDFS, ROCKSDB, STATE_STORE
from harness.state_cases import FORMS, Form

# Files of input before the first move, between the moves, and after the last one.
FILES = (3, 2, 2)
PROVIDERS = {CAIRN: "cairn", ROCKSDB: "rocksdb", HDFS: "hdfs"}


@dataclass(frozen=True)
class Stage:
    """Batches of a query between two moves.

    Attributes:
        run: the query.
        form: how its state is stored.
        first: the number of the first batch in the query that was never moved.
        last: that of the last one.
        shift: what is added to these numbers in this query.
        moved: what the move before it has moved; nothing of the first stage.
        options: those by which Cairn's commands reach its storage.
    """

    run: Run
    form: Form
    first: int
    last: int
    shift: int
    moved: tuple[MovedFamily, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


class Unmoved:
    """A query that is never moved.

    Args:
        control: the query, which has not begun.
        events: its input; files are added.
        files: how many of them each stage reads.

    Attributes:
        control: its results.
        last: the number of the last batch of each stage.
    """

    def __init__(self, control: Control, events: Events, files: tuple[int, ...]) -> None:
        self.control = control
        self.files = files
        self.last: list[int] = []
        for number, count in enumerate(files):
            events.add_files(sum(files[:number]), count)
            control.advance()
            self.last.append(control.record.last_batch)


def run_unmoved(operator: Operator, folder: Path) -> Unmoved:
    """Run an operator that is never moved, or take its recorded results."""
    events = Events(folder / "input")
    other = Run(operator, events, str(folder / "control"), operator.control)
    return Unmoved(Control(f"moves/{operator.name}", other), events, FILES)


@dataclass(frozen=True)
class MovedQuery:
    """A query that was moved, and the same one that was not."""

    stages: tuple[Stage, ...]
    control: Control

    @property
    def later(self) -> tuple[Stage, ...]:
        """The stages that begin with a move."""
        return self.stages[1:]


def run_and_move(unmoved: Unmoved, way: str, folder: Path) -> MovedQuery:
    """Run a query in one form after the other.

    Args:
        unmoved: the same query.
        way: the names of the forms; one with a ``+`` is reached by a move in place.
        folder: for the input and the checkpoints.
    """
    files, operator, events = unmoved.files, unmoved.control.operator, Events(folder / "input")
    stages: list[Stage] = []
    for number, step in enumerate(way.split()):
        form = FORMS[step.rstrip("+")]
        place = str(folder / f"stage-{number}")
        moved: tuple[MovedFamily, ...] = ()
        shift, first = 0, 0
        if stages:
            before = stages[-1]
            in_place = step.endswith("+")
            moved = move(before.run.checkpoint, None if in_place else place, form)
            place = before.run.checkpoint if in_place else place
            shift, first = before.shift + in_place, before.last + 1
        run = Run(operator, events, place, form.provider, form.checkpoint_format, form.conf)
        events.add_files(sum(files[:number]), files[number])
        run.advance()
        stages.append(Stage(run, form, first, unmoved.last[number], shift, moved))
    return MovedQuery(tuple(stages), unmoved.control)


def move(checkpoint: str, to: str | None, form: Form) -> tuple[MovedFamily, ...]:
    """Migrate a query that has ended to the provider of a form, in this process."""
    age_logs(Path(checkpoint))
    with cairn.migrate(checkpoint, to=to, provider=PROVIDERS[form.provider]) as plan:
        return plan.apply(processes=1)


def ended_query(folder: Path, provider: str, partitions: int) -> Run:
    """Return an aggregation of two batches without a snapshot, whose driver has ended long ago."""
    events = Events(folder / "input", rows_per_file=400, keys=200)
    events.add_files(0, 2)
    conf = {
        "spark.sql.shuffle.partitions": str(partitions),
        STATE_STORE + "minDeltasForSnapshot": "50",
    }
    run = Run(BY_NAME["totals_complete"], events, str(folder / "query"), provider, 1, conf)
    run.advance()
    age_logs(Path(run.checkpoint))
    return run


def age_logs(checkpoint: Path) -> None:
    """Let a query seem to have ended an hour ago."""
    for log in ("offsets", "commits"):
        for path in (checkpoint / log).iterdir():
            past = path.stat().st_mtime - 3600
            os.utime(path, (past, past))


def take_away(checkpoint: str) -> None:
    """Leave nothing at the place of a checkpoint.

    It is renamed: a snapshot of the query's end may still be written there, and stop a deletion.
    """
    Path(checkpoint).rename(f"{checkpoint}-taken-away")
