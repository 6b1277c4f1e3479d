"""The gauges of loads reach the sinks of Spark's metrics system."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.events import Events
from harness.job import JobProcess, Query
from harness.spark import SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

SINK = "spark.metrics.conf.*.sink.csv."


def test_the_gauges_of_loads_are_in_the_sinks_of_spark(tmp_path: Path) -> None:
    """A load of an hour shows nowhere else: the progress has a batch when it has ended."""
    events = Events(tmp_path / "input")
    events.add_files(0, 3)
    query = Query("windows_update", events, str(tmp_path / "checkpoint"), SUBJECT)
    sink = tmp_path / "sink"
    sink.mkdir()
    conf = {
        SINK + "class": "org.apache.spark.metrics.sink.CsvSink",
        SINK + "period": "1",
        SINK + "unit": "seconds",
        SINK + "directory": str(sink),
    }
    job = JobProcess(tmp_path / "job", [query], conf, pause_s=1)
    try:
        code = job.wait()
    finally:
        job.end()

    assert code == 0, job.tail()
    for name in ("runningLoads", "longestLoadMs"):
        (written,) = sink.glob(f"*.driver.cairn.{name}.csv")
        head, *rows = written.read_text().splitlines()
        assert head == "t,value"
        assert rows, "the gauge was never read"
        assert all(int(row.partition(",")[2]) >= 0 for row in rows)
