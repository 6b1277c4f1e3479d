"""Five stateful queries over the flights of 2013, each with the batch computation of the same rows.

Each query is a function of a session and the input folders (inputs.py); none sets a trigger, a sink
or a provider.

    windows   aggregation   flights and delays per airport, carrier and six hours
    dedup     deduplication every flight once, from a stream that sends some flights twice
    weather   outer join    every flight with the weather of its hour, if known
    waves     session       departures of one carrier at one airport, at most 2 h apart
    days      pandas state  delays per airport, carrier and day, by applyInPandasWithState
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from inputs import SENTINEL_ORIGIN, FlightInputs
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

# Spark's Python workers cannot import this module: its functions are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

FLIGHTS_DDL = (
    "event_time timestamp, time_hour timestamp, carrier string, flight int, tailnum string, "
    "origin string, dest string, sched_dep_time int, dep_delay bigint, distance bigint"
)
WEATHER_DDL = "origin string, weather_hour timestamp, temp double, wind_speed double, visib double"
DAYS_DDL = "carrier string, origin string, day date, flights bigint, delay_minutes bigint"
DAYS_STATE_DDL = "day date, flights bigint, delay_minutes bigint"

Read = Callable[[str, str], DataFrame]


@dataclass(frozen=True)
class FlightQuery:
    """A query in its two forms.

    Attributes:
        name: names the checkpoint and sink folders.
        operator: the kind of stateful operator, for people.
        stream: the streaming form, for output mode ``append``.
        batch: the same rows without the sentinel, computed without a state store.
    """

    name: str
    operator: str
    stream: Callable[[SparkSession, FlightInputs], DataFrame]
    batch: Callable[[SparkSession, FlightInputs], DataFrame]


def without_sentinel(rows: DataFrame) -> DataFrame:
    """Drop the sentinel rows, which only move the watermark."""
    return rows.where(f.col("origin") != SENTINEL_ORIGIN)


def _windows(read: Read, inputs: FlightInputs) -> DataFrame:
    flights = read(inputs.flights, FLIGHTS_DDL).withWatermark("event_time", "1 hour")
    return (
        flights.groupBy(f.window("event_time", "6 hours"), "origin", "carrier")
        .agg(
            f.count("*").alias("flights"),
            f.sum("dep_delay").alias("delay_minutes"),
            f.max("dep_delay").alias("worst_delay"),
        )
        .select("window.start", "origin", "carrier", "flights", "delay_minutes", "worst_delay")
    )


def _dedup(read: Read, inputs: FlightInputs) -> DataFrame:
    # A flight is resent at most 60 hours later, within the watermark, so that none is late.
    resent = read(inputs.resent, FLIGHTS_DDL).withWatermark("event_time", "72 hours")
    keys = ["event_time", "carrier", "flight", "origin", "sched_dep_time"]
    return resent.dropDuplicates(keys).select(*keys, "tailnum", "dep_delay")


def _weather(read: Read, inputs: FlightInputs) -> DataFrame:
    flights = read(inputs.flights, FLIGHTS_DDL).withWatermark("time_hour", "1 hour").alias("f")
    weather = read(inputs.weather, WEATHER_DDL).withWatermark("weather_hour", "1 hour").alias("w")
    same_hour = (f.col("f.origin") == f.col("w.origin")) & (
        f.col("f.time_hour") == f.col("w.weather_hour")
    )
    return flights.join(weather, same_hour, "left_outer").select(
        "f.event_time", "f.origin", "f.carrier", "f.flight", "f.dep_delay", "w.temp", "w.wind_speed"
    )


def _waves(read: Read, inputs: FlightInputs) -> DataFrame:
    flights = read(inputs.flights, FLIGHTS_DDL).withWatermark("event_time", "1 hour")
    return (
        flights.groupBy(
            f.session_window("event_time", "2 hours").alias("wave"), "carrier", "origin"
        )
        .agg(f.count("*").alias("flights"), f.sum("dep_delay").alias("delay_minutes"))
        .select("wave.start", "wave.end", "carrier", "origin", "flights", "delay_minutes")
    )


def _day_totals(rows: pd.DataFrame) -> pd.DataFrame:
    """Sum one group's flights by UTC day; a cancelled flight has no delay."""
    days = rows["event_time"].dt.date.rename("day")
    delays = rows["dep_delay"].fillna(0).astype("int64")
    return delays.groupby(days).agg(["size", "sum"])


def _emit_closed_days(
    key: tuple[str, str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Keep the sums of a carrier's latest day at an airport; emit a day when a later one begins.

    The watermark closes the last day. REQUIRES: the input is in event order.
    """
    totals: dict[Any, tuple[int, int]] = {}
    if state.exists:
        day, flights, delay = state.get
        totals[day] = (flights, delay)
    if state.hasTimedOut:
        state.remove()
    else:
        for frame in frames:
            for day, size, delay in _day_totals(frame).itertuples():
                flights, before = totals.get(day, (0, 0))
                totals[day] = (flights + int(size), before + int(delay))
        latest = max(totals)
        flights, delay = totals.pop(latest)
        state.update((latest, flights, delay))
        next_day = pd.Timestamp(latest, tz="UTC") + pd.Timedelta(days=1)
        closes_ms = int(next_day.timestamp() * 1000)
        state.setTimeoutTimestamp(max(closes_ms, state.getCurrentWatermarkMs() + 1))
    carrier, origin = key
    yield pd.DataFrame(
        [(carrier, origin, day, *sums) for day, sums in sorted(totals.items())],
        columns=["carrier", "origin", "day", "flights", "delay_minutes"],
    )


def _days_stream(spark: SparkSession, inputs: FlightInputs) -> DataFrame:
    flights = _stream(spark)(inputs.flights, FLIGHTS_DDL).withWatermark("event_time", "1 hour")
    return (
        flights.select("event_time", "carrier", "origin", "dep_delay")
        .groupBy("carrier", "origin")
        .applyInPandasWithState(
            _emit_closed_days,
            DAYS_DDL,
            DAYS_STATE_DDL,
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def _days_batch(spark: SparkSession, inputs: FlightInputs) -> DataFrame:
    flights = without_sentinel(_batch(spark)(inputs.flights, FLIGHTS_DDL))
    return flights.groupBy("carrier", "origin", f.to_date("event_time").alias("day")).agg(
        f.count("*").alias("flights"),
        f.sum(f.coalesce("dep_delay", f.lit(0))).alias("delay_minutes"),
    )


def _stream(spark: SparkSession) -> Read:
    def read(folder: str, ddl: str) -> DataFrame:
        # One file per micro-batch: every run has the same batches.
        return spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(folder)

    return read


def _batch(spark: SparkSession) -> Read:
    def read(folder: str, ddl: str) -> DataFrame:
        return spark.read.schema(ddl).parquet(folder)

    return read


def _query(
    name: str, operator: str, plan: Callable[[Read, FlightInputs], DataFrame]
) -> FlightQuery:
    return FlightQuery(
        name,
        operator,
        lambda spark, inputs: plan(_stream(spark), inputs),
        lambda spark, inputs: without_sentinel(plan(_batch(spark), inputs)),
    )


QUERIES: tuple[FlightQuery, ...] = (
    _query("windows", "windowed aggregation", _windows),
    _query("dedup", "deduplication", _dedup),
    _query("weather", "left outer stream join", _weather),
    _query("waves", "session window", _waves),
    FlightQuery("days", "applyInPandasWithState", _days_stream, _days_batch),
)
