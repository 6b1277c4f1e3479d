"""The processors of transform.py, and two floors: the same processors over dictionaries.

The first floor is in Spark's own Python worker, the second in a loop that reads and writes whole
Arrow batches.

Python workers import this module; transform.py puts its folder on their path.
"""

# The names and signatures are Spark's.
# ruff: noqa: ANN401, ARG002, D102, N802, N803

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues

import cairn

# The stubs of pyarrow know arrays of known types alone.
pc: Any = pyarrow.compute
# A timer ends this long after the newest row of its key: in the next batch of transform.py.
TIMER_MS = 30_000


class _Rows:
    """How a processor reads and gives rows."""

    def count(self, rows: Iterable[Row]) -> int:
        return sum(1 for _ in rows)

    def values(self, rows: Iterable[Row]) -> list[int]:
        return [row.value for row in rows]

    def newest_ms(self, rows: Iterable[Row]) -> int:
        return max(int(row.time_ms) for row in rows)

    def result(self, key: int, count: int) -> Any:
        return Row(key=key, count=count)


class _Frames:
    """The same with data frames."""

    def count(self, frames: Iterable[pd.DataFrame]) -> int:
        return sum(len(frame) for frame in frames)

    def values(self, frames: Iterable[pd.DataFrame]) -> list[int]:
        return [value for frame in frames for value in frame["value"].tolist()]

    def newest_ms(self, frames: Iterable[pd.DataFrame]) -> int:
        return max(int(frame["time_ms"].max()) for frame in frames)

    def result(self, key: int, count: int) -> Any:
        return pd.DataFrame({"key": [key], "count": [count]})


FORMS: dict[str, Any] = {"rows": _Rows, "pandas": _Frames}


class _Processor(StatefulProcessor):
    def __init__(self, form: str) -> None:
        self.form: Any = FORMS[form]()

    def close(self) -> None:
        pass


