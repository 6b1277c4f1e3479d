"""transformWithState needs Cairn's extension, and says so; its results are in test_operators."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.events import Events
from harness.job import JobProcess, Query
from harness.processes import descendants, wait_until
from harness.spark import CONTROL, EXTENSIONS, REPOSITORY, SUBJECT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("checkpoint_format", [1, 2])
def test_without_the_extension_the_error_names_the_setting(
    tmp_path: Path, checkpoint_format: int
) -> None:
    """Spark's own error recommends another provider. Queries that need no extension go on."""
    events = Events(tmp_path / "input")
    events.add_files(0, 1)
    operators = ((SUBJECT, "transform_event_time"), (CONTROL, "transform_event_time"))
    queries = [
        Query(operator, events, str(tmp_path / str(number)), provider, checkpoint_format)
        for number, (provider, operator) in enumerate((*operators, (SUBJECT, "windows_update")))
    ]
    job = JobProcess(tmp_path / "job", queries, {"spark.sql.extensions": ""})

    try:
        job.wait()
    finally:
        job.end()

    assert "CAIRN_EXTENSION_MISSING" in job.error(0)
    assert f"spark.sql.extensions={EXTENSIONS}" in job.error(0)
    assert [job.error(number) for number in (1, 2)] == ["", ""]
    assert job.rows(1)
    assert job.rows(2)


def test_the_example_prints_visits(tmp_path: Path) -> None:
    """Users copy it: a value, a timer, a time to live, and a sink that is a table."""
    program = REPOSITORY / "examples" / "transform" / "run.py"
    output = tmp_path / "output"
    with output.open("wb") as sink:
        example = subprocess.Popen(
            [sys.executable, str(program), "--seconds", "100"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(
                lambda: (
                    re.search(r"\|\s*[0-6]\|\s*\d+\|", output.read_text()) is not None
                    or example.poll() is not None
                ),
                100,
                "a visit",
                lambda: output.read_text()[-2000:],
            )
            assert example.poll() is None, output.read_text()[-2000:]
        finally:
            for process in reversed(descendants(example.pid)):
                process.kill()
            example.kill()
            example.wait()
