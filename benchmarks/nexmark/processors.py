"""The adapted queries: 4, 9, 15, 16 and 19 by `transformWithState` in PySpark.

Times are whole milliseconds in the processors.
"""

# The names and signatures of the processors are Spark's.
# ruff: noqa: ANN401, ARG002, N802, N803

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

_MS = {"time_ms": "dateTime", "expires_ms": "expires", "bid_ms": "bid_dateTime"}


def _names(schema: str) -> list[str]:
    return [field.split()[0] for field in schema.split(", ")]


class _Processor(StatefulProcessor):
    """A processor without resources of its own.

    Args:
        columns: of its rows.
    """

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns

    def row(self, *values: Any) -> Row:
        return Row(**dict(zip(self._columns, values, strict=True)))

    def close(self) -> None:
        pass


# -- 4 and 9: the winning bid of an auction --------------------------------------------------------

_AUCTION = (
    "time_ms bigint, expires_ms bigint, id bigint, itemName string, description string, "
    "initialBid bigint, reserve bigint, seller bigint, category bigint, extra string"
)
_BID = "price bigint, bid_ms bigint, bidder bigint, bid_extra string"
WINNING_COLUMNS = (
    *("id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller"),
    *("category", "extra", "auction", "bidder", "price", "bid_dateTime", "bid_extra"),
)


class _Winner(_Processor):
    """Keeps an auction and its best bid until it expires; then gives both.

    Bids may come before their auction. They are kept until no auction can come that is as old.
    """

    def __init__(self, auction: str, bid: str) -> None:
        self._schemas = auction, bid
        self._auction, self._bid = _names(auction), _names(bid)
        super().__init__(self._auction + self._bid)

    def init(self, handle: Any) -> None:
        auction, bid = self._schemas
        self._handle = handle
        self._open = handle.getValueState("auction", auction)
        self._best = handle.getValueState("best", bid)
        self._early = handle.getListState("early", bid)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        auction, bids = self._open.get(), []
        arrived = None
        for row in rows:
            if row.is_auction:
                arrived = tuple(row[name] for name in self._auction)
            else:
                bids.append(tuple(row[name] for name in self._bid))
        if arrived:
            auction = arrived
            self._open.update(auction)
            self._handle.registerTimer(auction[1])
            bids += self._early.get()
            self._early.clear()
        if auction is None:
            self._early.appendList(bids)
            self._handle.registerTimer(max(bid[1] for bid in bids))
            return iter(())
        valid = [tuple(bid) for bid in bids if auction[0] <= bid[1] <= auction[1]]
        if valid:
            best = self._best.get()
            valid += [tuple(best)] if best else []
            self._best.update(min(valid, key=lambda bid: (-bid[0], *bid[1:])))
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        auction, now_ms = self._open.get(), expiredTimerInfo.getExpiryTimeInMs()
        if auction is None:
            later = [tuple(bid) for bid in self._early.get() if bid[1] > now_ms]
            self._early.put(later) if later else self._early.clear()
        elif auction[1] == now_ms:
            best = self._best.get()
            self._open.clear()
            self._best.clear()
            if best:
                yield self.row(*auction, *best)


def _winners(spark: SparkSession, auction: str, bid: str) -> DataFrame:
    bid_columns = {"bid_ms": "unix_millis(dateTime)", "bid_extra": "extra"}
    auction_columns = {"time_ms": "unix_millis(dateTime)", "expires_ms": "unix_millis(expires)"}
    auctions = spark.table("auction").selectExpr(
        "id AS key",
        "true AS is_auction",
        "dateTime",
        *(f"{auction_columns.get(name, name)} AS {name}" for name in _names(auction)),
    )
    bids = spark.table("bid").selectExpr(
        "auction AS key",
        "false AS is_auction",
        "dateTime",
        *(f"{bid_columns.get(name, name)} AS {name}" for name in _names(bid)),
    )
    both = auctions.unionByName(bids, allowMissingColumns=True)
    made = _Winner(auction, bid)
    schema = f"{auction}, {bid}"
    return both.groupBy("key").transformWithState(made, schema, "Append", "EventTime")


def winning_bids(spark: SparkSession) -> DataFrame:
    """Query 9: a row per auction, when it has expired; Flink updates it with each better bid."""
    rows = _winners(spark, _AUCTION, _BID).withColumn("auction", sf.col("id"))
    times = {name: sf.timestamp_millis(ms) for ms, name in _MS.items()}
    return rows.withColumns(times).select(*WINNING_COLUMNS)


