"""Spark's event log: its settings, the speculative tasks ("twins") in it, and Cairn's metrics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TWIN = '"Speculative":true'
_PROGRESS = "StreamingQueryListener$QueryProgressEvent"


@dataclass(frozen=True)
class Twins:
    """How many speculative tasks a log has.

    Attributes:
        started: those that were started on an executor.
        won: those of a stateful operator that committed before the task that they repeat.
    """

    started: int
    won: int


def event_log_conf(folder: Path) -> dict[str, str]:
    """Return the settings of a driver that writes its log into an existing folder."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
    }


def twins(logs: Path) -> Twins:
    """Count the speculative tasks of all drivers that wrote into a folder."""
    started = won = 0
    for line in _lines(logs):
        if _TWIN in line:
            event = json.loads(line)
            started += event["Event"] == "SparkListenerTaskStart"
            won += event["Event"] == "SparkListenerTaskEnd" and _has_won(event)
    return Twins(started, won)


def metrics(logs: Path) -> Counter[str]:
    """Return the sums of the state stores' own metrics, over the batches of all drivers.

    A batch that a driver did not finish is not among them.
    """
    sums: Counter[str] = Counter()
    for line in _lines(logs):
        if _PROGRESS in line:
            for operator in json.loads(line)["progress"]["stateOperators"]:
                sums.update(operator["customMetrics"])
    return sums


def speculative_successes(logs: Path) -> dict[str, set[int]]:
    """Return, per query, the batches in which a speculative task of a stateful stage succeeded."""
    stages: dict[int, tuple[str, int]] = {}
    found: dict[str, set[int]] = {}
    for event in map(json.loads, _lines(logs)):
        if event["Event"] == "SparkListenerStageSubmitted":
            properties = event["Properties"]
            if "sql.streaming.queryId" in properties:
                batch = int(properties["streaming.sql.batchId"])
                stages[event["Stage Info"]["Stage ID"]] = properties["sql.streaming.queryId"], batch
        elif (
            event["Event"] == "SparkListenerTaskEnd"
            and event["Task Info"]["Speculative"]
            and _has_won(event)
        ):
            query, batch = stages[event["Stage ID"]]
            found.setdefault(query, set()).add(batch)
    return found


def _lines(logs: Path) -> Iterator[str]:
    """Yield the whole events: a driver that was killed leaves a part of one at the end."""
    for path in sorted(logs.rglob("*")):
        if path.is_file():
            with path.open() as lines:
                yield from (line for line in lines if line.startswith("{") and line[-1] == "\n")


def _has_won(event: dict[str, Any]) -> bool:
    metrics = {one["Name"] for one in event["Task Info"]["Accumulables"]}
    return event["Task End Reason"]["Reason"] == "Success" and "time to commit changes" in metrics
