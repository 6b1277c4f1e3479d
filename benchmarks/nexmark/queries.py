"""The stateful queries of Nexmark: the published SQL, and the stream that keeps its result.

`sql` is the published query in Spark's dialect, over the views of `events`; it is also the batch
job whose rows the stream must have written. Ties that the published order leaves open are broken by
the other columns, so that the rows are the same in each run. `stream` says the same to Structured
Streaming where SQL alone cannot; without it the stream runs `sql` itself. An *adapted* query has
another form, with `transformWithState`: its figures compare providers, not engines.

Queries 0-2, 10, 13, 14, 21 and 22 have no state, 6 is not supported by Flink either, 23 is two
joins such as 20.
"""

# The parts of the SQL are written here: nothing of it is input.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from nexmark import processors

# Python workers get the processors with the query: this folder is not on their path.
cloudpickle.register_pickle_by_value(processors)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        number: that of the suite.
        title: what it asks.
        sql: the published query in Spark's dialect.
        mode: output mode of the stream.
        key: columns that identify a row of the result; of an updated row the last one counts.
        stream: makes the stream of a session that has the views; ``None``: `sql` does.
        is_adapted: has another form than the published one.
        closes: needs a watermark: rows are final, and written, when it has passed them.
    """

    number: int
    title: str
    sql: str
    mode: str = "append"
    key: tuple[str, ...] = ()
    stream: Callable[[SparkSession], DataFrame] | None = None
    is_adapted: bool = False
    closes: bool = False

    def streamed(self, spark: SparkSession) -> DataFrame:
        """Return the stream; the views of the session are streams."""
        return self.stream(spark) if self.stream else spark.sql(self.sql)

    def expected(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the batch job; the views of the session are not streams."""
        return spark.sql(self.sql)


def _hot_auctions(spark: SparkSession) -> DataFrame:
    """Keep the auctions of the window with the most bids: the join is an aggregation here."""
    counts = (
        spark.table("bid")
        .groupBy(sf.window("dateTime", "10 seconds", "2 seconds"), "auction")
        .agg(sf.count("*").alias("num"))
    )
    return (
        counts.groupBy("window")
        .agg(sf.max("num").alias("most"), sf.collect_list(sf.struct("auction", "num")).alias("all"))
        .select("window", sf.expr("inline(filter(all, one -> one.num >= most))"))
        .select("auction", "num", sf.col("window.start").alias("starttime"))
    )


def _highest_bids(spark: SparkSession) -> DataFrame:
    """Join the window's highest price with its bids, which the join keeps until the window ends."""
    highest = (
        spark.table("bid")
        .groupBy(sf.window("dateTime", "10 seconds"))
        .agg(sf.max("price").alias("highest"))
        .select("highest", sf.window_time("window").alias("last"))  # the end - 1 us
    )
    is_match = sf.expr(
        "price = highest AND dateTime >= last - INTERVAL '9.999999' SECOND "
        "AND dateTime <= last + INTERVAL '0.000001' SECOND"
    )
    joined = spark.table("bid").join(highest, is_match)
    return joined.select("auction", "price", "bidder", "dateTime", "extra")


def _new_sellers(spark: SparkSession) -> DataFrame:
    tumbling = sf.window("dateTime", "10 seconds")
    person = spark.table("person").groupBy("id", "name", tumbling).agg(sf.count("*").alias("one"))
    seller = spark.table("auction").groupBy("seller", tumbling).agg(sf.count("*").alias("many"))
    joined = person.alias("p").join(
        seller.alias("a"), sf.expr("id = seller AND p.window = a.window")
    )
    return joined.selectExpr("id", "name", "p.window.start AS stime")


def _last_bids(spark: SparkSession) -> DataFrame:
    """Keep the greatest of (time, price, ...) per pair: ROW_NUMBER does not exist in streams."""
    last = sf.max(sf.struct("dateTime", "price", "channel", "url", "extra")).alias("last")
    bids = spark.table("bid").groupBy("auction", "bidder").agg(last)
    return bids.select("auction", "bidder", "last.*").select(*_BID)


def _bids_by_clock(spark: SparkSession) -> DataFrame:
    by_clock = sf.current_timestamp().alias("p_time")
    bids = spark.table("bid").select("bidder", by_clock).withWatermark("p_time", "0 seconds")
    counts = bids.groupBy("bidder", sf.window("p_time", "10 seconds")).agg(
        sf.count("*").alias("bid_count")
    )
    return counts.select("bidder", "bid_count", sf.col("window.start").alias("starttime"))


_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
_DAY = "date_format(dateTime, 'yyyy-MM-dd')"
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def _by_rank(counted: str, name: str) -> str:
    """Return the total, and the count of each class of prices."""
    ranked = [
        f"count({counted}) FILTER (WHERE {rank}) AS rank{number}_{name}"
        for number, rank in enumerate(_RANKS, start=1)
    ]
    return ", ".join([f"count({counted}) AS total_{name}", *ranked])


