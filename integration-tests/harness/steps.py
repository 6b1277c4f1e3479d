"""One function of keys with many kinds of state and timeouts, key by key and for chunks of keys.

`step` decides by the content of key, state and rows alone; both forms only call it. It keeps,
changes and removes state, with and without timeouts, and gives none to three rows.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

if TYPE_CHECKING:
    import cairn

# Spark's Python workers cannot import this module: its functions are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

STATE = (
    # No list and no map: Spark 4.3.0's worker cannot read a schema that has one.
    "n bigint, total double, last struct<ts:timestamp,name:string>, price decimal(12,3), "
    "flag boolean, day date, raw binary"
)
OUTPUT = "k int, name string, n bigint, what string, total string, last_ts timestamp"
FIELDS = ("n", "total", "last", "price", "flag", "day", "raw")
_FAR_MS = 3_600_000

Values = dict[str, Any]
# What a step makes of a key: its state or None, its timeout or None, and rows of output.
Made = tuple[Values | None, int | None, list[Values]]
KEEP = "keep"


def step(
    key: tuple[Any, ...],
    before: Values | None,
    rows: list[Values],
    *,
    has_timed_out: bool,
    now_ms: int,
    timeout: str,
) -> Made | str:
    """Return what becomes of a key; `KEEP` leaves state and timeout as they are.

    Args:
        key: `k` and `name`.
        before: the state; None if there is none.
        rows: those of the key, with `v` and `ts`.
        has_timed_out: whether the key has timed out.
        now_ms: the watermark or the time of the batch.
        timeout: one of Spark's three.
    """
    values = sorted((row["v"] for row in rows if row["v"] is not None), reverse=True)
    old = before or {}
    n = (old.get("n") or 0) + len(rows)
    chance = zlib.crc32(repr((key, n, values, has_timed_out)).encode())
    times = [row["ts"] for row in rows if row["ts"] is not None]
    out = {
        "k": key[0],
        "name": key[1],
        "n": n,
        "what": f"timed out {has_timed_out}, had {before is not None}",
        "total": repr(old.get("total")),  # a data frame would make NaN null
        "last_ts": max(times, default=None),
    }
    output = [out] * (chance % 4)
    ends = _timeout(chance // 4, now_ms, timeout)
    if has_timed_out:
        return (None, None, output) if chance % 3 else (None, ends, output)
    if chance // 7 % 5 == 0:
        return KEEP
    if chance // 11 % 6 == 0:
        return None, ends, output
    after = {
        "n": n,
        "total": float("nan") if chance % 9 == 0 else (old.get("total") or 0.0) + sum(values),
        "last": {"ts": max(times, default=None), "name": key[1]} if chance % 5 else None,
        "price": Decimal(chance % 1_000_000).scaleb(-3) if chance % 7 else None,
        "flag": None if chance % 3 == 0 else bool(chance % 2),
        "day": date(2020, 1, 1) + timedelta(days=chance % 1000),
        "raw": bytes([chance % 256, 0]) if chance % 5 else None,
    }
    return after, ends, output


def _timeout(chance: int, now_ms: int, timeout: str) -> int | None:
    if timeout == GroupStateTimeout.NoTimeout or chance % 3 == 0:
        return None
    if timeout == GroupStateTimeout.ProcessingTimeTimeout:
        # In every run it has passed in the next batch, or never does.
        return now_ms + (1 if chance % 3 == 1 else _FAR_MS * 24)
    return now_ms + 1 + chance % _FAR_MS


def _in_pandas(timeout: str) -> Callable[..., Iterator[pd.DataFrame]]:
    def function(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        own = tuple(None if pd.isna(one) else one for one in key)
        own = (None if own[0] is None else int(own[0]), own[1])
        rows = []
        for frame in frames:
            rows += [
                {
                    "v": None if pd.isna(v) else int(v),
                    "ts": None if pd.isna(ts) else ts.to_pydatetime().replace(tzinfo=UTC),
                }
                for v, ts in zip(frame["v"], frame["ts"], strict=True)
            ]
        option = state.getOption
        before = None
        if option is not None:
            before = dict(zip(FIELDS, option, strict=True))
        made = step(
            own,
            before,
            [] if state.hasTimedOut else rows,
            has_timed_out=state.hasTimedOut,
            now_ms=_now_ms(state, timeout),
            timeout=timeout,
        )
        if isinstance(made, str):
            return
        after, ends, output = made
        if after is None:
            state.remove()
        else:
            last = after["last"]
            values = {**after, "last": last and (last["ts"], last["name"])}
            state.update(tuple(values[name] for name in FIELDS))
        if ends is not None and timeout == GroupStateTimeout.ProcessingTimeTimeout:
            state.setTimeoutDuration(ends - state.getCurrentProcessingTimeMs())
        elif ends is not None:
            state.setTimeoutTimestamp(ends)
        for row in output:
            yield pd.DataFrame([row], dtype=object)

    return function


def _now_ms(state: GroupState, timeout: str) -> int:
    if timeout == GroupStateTimeout.EventTimeTimeout:
        return state.getCurrentWatermarkMs()
    return state.getCurrentProcessingTimeMs()


def _in_arrow(timeout: str) -> Callable[..., tuple[pa.Table, pa.Table]]:
    def function(rows: pa.Table, state: pa.Table, chunk: cairn.Chunk) -> tuple[pa.Table, pa.Table]:
        by_key: list[list[Values]] = [[] for _ in range(state.num_rows)]
        of_row: list[Any] = chunk.key_of_row.to_pylist()
        for number, row in zip(of_row, rows.to_pylist(), strict=True):
            by_key[number].append(row)
        event_time = timeout == GroupStateTimeout.EventTimeTimeout
        now_ms = chunk.watermark_ms if event_time else chunk.processing_time_ms
        assert now_ms is not None
        output: list[Values] = []
        after = []
        for row, of_key in zip(state.to_pylist(), by_key, strict=True):
            key = (row["k"], row["name"])
            before = {name: row[name] for name in FIELDS} if row["exists"] else None
            made = step(
                key,
                before,
                of_key,
                has_timed_out=chunk.has_timed_out,
                now_ms=now_ms,
                timeout=timeout,
            )
            if isinstance(made, str):
                after.append(row)
                continue
            values, ends, own_output = made
            output += own_output
            changed = {"k": key[0], "name": key[1], "exists": values is not None}
            if timeout != GroupStateTimeout.NoTimeout:
                changed["timeout_ms"] = ends
            after.append({**dict.fromkeys(FIELDS), **(values or {}), **changed})
        after.reverse()  # any order
        fields: list[tuple[str, pa.DataType]] = [
            ("k", pa.int32()),
            ("name", pa.string()),
            ("n", pa.int64()),
            ("what", pa.string()),
            ("total", pa.string()),
            ("last_ts", pa.timestamp("us", "UTC")),
        ]
        return pa.Table.from_pylist(output, pa.schema(fields)), pa.Table.from_pylist(
            after, state.schema
        )

    return function


def steps(form: str, timeout: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    """Return the plan of the function in a form, `pandas` or `arrow`."""

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        # A batch has few of the keys, so that others time out.
        some = left.where("(coalesce(v, 1) + coalesce(k, 3)) % 3 != 0").withColumn(
            "name", f.substring("name", 1, 4)
        )
        if timeout == GroupStateTimeout.EventTimeTimeout:
            some = some.withWatermark("ts", "10 minutes")
        grouped = some.groupBy("k", "name")
        if form == "pandas":
            return grouped.applyInPandasWithState(
                _in_pandas(timeout), OUTPUT, STATE, "append", timeout
            )
        import cairn  # noqa: PLC0415 - the Python of another minor may lack it

        return cairn.apply_in_arrow_with_state(
            grouped, _in_arrow(timeout), OUTPUT, STATE, "append", timeout
        )

    return plan