class Value(_Processor):
    """Counts the rows of a key in a value: exists, get, update."""

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("count", "count bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = self.state.get()[0] if self.state.exists() else 0
        count += self.form.count(rows)
        self.state.update((count,))
        yield self.form.result(key[0], count)


class List(_Processor):
    """Appends each row to a list, one call per row."""

    def init(self, handle: Any) -> None:
        self.state = handle.getListState("values", "value bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        values = self.form.values(rows)
        for value in values:
            self.state.appendValue((value,))
        yield self.form.result(key[0], len(values))


class Map(_Processor):
    """Reads two values of a map and writes one."""

    def init(self, handle: Any) -> None:
        self.state = handle.getMapState("sums", "of string", "sum bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        (first,) = self.state.getValue(("first",)) or (0,)
        (second,) = self.state.getValue(("second",)) or (0,)
        count = first + second + self.form.count(rows)
        self.state.updateValue(("second" if first else "first",), (count,))
        yield self.form.result(key[0], count)


class Timers(_Processor):
    """Registers a timer for each key; it ends in the next batch and gives a row."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self.handle.registerTimer(self.form.newest_ms(rows) + TIMER_MS)
        yield self.form.result(key[0], 0)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        yield self.form.result(key[0], 1)


def _count_in_pandas(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
    count = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((count,))
    yield pd.DataFrame({"key": [key[0]], "count": [count]})


def _count_in_arrow(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    of_batch = rows.group_by("key").aggregate([([], "count_all")])
    both = state.drop_columns("exists").join(of_batch, "key")
    total = pc.add(pc.fill_null(both["count"], 0), both["count_all"])
    counted = pa.table({"key": both["key"], "count": total})
    return counted, counted


def counted(engine: str, grouped: Any, schema: str) -> Any:
    """Return the counts per key by the operator of an engine of `transform.COUNTS`."""
    if engine == "groups":
        return grouped.applyInPandasWithState(
            _count_in_pandas, schema, "count bigint", "update", "NoTimeout"
        )
    return cairn.apply_in_arrow_with_state(
        grouped, _count_in_arrow, schema, "count bigint", "update", "NoTimeout"
    )


WORKLOADS: dict[str, type[_Processor]] = {
    "value": Value,
    "list": List,
    "map": Map,
    "timers": Timers,
}


# State of the floor. It lives as long as the Python worker, which Spark uses again: nearly all keys
# of a batch find the state of the batch before.
_VALUES: dict[Any, Any] = {}
_LISTS: dict[Any, list[Any]] = defaultdict(list)
_MAPS: dict[Any, dict[Any, Any]] = defaultdict(dict)
_TIMERS: dict[Any, set[int]] = defaultdict(set)
_EXPIRIES: list[tuple[int, Any]] = []


class OverDictionaries(_Processor):
    """Runs a processor with dictionaries in the place of the state client: nothing is durable.

    Spark's own worker calls it, with the same rows. No call of a key or of its state leaves the
    worker; the calls of a task do.
    """

    def __init__(self, inner: _Processor) -> None:
        self.inner = inner

    def init(self, handle: Any) -> None:
        client = handle._statefulProcessorApiClient  # noqa: SLF001
        self.handle = _DictionaryHandle()
        client.set_implicit_key = self.handle.set_key
        client.delete_timer = self.handle.deleteTimer
        client.get_expiry_timers_iterator = self.handle.next_expiry
        inner: Any = self.inner  # its type wants the handle of Spark
        inner.init(self.handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        return self.inner.handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        return self.inner.handleExpiredTimer(key, timerValues, expiredTimerInfo)


class _DictionaryHandle:
    def __init__(self) -> None:
        self.key: Any = None
        self._due: list[tuple[Any, int]] | None = None

    def set_key(self, key: Any) -> None:
        self.key = key

    def getValueState(self, name: str, schema: str) -> Any:
        return _DictionaryValue(self)

    def getListState(self, name: str, schema: str) -> Any:
        return _DictionaryList(self)

    def getMapState(self, name: str, user_key: str, value: str) -> Any:
        return _DictionaryMap(self)

    def registerTimer(self, expiry_ms: int) -> None:
        if expiry_ms not in _TIMERS[self.key]:
            _TIMERS[self.key].add(expiry_ms)
            heapq.heappush(_EXPIRIES, (expiry_ms, self.key))

    def deleteTimer(self, expiry_ms: int) -> None:
        _TIMERS[self.key].discard(expiry_ms)

    def next_expiry(self, iterator_id: str, watermark_ms: int) -> tuple[Any, int, bool]:
        if self._due is None:
            self._due = []
            while _EXPIRIES and _EXPIRIES[0][0] < watermark_ms:
                expiry_ms, key = heapq.heappop(_EXPIRIES)
                if expiry_ms in _TIMERS[key]:
                    self._due.append((key, expiry_ms))
            self._due.reverse()
        if not self._due:
            raise StopIteration
        key, expiry_ms = self._due.pop()
        return key, expiry_ms, not self._due


class _DictionaryState:
    def __init__(self, handle: _DictionaryHandle) -> None:
        self.handle = handle


class _DictionaryValue(_DictionaryState):
    def exists(self) -> bool:
        return self.handle.key in _VALUES

    def get(self) -> Any:
        return _VALUES.get(self.handle.key)

    def update(self, value: Any) -> None:
        _VALUES[self.handle.key] = value


class _DictionaryList(_DictionaryState):
    def appendValue(self, value: Any) -> None:
        _LISTS[self.handle.key].append(value)


class _DictionaryMap(_DictionaryState):
    def getValue(self, user_key: Any) -> Any:
        return _MAPS[self.handle.key].get(user_key)

    def updateValue(self, user_key: Any, value: Any) -> None:
        _MAPS[self.handle.key][user_key] = value


_OUTPUT = pa.schema([("key", pa.int64()), ("count", pa.int64())])
_OUTPUT_ROWS = 10_000


def own_loop(workload: str, form: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[Any]]:
    """Return a function for mapInArrow that calls a processor: the second floor, without timers.

    The rows of the partition come in any order; it sorts them, as the JVM does for the operator.
    """
    made: Any = WORKLOADS[workload](form)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        handle = _DictionaryHandle()
        made.init(handle)
        times = TimerValues(-1, -1)
        results: list[Any] = []
        for batch in pa.Table.from_batches(batches).sort_by("key").to_batches(max_chunksize=10_000):
            for key, rows in _GROUPS[form](batch):
                handle.set_key(key)
                results += made.handleInputRows(key, rows, times)
                if len(results) >= _OUTPUT_ROWS:
                    yield _RESULTS[form](results)
                    results = []
        if results:
            yield _RESULTS[form](results)

    return run


def _groups_of_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, Iterator[Row]]]:
    made = Row(*batch.schema.names)
    rows = (made(*values) for values in zip(*(c.to_pylist() for c in batch.columns), strict=True))
    for key, group in itertools.groupby(rows, key=lambda row: row[0]):
        yield (key,), group


def _groups_of_frames(batch: pa.RecordBatch) -> Iterator[tuple[Any, Iterator[pd.DataFrame]]]:
    frame = batch.to_pandas()
    begin = 0
    for key, group in itertools.groupby(batch.column("key").to_pylist()):
        end = begin + sum(1 for _ in group)
        yield (key,), iter([frame.iloc[begin:end].reset_index(drop=True)])
        begin = end


def _result_of_rows(results: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [row.asDict(recursive=True) for row in results], schema=_OUTPUT
    )


def _result_of_frames(results: list[pd.DataFrame]) -> pa.RecordBatch:
    frame = pd.concat(results, ignore_index=True)
    return pa.RecordBatch.from_pandas(frame, schema=_OUTPUT, preserve_index=False)


_GROUPS = {"rows": _groups_of_rows, "pandas": _groups_of_frames}
_RESULTS = {"rows": _result_of_rows, "pandas": _result_of_frames}


def processor(workload: str, form: str, engine: str) -> StatefulProcessor:
    """Return the processor of a workload; that of the floor if the engine is `floor`."""
    made: Callable[[str], _Processor] = WORKLOADS[workload]
    return OverDictionaries(made(form)) if engine == "floor" else made(form)