class _Average(_Processor):
    """Keeps sum and number of the prices of a category."""

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("sum", "total bigint, number bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        total, number = self._state.get() or (0, 0)
        for row in rows:
            total, number = total + row.price, number + 1
        self._state.update((total, number))
        yield self.row(key[0], total // number)


def average_winning_prices(spark: SparkSession) -> DataFrame:
    """Query 4: two operators; the second gives a category's row in each batch that changes it."""
    auction = "time_ms bigint, expires_ms bigint, category bigint"
    winners = _winners(spark, auction, "price bigint, bid_ms bigint").select("category", "price")
    schema = "category bigint, final bigint"
    return winners.groupBy("category").transformWithState(
        _Average(_names(schema)), schema, "Append", "None"
    )


# -- 15 and 16: distinct bidders and auctions ------------------------------------------------------

_RANK = "CASE WHEN price < 10000 THEN 1 WHEN price < 1000000 THEN 2 ELSE 3 END"
_COUNTS = [
    f"{rank}_{what}"
    for what in ("bids", "bidders", "auctions")
    for rank in ("total", "rank1", "rank2", "rank3")
]
_COUNTS_SCHEMA = ", ".join(f"{name} bigint" for name in _COUNTS)


class _FirstSeen(_Processor):
    """Counts, per group and bidder or auction, in which classes of prices it is seen first.

    The bids themselves are counted with their bidders.
    """

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("seen", "ranks int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        bids, minute = [0, 0, 0, 0], ""
        for row in rows:
            bids[0] += 1
            bids[row.rank] += 1
            minute = max(minute, row.minute)
        (before,) = self._state.get() or (0,)
        after = before | sum(1 << rank for rank in range(4) if bids[rank])
        if after != before:
            self._state.update((after,))
        new = [(after & ~before) >> rank & 1 for rank in range(4)]
        none = [0, 0, 0, 0]
        counts = [*bids, *new, *none] if key[-2] == "bidder" else [*none, *none, *new]
        yield self.row(*key[:-2], minute, *counts)


class _Sums(_Processor):
    """Adds the counts of a group, and keeps its last minute."""

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("sums", f"minute string, {_COUNTS_SCHEMA}")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        minute, *sums = self._state.get() or ("", *([0] * len(_COUNTS)))
        width = len(key)
        for row in rows:
            minute = max(minute, row[width])
            sums = [one + more for one, more in zip(sums, row[width + 1 :], strict=True)]
        self._state.update((minute, *sums))
        yield self.row(*key, minute, *sums)


def _distinct(spark: SparkSession, group: dict[str, Column]) -> DataFrame:
    kinds = sf.expr(
        "inline(array(struct('bidder' AS kind, bidder AS id), "
        "struct('auction' AS kind, auction AS id)))"
    )
    minute = sf.date_format("dateTime", "HH:mm").alias("minute")
    columns = [column.alias(name) for name, column in group.items()]
    rows = spark.table("bid").select(*columns, minute, sf.expr(_RANK).alias("rank"), kinds)
    schema = ", ".join([*(f"{name} string" for name in group), "minute string", _COUNTS_SCHEMA])
    first = rows.groupBy(*group, "kind", "id").transformWithState(
        _FirstSeen(_names(schema)), schema, "Append", "None"
    )
    return first.groupBy(*group).transformWithState(_Sums(_names(schema)), schema, "Append", "None")


def distinct_by_day(spark: SparkSession) -> DataFrame:
    """Query 15: two operators; the second gives a day's row in each batch that changes it."""
    day = sf.date_format("dateTime", "yyyy-MM-dd")
    return _distinct(spark, {"day": day}).drop("minute")


def distinct_by_channel(spark: SparkSession) -> DataFrame:
    """Query 16: the same per channel."""
    day = sf.date_format("dateTime", "yyyy-MM-dd")
    return _distinct(spark, {"channel": sf.col("channel"), "day": day})


# -- 19: the ten highest bids of an auction --------------------------------------------------------

_TOP_BID = "price bigint, time_ms bigint, bidder bigint, channel string, url string, extra string"
_TOP = 10


class _Highest(_Processor):
    """Keeps the highest bids of an auction; gives those whose rank has changed."""

    def init(self, handle: Any) -> None:
        self._state = handle.getListState("highest", _TOP_BID)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        before = [tuple(bid) for bid in self._state.get()]
        bids = before + [tuple(row[name] for name in _names(_TOP_BID)) for row in rows]
        after = sorted(bids, key=lambda bid: (-bid[0], *bid[1:]))[:_TOP]
        if after != before:
            self._state.put(after)
        for rank, bid in enumerate(after):
            if rank >= len(before) or bid != before[rank]:
                yield self.row(key[0], *bid, rank + 1)


def highest_bids(spark: SparkSession) -> DataFrame:
    """Query 19: in update mode; a row per auction and rank that a batch changes."""
    rows = spark.table("bid").selectExpr("*", "unix_millis(dateTime) AS time_ms")
    schema = f"auction bigint, {_TOP_BID}, rank_number bigint"
    processor = _Highest(_names(schema))
    top = rows.groupBy("auction").transformWithState(processor, schema, "Update", "None")
    top = top.withColumn("dateTime", sf.timestamp_millis("time_ms"))
    bid = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
    return top.select(*bid, "rank_number")
