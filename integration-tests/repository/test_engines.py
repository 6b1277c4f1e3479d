"""Flink's SQL and Spark's streams of benchmarks/engines have the same rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from harness.spark import CAIRN, REPOSITORY, new_session, provider_conf

BENCHMARKS = REPOSITORY / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from engines.queries import QUERIES, ROWS_PER_MS

FLINK = REPOSITORY / ".build" / "flink" / "bin" / "python"
ROWS = 60_000
# Prints each change of a result, as the connector `print` has it: "<query>:<task>> +I[<row>]".
SCRIPT = """
import sys

from engines import flink_job
from engines.queries import QUERIES
from pyflink.table import EnvironmentSettings, TableEnvironment

for name, query in QUERIES.items():
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("table.local-time-zone", "UTC")
    flink_job.create_tables(environment, int(sys.argv[1]))
    result = environment.sql_query(query.flink)
    environment.create_temporary_view("result_rows", result)
    names = result.get_schema().get_field_names()
    texts = ", ".join(f"SUBSTRING(CAST({one} AS STRING) FROM 1 FOR 19)" for one in names)
    environment.execute_sql(
        "CREATE TABLE printed (line STRING) "
        f"WITH ('connector' = 'print', 'print-identifier' = '{name}')"
    )
    environment.execute_sql(
        f"INSERT INTO printed SELECT CONCAT_WS(' ', {texts}) FROM result_rows"
    ).wait()
"""
CHANGE = re.compile(r"(\w+)(?::\d+)?> (\+I|\+U|-U|-D)\[(.*)\]")


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.usefixtures("driver")
def test_both_engines_give_the_same_rows() -> None:
    """Engines that answer different questions cannot be compared."""
    assert FLINK.exists(), "no Flink: run `make flink`"
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    done = subprocess.run(
        [str(FLINK), "-c", SCRIPT, str(ROWS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    of_flink: dict[str, Counter[str]] = {name: Counter() for name in QUERIES}
    for line in done.stdout.splitlines():
        if change := CHANGE.fullmatch(line):
            name, kind, row = change.groups()
            of_flink[name][row] += 1 if kind in {"+I", "+U"} else -1

    spark = new_session(provider_conf(CAIRN))
    time = f"timestamp_millis(id div {ROWS_PER_MS}) AS ts"
    source = spark.range(ROWS).selectExpr("id AS n", time)
    for name, query in QUERIES.items():
        rows = query.spark(source).collect()
        of_spark = Counter(" ".join(str(value)[:19] for value in row) for row in rows)
        assert of_spark, name
        # Of rows that were updated the count is zero, which Counter compares as absent.
        assert of_spark == of_flink[name], name
