"""Flink's SQL and Spark's streams of benchmarks/engines have the same rows."""

from __future__ import annotations

import json
import os
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
# Prints the rows that are left when all changes of a result have been applied.
SCRIPT = f"""
import json
from collections import Counter
from engines import flink_job
from engines.queries import QUERIES
from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

found = {{}}
for name, query in QUERIES.items():
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("table.local-time-zone", "UTC")
    flink_job.create_tables(environment, {ROWS})
    counts = Counter()
    with environment.execute_sql(query.flink).collect() as rows:
        for row in rows:
            is_added = row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
            counts[" ".join(str(value)[:19] for value in row)] += 1 if is_added else -1
    found[name] = {{row: count for row, count in counts.items() if count}}
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.usefixtures("driver")
def test_both_engines_give_the_same_rows() -> None:
    """Engines that answer different questions cannot be compared."""
    assert FLINK.exists(), "no Flink: run `make flink`"
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    done = subprocess.run(
        [str(FLINK), "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    of_flink = json.loads(done.stdout.splitlines()[-1])

    spark = new_session(provider_conf(CAIRN))
    time = f"timestamp_millis(id div {ROWS_PER_MS}) AS ts"
    source = spark.range(ROWS).selectExpr("id AS n", time)
    for name, query in QUERIES.items():
        rows = query.spark(source).collect()
        of_spark = Counter(" ".join(str(value)[:19] for value in row) for row in rows)
        assert of_spark == Counter(of_flink[name]), name
        assert of_spark
