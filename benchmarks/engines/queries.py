"""Four queries in the SQL of Flink and as streams of Spark, over the same rows.

    source := n bigint: 0, 1, 2, ...; ts timestamp: 100,000 rows per second after 1970

    keyed  := k bigint, one of 1 M keys; n; ts

Both engines have the watermark 4 s behind the newest row. Flink's environment has no PySpark.
"""

# The parts of the SQL are written here: nothing of it is input.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = 1_000_000
ROWS_PER_MS = 100
LATER = 50_000  # how many rows later the other side of the join comes
# A key of many, by the row's number; and a known key in odd rows, a new one in even rows.
KEY = f"MOD(n * 48271, {KEYS})"
_EARLIER = "MOD(MOD(n * 48271, 2147483647), GREATEST(n, 1))"
HALF_NEW = f"CASE WHEN MOD(n, 2) = 0 THEN n ELSE {_EARLIER} - MOD({_EARLIER}, 2) END"


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        flink: its SQL; the tables `source`, `other` and `keyed` have the same rows.
        spark: makes the same stream of a frame with the columns of the source.
        mode: output mode of that.
    """

    flink: str
    spark: Callable[[DataFrame], DataFrame]
    mode: str = "append"


def _aggregation(source: DataFrame) -> DataFrame:
    source.selectExpr(f"{KEY} AS k", "n").createOrReplaceTempView("keyed")
    sql = "SELECT k, count(*) AS many, sum(n) AS total FROM keyed GROUP BY k"
    return source.sparkSession.sql(sql)


def _deduplication(source: DataFrame) -> DataFrame:
    return source.selectExpr(f"{HALF_NEW} AS k").dropDuplicates(["k"])


def _windows(source: DataFrame) -> DataFrame:
    keyed = source.withWatermark("ts", "4 seconds").selectExpr(f"{KEY} AS k", "ts")
    keyed.createOrReplaceTempView("keyed")
    return source.sparkSession.sql(
        "SELECT k, count(*) AS many, window.start AS window_start FROM keyed "
        "GROUP BY k, window(ts, '10 seconds')"
    )


def _join(source: DataFrame) -> DataFrame:
    rows = source.withWatermark("ts", "4 seconds")
    left, right = rows.selectExpr("n AS l", "ts AS l_ts"), rows.selectExpr("n AS r", "ts AS r_ts")
    left.createOrReplaceTempView("l_rows")
    right.createOrReplaceTempView("r_rows")
    return source.sparkSession.sql(
        f"SELECT l, l_ts, r_ts FROM l_rows JOIN r_rows ON l = r - {LATER} "
        "AND r_ts BETWEEN l_ts AND l_ts + INTERVAL '20' SECOND"
    )


QUERIES = {
    "aggregation": Query(
        "SELECT k, COUNT(*) AS many, SUM(n) AS total FROM keyed GROUP BY k",
        _aggregation,
        mode="update",
    ),
    "deduplication": Query(  # the form that Flink documents: the first row of a key
        f"""SELECT k FROM (
            SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p ASC) AS place
            FROM (SELECT {HALF_NEW} AS k, p FROM source))
        WHERE place = 1""",
        _deduplication,
    ),
    "windows": Query(
        """SELECT k, COUNT(*) AS many, window_start FROM TABLE(
            TUMBLE(TABLE keyed, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY k, window_start, window_end""",
        _windows,
    ),
    "join": Query(
        # A result of Flink's has one time attribute at most.
        f"""SELECT l.n AS l, l.ts AS l_ts, CAST(r.ts AS TIMESTAMP(3)) AS r_ts
        FROM source l JOIN other r
        ON l.n = r.n - {LATER} AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '20' SECOND""",
        _join,
    ),
}
