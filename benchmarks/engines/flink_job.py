"""Runs one query in a local Flink and measures it; streams.py starts it, in Flink's environment.

It prints the numbers as streams.py does. The measured part begins when the source has given the
rows of the warm-up, by Flink's own counter, and ends with the job, whose last checkpoint belongs to
it. With a rate the source gives so many rows per second, and one result in 50 says how much later
it was made than its newest row.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from process_memory import cpu_seconds
from pyflink.common import Configuration, RowKind
from pyflink.table import (
    EnvironmentSettings,
    TableDescriptor,
    TableEnvironment,
)

from engines.queries import KEY, QUERIES, ROWS_PER_MS

_POLL_S = 0.2
# Flink gives Python no times with a zone.
_NOW = "CAST(CURRENT_TIMESTAMP AS TIMESTAMP(3))"
_SAMPLED = 0.02
_LATENCY_FROM_S = 5  # the start does not count


def main() -> None:
    """Run the task of the command line."""
    task = json.loads(sys.argv[1])
    sizes = task["sizes"]
    warm = sizes["batch_rows"] * sizes["warm_up_batches"]
    rows = warm + sizes["batch_rows"] * sizes["batch_count"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = Configuration()
    own = {
        "rest.port": str(port),
        "rest.bind-port": str(port),
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "metrics.fetcher.update-interval": "100",
        "execution.checkpointing.dir": task["checkpoint"],
        "io.tmp.dirs": str(Path(task["folder"]) / "local"),
        "table.local-time-zone": "UTC",
    }
    for name, value in (own | task["conf"]).items():
        conf.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf)
    environment = TableEnvironment.create(settings.build())
    rate = task["rows_per_s"]
    create_tables(environment, rows, rate)
    if rate:
        numbers = _latency(environment)
    else:
        sql = QUERIES[task["stream"].split()[1]].flink
        numbers = _measured(environment, sql, f"http://127.0.0.1:{port}", warm, rows)
    print("@@ numbers", json.dumps(numbers), flush=True)


def create_tables(environment: Any, rows: int, rate: int = 0) -> None:  # noqa: ANN401 - Flink's types are in its own environment
    """Make the rows the tables `source`, `other` and `keyed`; ``rate``: rows per second, or 0."""
    per_second = rate or 2**63 - 1  # the default is 10,000
    for name in ("source", "other"):
        environment.execute_sql(
            f"""CREATE TABLE {name} (
                n BIGINT, ts AS TO_TIMESTAMP_LTZ(n / {ROWS_PER_MS}, 3), p AS PROCTIME(),
                WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
            ) WITH ('connector' = 'datagen', 'rows-per-second' = '{per_second}',
                'fields.n.kind' = 'sequence', 'fields.n.start' = '0',
                'fields.n.end' = '{rows - 1}')"""
        )
    environment.execute_sql(
        f"CREATE TEMPORARY VIEW keyed AS SELECT {KEY} AS k, n, ts FROM source"  # noqa: S608 - no input
    )


def _measured(environment: Any, sql: str, rest: str, warm: int, rows: int) -> dict[str, float]:  # noqa: ANN401 - as above
    sink = TableDescriptor.for_connector("blackhole").build()
    result = environment.sql_query(sql).execute_insert(sink)
    job = str(result.get_job_client().get_job_id())
    waiter = threading.Thread(target=result.wait, daemon=True)
    waiter.start()
    begun: tuple[float, float, int] | None = None
    while waiter.is_alive():
        time.sleep(_POLL_S)
        given = _given(rest, job) if begun is None else 0
        if given >= warm and begun is None:
            begun = time.monotonic(), cpu_seconds(os.getsid(0)), given
    if begun is None:
        message = "the job ended before its rows were counted"
        raise SystemExit(message)
    took_s, measured = time.monotonic() - begun[0], rows - begun[2]
    used_s = cpu_seconds(os.getsid(0)) - begun[1]
    return {
        "event_count": measured,
        "rows_per_s": measured / took_s,
        "wall_s": took_s,
        "cpu_seconds": used_s,
        "cpu_s_per_million": used_s / measured * 1e6,
    }


def _given(rest: str, job: str) -> int:
    """Return how many rows the first source has given so far."""
    try:
        for vertex in _read(f"{rest}/jobs/{job}")["vertices"]:
            metrics = f"{rest}/jobs/{job}/vertices/{vertex['id']}/subtasks/metrics"
            names = [one["id"] for one in _read(metrics)]
            name = next((one for one in names if _is_count(one)), None)
            if name:
                (found,) = _read(f"{metrics}?get={urllib.parse.quote(name)}&agg=sum")
                return int(found["sum"])
    except (OSError, KeyError, ValueError):  # not yet, or not any more
        pass
    return 0


def _is_count(name: str) -> bool:
    return name.startswith("Source__source") and name.endswith(".numRecordsOut")


def _read(url: str) -> Any:  # noqa: ANN401 - JSON
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - Flink's own, on loopback
        return json.load(answer)


def _latency(environment: Any) -> dict[str, float]:  # noqa: ANN401 - as above
    result = environment.execute_sql(
        f"""SELECT made, {_NOW} FROM (
            SELECT k, COUNT(*) AS many, MAX(made) AS made
            FROM (SELECT {KEY} AS k, {_NOW} AS made FROM source) GROUP BY k)
        WHERE RAND() < {_SAMPLED}"""  # noqa: S608 - no input
    )
    times = []
    with result.collect() as rows:
        for row in rows:
            if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                made, given = row
                times.append((made, (given - made).total_seconds() * 1000))
    first = min(made for made, _ in times)
    counted = sorted(ms for made, ms in times if (made - first).total_seconds() > _LATENCY_FROM_S)
    return {
        "latency_p50_ms": statistics.median(counted),
        "latency_p99_ms": counted[len(counted) * 99 // 100],
        "sampled_count": len(counted),
    }


if __name__ == "__main__":
    main()
