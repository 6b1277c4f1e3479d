"""Nexmark's events are those that were published; each query writes the rows of its batch job."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from harness.spark import CAIRN, REPOSITORY, new_session, provider_conf

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

from nexmark import events
from nexmark.queries import QUERIES, Query

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("driver")]

COUNT, BATCHES = 6_000, 3
# So late that all windows of the events before are closed, and all auctions expired.
LAST = range(10**9, 10**9 + events.EPOCH)
IN_DEFAULT_RUN = {11, 20}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Return a session under Cairn."""
    return new_session(provider_conf(CAIRN))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a file per batch with the numbers of its events, and a last one."""
    folder = tmp_path_factory.mktemp("numbers")
    size = COUNT // BATCHES
    parts = [range(first, first + size) for first in range(0, COUNT, size)]
    for number, part in enumerate([*parts, LAST]):
        file = folder / f"{number}.parquet"
        pq.write_table(pa.table({"value": list(part)}), file)
        os.utime(file, (number, number))  # the source orders by it
    return folder


def views(spark: SparkSession, count: int) -> None:
    """Make the first events the views of the session."""
    events.create_views(spark.range(count).withColumnRenamed("id", "value"))


def one_row(spark: SparkSession, sql: str) -> Row:
    """Return the only row of a query."""
    (row,) = spark.sql(sql).collect()
    return row


def test_the_events_are_those_of_the_suite(spark: SparkSession) -> None:
    """Another proportion or skew is another workload: its figures would say nothing of Nexmark."""
    count = 50_000
    views(spark, count)

    persons = one_row(
        spark,
        "SELECT count(*), min(id), max(id), count(DISTINCT id), avg(length(name) + 8 "
        "+ length(emailAddress) + length(creditCard) + length(city) + length(state) "
        "+ length(extra)), count(DISTINCT state) FROM person",
    )
    assert persons[:4] == (1000, 1000, 1999, 1000)
    assert 190 < persons[4] < 210
    assert persons[5] == 6

    auctions = one_row(
        spark,
        "SELECT count(*), min(id), max(id), count(DISTINCT id), min(category), max(category), "
        "avg(48 + length(itemName) + length(description) + length(extra)), "
        "avg(unix_millis(expires) - unix_millis(dateTime)), min(reserve - initialBid) FROM auction",
    )
    assert auctions[:6] == (3000, 1000, 3999, 3000, 10, 14)
    assert 490 < auctions[6] < 510
    assert 155 < auctions[7] < 178  # 100 auctions take 166 ms
    assert auctions[8] >= 100

    bids = one_row(
        spark,
        "SELECT count(*), min(price), max(price), percentile(price, 0.5), "
        "avg(32 + length(extra)), count_if(channel NOT LIKE 'channel-%') / count(*), "
        "min(bidder) FROM bid",
    )
    assert bids[0] == 46_000
    assert bids[1] >= 100
    assert bids[2] <= 10**8
    assert 90_000 < bids[3] < 110_000  # 10^(6 * 0.5) * 100
    assert 96 < bids[4] < 104
    assert 0.49 < bids[5] < 0.51
    assert bids[6] >= 2000


def test_half_of_the_bids_are_on_the_hot_auction(spark: SparkSession) -> None:
    """Without its skew the workload has other caches' hits than the published one."""
    views(spark, 50_000)

    on_hot = one_row(spark, "SELECT count_if(auction % 100 = 0) / count(*) FROM bid")[0]
    by_hot = one_row(spark, "SELECT count_if(bidder % 100 = 1) / count(*) FROM bid")[0]
    of_hot = one_row(spark, "SELECT count_if(seller % 100 = 0) / count(*) FROM auction")[0]

    assert 0.49 < on_hot < 0.53
    assert 0.74 < by_hot < 0.78
    assert 0.73 < of_hot < 0.79


def test_bids_are_on_auctions_in_flight(spark: SparkSession) -> None:
    """Bids on older auctions would make queries 4 and 9 wait for what never comes."""
    views(spark, 50_000)

    near = one_row(
        spark,
        "SELECT min(auction - newest), max(auction - newest) FROM (SELECT auction, "
        "1000 + 3 * div((unix_millis(dateTime) - unix_millis(timestamp '2015-07-15')) * 10, 50) "
        "AS newest FROM bid)",
    )

    assert -111 <= near[0] <= -95
    assert 5 <= near[1] <= 15


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(
            query,
            id=f"q{query.number}",
            marks=() if query.number in IN_DEFAULT_RUN else pytest.mark.slow,
        )
        for query in QUERIES
    ],
)
def test_a_stream_writes_the_rows_of_its_batch_job(
    spark: SparkSession, numbers: Path, tmp_path: Path, query: Query
) -> None:
    """A query that asks something else, or a state that loses rows, must give no figure."""
    folder = tmp_path / "numbers"
    shutil.copytree(numbers, folder)
    if not query.closes:
        (folder / f"{BATCHES}.parquet").unlink()

    columns, written = rows_of_stream(spark, folder, tmp_path / "checkpoint", query)
    views(spark, COUNT)
    job = query.expected(spark)

    if query.number == 12:  # its windows depend on the clock, their sums do not
        bids: Counter[int] = Counter()
        for row in written:
            bids[row["bidder"]] += row["bid_count"]
        assert dict(bids) == {row["bidder"]: row["bid_count"] for row in job.collect()}
        return
    assert columns == job.columns
    assert Counter(written) == Counter(job.collect())
    assert written


def rows_of_stream(
    spark: SparkSession, folder: Path, checkpoint: Path, query: Query
) -> tuple[list[str], list[Row]]:
    """Run the stream, one batch per file; return its columns, and what its sink has in the end."""
    written: list[Row] = []
    last: dict[tuple[Any, ...], Row] = {}

    def keep(frame: DataFrame, _batch: int) -> None:
        rows = frame.collect()
        written.extend(rows)
        last.update({tuple(row[name] for name in query.key): row for row in rows})

    files = spark.readStream.schema("value bigint").option("maxFilesPerTrigger", 1)
    events.create_views(files.parquet(str(folder)), has_watermark=query.closes)
    frame = query.streamed(spark)
    stream = (
        frame.writeStream.foreachBatch(keep)
        .outputMode(query.mode)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    stream.awaitTermination()
    return frame.columns, list(last.values()) if query.key else written
