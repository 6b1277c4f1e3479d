"""A checkpoint goes on under the next minor version of Spark, and a jar of another one is refused.

Needs the pyspark of every minor: `make spark-matrix` installs them and runs this file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.clear_errors import assert_clear
from harness.events import Events
from harness.job import JobProcess, Query
from harness.moves import move
from harness.operators import BY_NAME
from harness.spark import (
    CONTROL,
    EXTENSIONS,
    MINOR,
    REPOSITORY,
    SUBJECT,
    shim_jar,
)
from harness.state_cases import FORMS, runs

pytestmark = pytest.mark.skipif(
    "CAIRN_TEST_MINORS" not in os.environ,
    reason="needs the pyspark of every minor: make spark-matrix",
)

# From the oldest to the newest, which is that of this Python.
MINORS = (*sorted(one.stem for one in (REPOSITORY / "python" / "minors").glob("*.txt")), MINOR)
FILES_PER_MINOR = 2
OPERATORS = (
    "windows_append",
    "distinct_within_watermark",
    "join_left_outer_v2",
    "join_left_outer_v3",
    "sessions",
    "groups_event_time",
    "transform_event_time",
    "transform_ttl",
)
CASES = [(name, number) for name in OPERATORS for number in (1, 2)]
# What a query of Spark's own provider begins in, and what its state is moved to.
MOVES = (("rocksdb-1", "cairn-1"), ("rocksdb-2", "cairn-2"), ("hdfs", "cairn-1"))


def python_of(minor: str) -> str:
    """Return the Python that has the pyspark of a minor."""
    own = REPOSITORY / ".build" / "minors" / minor / "bin" / "python"
    return sys.executable if minor == MINOR else str(own)


def run_on(minor: str, folder: Path, queries: list[Query], conf: dict[str, str]) -> JobProcess:
    """Run queries on the Spark of a minor to the end of their input."""
    job = JobProcess(folder, queries, conf, python=python_of(minor))
    try:
        job.wait()
    finally:
        job.end()
    return job


def jar_of(minor: str) -> dict[str, str]:
    """Return the settings of a driver that has the jar of a minor."""
    return {"spark.driver.extraClassPath": str(shim_jar(minor))}


def test_a_checkpoint_goes_on_on_the_next_minor(tmp_path: Path) -> None:
    """An upgrade of Spark must neither lose state nor repeat rows.

    The same operators run on Spark's own provider, all on the newest minor, with restarts at the
    same places.
    """
    events = Events(tmp_path / "input")
    ours = [
        Query(name, events, str(tmp_path / f"ours-{name}-{number}"), SUBJECT, number)
        for name, number in CASES
    ]
    theirs = [Query(name, events, str(tmp_path / f"theirs-{name}"), CONTROL) for name in OPERATORS]
    for stage, minor in enumerate(MINORS):
        events.add_files(stage * FILES_PER_MINOR, FILES_PER_MINOR)
        subject = run_on(minor, tmp_path / "subject", ours, jar_of(minor))
        control = run_on(MINOR, tmp_path / "control", theirs, jar_of(MINOR))
        for number, (name, checkpoint_format) in enumerate(CASES):
            case = f"{name}, format {checkpoint_format}, Spark {minor}"
            assert not subject.error(number), f"{case}: {subject.error(number)}"
            expected = OPERATORS.index(name)
            assert not control.error(expected), f"{case}: {control.error(expected)}"
            assert subject.rows(number) == control.rows(expected), case
            assert any(control.rows(expected).values()), case


@pytest.mark.parametrize("minor", MINORS[:-1])
def test_a_query_that_began_on_an_older_minor_goes_on_under_cairn(
    tmp_path: Path, minor: str
) -> None:
    """Spark is upgraded, and the state is moved, at once; schemas and metadata are older.

    The same operators run on Spark's own provider, all on the newest minor.
    """
    events = Events(tmp_path / "input")
    cases = [
        (name, former, new)
        for name in OPERATORS
        for former, new in MOVES
        if runs(BY_NAME[name], FORMS[former])
    ]
    began, goes_on = (
        [
            Query(
                case[0],
                events,
                str(tmp_path / f"{place}-{number}"),
                FORMS[case[form]].provider,
                FORMS[case[form]].checkpoint_format,
            )
            for number, case in enumerate(cases)
        ]
        for place, form in (("began", 1), ("moved", 2))
    )
    theirs = [Query(name, events, str(tmp_path / f"theirs-{name}"), CONTROL) for name in OPERATORS]
    events.add_files(0, FILES_PER_MINOR)
    first = run_on(minor, tmp_path / "first", began, jar_of(minor))
    run_on(MINOR, tmp_path / "control", theirs, jar_of(MINOR))
    for number, (_, _, new) in enumerate(cases):
        assert not first.error(number), f"{cases[number]}: {first.error(number)}"
        move(began[number].checkpoint, goes_on[number].checkpoint, FORMS[new])

    events.add_files(FILES_PER_MINOR, FILES_PER_MINOR)
    second = run_on(MINOR, tmp_path / "second", goes_on, jar_of(MINOR))
    control = run_on(MINOR, tmp_path / "control", theirs, jar_of(MINOR))

    for number, case in enumerate(cases):
        assert not second.error(number), f"{case}: {second.error(number)}"
        expected = control.rows(OPERATORS.index(case[0]))
        assert second.rows(number), case
        assert first.rows(number) | second.rows(number) == expected, case


@pytest.mark.parametrize(("spark", "jar"), [(MINORS[0], MINORS[-1]), (MINORS[-1], MINORS[0])])
def test_a_jar_of_another_minor_is_refused(tmp_path: Path, spark: str, jar: str) -> None:
    """It could fail in a commit with a NoSuchMethodError, or lose what a new method has to do."""
    events = Events(tmp_path / "input")
    events.add_files(0, 1)
    query = Query("windows_update", events, str(tmp_path / "checkpoint"), SUBJECT)
    # With the extension the session does not start; without it the query does not.
    with_extension = run_on(spark, tmp_path / "one", [query], jar_of(jar))
    conf = {**jar_of(jar), "spark.sql.extensions": ""}
    without = run_on(spark, tmp_path / "two", [query], conf)

    assert EXTENSIONS in with_extension.tail()
    assert f"[CAIRN_SPARK_VERSION] this jar of Cairn is for Spark {jar}" in with_extension.tail()
    assert_clear(without.error(), "CAIRN_SPARK_VERSION", f"for Spark {jar}", f"Spark {spark}")
    assert not with_extension.rows()
    assert not without.rows()