_DISTINCT = ", ".join(
    (
        _by_rank("*", "bids"),
        _by_rank("DISTINCT bidder", "bidders"),
        _by_rank("DISTINCT auction", "auctions"),
    )
)
_WINNING = """
    SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
        row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime, B.bidder, B.extra)
            AS rownum
    FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"""

QUERIES = (
    Query(
        3,
        "who sells in Oregon, Idaho or California: join",
        """SELECT P.name, P.city, P.state, A.id
        FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    ),
    Query(
        4,
        "average winning price per category",
        """SELECT category, sum(final) div count(*) AS final FROM (
            SELECT max(B.price) AS final, A.category FROM auction A, bid B
            WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
            GROUP BY A.id, A.category)
        GROUP BY category""",
        key=("category",),
        stream=processors.average_winning_prices,
        is_adapted=True,
        closes=True,
    ),
    Query(
        5,
        "auctions with the most bids, every 2 s for 10 s",
        """WITH counts AS (
            SELECT auction, count(*) AS num, window.start AS starttime FROM bid
            GROUP BY auction, window(dateTime, '10 seconds', '2 seconds'))
        SELECT A.auction, A.num, A.starttime FROM counts A
        JOIN (SELECT max(num) AS most, starttime FROM counts GROUP BY starttime) M
        ON A.starttime = M.starttime AND A.num >= M.most""",
        stream=_hot_auctions,
        closes=True,
    ),
    Query(
        7,
        "highest bids of 10 s: windows, joined with the bids",
        """SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B
        JOIN (SELECT max(price) AS highest, window.end AS end FROM bid
            GROUP BY window(dateTime, '10 seconds')) M
        ON B.price = M.highest
        WHERE B.dateTime BETWEEN M.end - INTERVAL '10' SECOND AND M.end""",
        stream=_highest_bids,
        closes=True,
    ),
    Query(
        8,
        "new sellers of 10 s: windows, joined",
        """SELECT P.id, P.name, P.stime FROM (
            SELECT id, name, window.start AS stime FROM person
            GROUP BY id, name, window(dateTime, '10 seconds')) P
        JOIN (SELECT seller, window.start AS stime FROM auction
            GROUP BY seller, window(dateTime, '10 seconds')) A
        ON P.id = A.seller AND P.stime = A.stime""",
        stream=_new_sellers,
        closes=True,
    ),
    Query(
        9,
        "winning bid per auction",
        f"SELECT {', '.join(processors.WINNING_COLUMNS)} FROM ({_WINNING}) WHERE rownum <= 1",
        stream=processors.winning_bids,
        is_adapted=True,
        closes=True,
    ),
    Query(
        11,
        "bids per session of a bidder, 10 s apart",
        """SELECT bidder, count(*) AS bid_count, session_window.start AS starttime,
            session_window.end AS endtime
        FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')""",
        closes=True,
    ),
    Query(
        12,
        "bids per bidder in 10 s of the clock",
        # The windows depend on the clock, so the batch job has one.
        "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
        mode="update",
        key=("bidder", "starttime"),
        stream=_bids_by_clock,
    ),
    Query(
        15,
        "bids, bidders and auctions of a day",
        f"SELECT {_DAY} AS day, {_DISTINCT} FROM bid GROUP BY {_DAY}",
        key=("day",),
        stream=processors.distinct_by_day,
        is_adapted=True,
    ),
    Query(
        16,
        "the same of a channel",
        f"""SELECT channel, {_DAY} AS day, max(date_format(dateTime, 'HH:mm')) AS minute,
            {_DISTINCT}
        FROM bid GROUP BY channel, {_DAY}""",
        key=("channel", "day"),
        stream=processors.distinct_by_channel,
        is_adapted=True,
    ),
    Query(
        17,
        "bids and prices per auction and day: aggregation",
        f"""SELECT auction, {_DAY} AS day, {_by_rank("*", "bids")}, min(price) AS min_price,
            max(price) AS max_price, sum(price) div count(*) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, {_DAY}""",
        mode="update",
        key=("auction", "day"),
    ),
    Query(
        18,
        "last bid per bidder and auction: deduplication",
        f"""SELECT {", ".join(_BID)} FROM (
            SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC,
                price DESC, channel DESC, url DESC, extra DESC) AS rank FROM bid)
        WHERE rank <= 1""",
        mode="update",
        key=("auction", "bidder"),
        stream=_last_bids,
    ),
    Query(
        19,
        "ten highest bids per auction",
        f"""SELECT * FROM (
            SELECT {", ".join(_BID)}, row_number() OVER (PARTITION BY auction ORDER BY price DESC,
                dateTime, bidder, channel, url, extra) AS rank_number FROM bid)
        WHERE rank_number <= 10""",
        mode="update",
        key=("auction", "rank_number"),
        stream=processors.highest_bids,
        is_adapted=True,
    ),
    Query(
        20,
        "bids on auctions of a category: join",
        """SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime,
            B.extra AS bid_extra, itemName, description, initialBid, reserve,
            A.dateTime AS auction_dateTime, expires, seller, category, A.extra AS auction_extra
        FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10""",
    ),
)
