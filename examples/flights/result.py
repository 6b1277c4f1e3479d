"""The demo's measurements and the table that it prints at its end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from checkpoints import CheckpointCount
from rich.console import Console
from rich.table import Table


@dataclass
class QueryResult:
    """The measurements of one query over all runs of the driver."""

    name: str
    operator: str
    rows: int = 0
    busy_ms: int = 0
    peak_state_rows: int = 0
    peak_state_bytes: int = 0
    late_rows: int = 0
    stores: int = 0
    commit_ms: list[float] = field(default_factory=list)
    batches: int = 0
    recovery_s: float | None = None
    comparison: dict[str, Any] | None = None
    checkpoint: CheckpointCount | None = None

    def add_progress(self, progress: dict[str, Any]) -> None:
        """Add one micro-batch of Spark's progress."""
        self.batches += 1
        self.rows += progress["numInputRows"]
        self.busy_ms += progress["durationMs"].get("triggerExecution", 0)
        operators = progress["stateOperators"]
        self.peak_state_rows = max(
            self.peak_state_rows, sum(one["numRowsTotal"] for one in operators)
        )
        self.peak_state_bytes = max(
            self.peak_state_bytes, sum(one["memoryUsedBytes"] for one in operators)
        )
        self.late_rows += sum(one["numRowsDroppedByWatermark"] for one in operators)
        self.stores = sum(one["numStateStoreInstances"] for one in operators)
        # Spark sums the time over the tasks, one task per shuffle partition.
        self.commit_ms += [
            one["commitTimeMs"] / one["numShufflePartitions"]
            for one in operators
            if one["numShufflePartitions"]
        ]

    def faults(self) -> list[str]:
        """List the differences between the query's rows and those of the batch computation."""
        if self.comparison is None:
            return [f"{self.name}: not compared"]
        found = []
        for key, meaning in (("missing", "missing from"), ("unexpected", "only in")):
            if self.comparison[key]:
                found.append(f"{self.name}: {self.comparison[key]} rows {meaning} the sink")
        if self.comparison["sink_rows"] != self.comparison["batch_rows"]:
            found.append(
                f"{self.name}: {self.comparison['sink_rows']} rows in the sink, "
                f"{self.comparison['batch_rows']} by the batch job"
            )
        if not self.comparison["batch_rows"]:
            found.append(f"{self.name}: there was nothing to compare")
        if self.late_rows:
            found.append(f"{self.name}: {self.late_rows} rows were late")
        return found


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that is not exceeded by ``share`` of all values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def show_table(results: list[QueryResult], title: str, console: Console) -> None:
    """Print one row per query."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("query")
    for heading in (
        "rows/s",
        "state rows\n(peak)",
        "state bytes\n(peak)",
        "commits",
        "objects",
        "written",
        "commit ms\np50 / p99",
        "recovery",
        "sink rows",
    ):
        table.add_column(heading, justify="right")
    table.add_column("equal to batch")
    for result in results:
        table.add_row(*_cells(result))
    console.print(table)
    console.print(
        "[dim]commits: one per store and micro-batch. objects, written: number and size of the "
        "checkpoint's objects under state/. commit ms: per partition and micro-batch. recovery: "
        "from the restart of the driver to the query's next finished micro-batch.[/dim]"
    )


def _cells(result: QueryResult) -> list[str]:
    checkpoint, comparison = result.checkpoint, result.comparison
    batches = checkpoint.batches_committed if checkpoint else result.batches
    rate = result.rows / (result.busy_ms / 1000) if result.busy_ms else math.nan
    p50, p99 = (percentile(result.commit_ms, share) for share in (0.50, 0.99))
    return [
        f"{result.name}\n[dim]{result.operator}[/dim]",
        f"{rate:,.0f}",
        f"{result.peak_state_rows:,}",
        human_bytes(result.peak_state_bytes),
        f"{batches * result.stores:,}",
        f"{checkpoint.state_objects:,}" if checkpoint else "?",
        human_bytes(checkpoint.state_bytes) if checkpoint else "?",
        f"{p50:.0f} / {p99:.0f}",
        f"{result.recovery_s:.1f} s" if result.recovery_s is not None else "?",
        f"{comparison['sink_rows']:,}" if comparison else "?",
        "[red]no[/red]" if result.faults() else "[green]yes[/green]",
    ]


def human_bytes(count: float) -> str:
    """Format a number of bytes for people."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
