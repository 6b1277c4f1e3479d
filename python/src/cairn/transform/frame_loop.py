"""The groups of `transformWithStateInPandas`: frames as Spark's own worker makes them.

Spark makes each frame of a list of tuples, so that its types are those of Python's values. Here it
is a slice of a batch's frame, where these types are known before; else it is made as Spark does.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.errors import PySparkValueError
from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion
from pyspark.sql.types import StructType

from cairn.transform.client import FrameClient
from cairn.transform.facts import Facts

_OUTPUT_ROWS = 2000
_MAX_BYTES = 2**31 - 1
# Values that stay what they are in a column of objects, also beside each other.
_OBJECTS = frozenset((str, bytes, date, Decimal, np.ndarray, list, dict, type(None)))

_Key = tuple[Any, ...]


class FrameLoop:
    """Makes frames of batches, and batches of frames."""

    def __init__(self, facts: Facts, return_type: StructType) -> None:
        self._facts = facts
        self._return_type = return_type
        self._bytes = self._rows = 0
        self._row_bytes = 0.0
        # The last key, and its rows that are in no frame yet.
        self._key: _Key = ()
        self._waiting: list[Any] = []

    def groups(
        self, batches: Iterable[pa.RecordBatch], client: FrameClient
    ) -> Iterator[tuple[_Key, Iterator[pd.DataFrame]]]:
        """Return each key with its frames; tell the client the keys of each batch."""
        pairs = self._frames(batches, client)
        for key, group in itertools.groupby(pairs, key=itemgetter(0)):
            yield key, map(itemgetter(1), group)

    def _frames(
        self, batches: Iterable[pa.RecordBatch], client: FrameClient
    ) -> Iterator[tuple[_Key, pd.DataFrame]]:
        for batch in batches:
            if batch.num_rows:
                self._measure(batch)
                yield from self._of_batch(self._to_pandas(batch), client)
        yield from self._rest()

    def _of_batch(
        self, frame: pd.DataFrame, client: FrameClient
    ) -> Iterator[tuple[_Key, pd.DataFrame]]:
        """Return the frames of a batch; the rows of its last key may go on in the next one."""
        groups = list(_groups(frame, self._facts.key_offsets))
        goes_on = bool(self._waiting) and groups[0][0] == self._key
        keys = [key for key, _, _ in groups[goes_on:]]
        client.set_chunk([self._key, *keys] if self._waiting else keys)
        values = _as_of_tuples(frame, self._facts.value_offsets)
        for place, (key, begin, end) in enumerate(groups):
            if place or not goes_on:
                yield from self._rest()
                self._key = key
            if values is not None and not self._waiting and end < len(frame):
                limit = self._limit()
                for first in range(begin, end, limit):
                    part = values.iloc[first : min(first + limit, end)]
                    yield key, part.reset_index(drop=True)
            else:
                for row in frame.iloc[begin:end].itertuples(index=False):
                    self._waiting.append(row)
                    if len(self._waiting) >= self._limit():
                        yield from self._rest()

    def _rest(self) -> Iterator[tuple[_Key, pd.DataFrame]]:
        if self._waiting:
            frame = pd.DataFrame(self._waiting).iloc[:, self._facts.value_offsets]
            self._waiting = []
            yield self._key, frame

    def groups_with_initial(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[_Key, Iterator[pd.DataFrame], Iterator[pd.DataFrame]]]:
        """Return each key with its frames and those of its initial state."""
        chunks = self._chunks(batches)
        for key, group in itertools.groupby(chunks, key=itemgetter(0)):
            of_rows, of_initial = itertools.tee(group, 2)
            yield (
                key,
                (frame for _, frame, _ in of_rows if not frame.empty),
                (frame for _, _, frame in of_initial if not frame.empty),
            )

    def _chunks(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[_Key, pd.DataFrame, pd.DataFrame]]:
        for key, group in itertools.groupby(self._triples(batches), key=itemgetter(0)):
            rows: list[Any] = []
            initial: list[Any] = []
            for _, row, is_initial in group:
                (initial if is_initial else rows).append(row)
                if len(rows) + len(initial) >= self._limit():
                    yield key, pd.DataFrame(rows), pd.DataFrame(initial)
                    rows, initial = [], []
            if rows or initial:
                yield key, pd.DataFrame(rows), pd.DataFrame(initial)

    def _triples(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[_Key, Any, bool]]:
        for struct, offsets, is_initial in self._facts.structs(map(self._measured, batches)):
            for row in self._to_pandas(struct).itertuples(index=False):
                yield tuple(row[offset] for offset in offsets), row, is_initial

    def _to_pandas(self, batch: pa.RecordBatch) -> pd.DataFrame:
        conf = self._facts.conf
        series = ArrowBatchTransformer.to_pandas(
            batch, timezone=conf.timezone or "UTC", prefer_int_ext_dtype=conf.prefer_int_ext_dtype
        )
        return pd.concat(series, axis=1)

    def _measured(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._measure(batch)
        return batch

    def _measure(self, batch: pa.RecordBatch) -> None:
        # As Spark's worker: the mean of all batches so far.
        if self._facts.max_bytes != _MAX_BYTES and batch.num_rows:
            buffers = (buffer for column in batch.columns for buffer in column.buffers())
            self._bytes += sum(buffer.size for buffer in buffers if buffer is not None)
            self._rows += batch.num_rows
            self._row_bytes = self._bytes / self._rows

    def _limit(self) -> int:
        """Return how many rows a frame has."""
        if not self._row_bytes:
            return self._facts.max_records
        of_bytes = max(-int(-self._facts.max_bytes // self._row_bytes), 1)
        return min(self._facts.max_records, of_bytes)

    def results(self, of_key: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Return the results of a key, each before the processor goes on: it may change them."""
        for result in of_key:
            if not isinstance(result, pd.DataFrame):
                raise PySparkValueError(
                    "Invalid return type. Please make sure that the UDF returns a "
                    "pandas.DataFrame when the specified return type is StructType."
                )
            yield result.copy()

    def batches(self, results: Iterator[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        """Return batches of results of many keys."""
        frames: list[pd.DataFrame] = []
        before: Any = None
        count = 0
        for frame in results:
            layout = list(frame.columns), list(frame.dtypes)
            if frames and (layout != before or count >= _OUTPUT_ROWS):
                yield from self._together(frames)
                frames, count = [], 0
            frames.append(frame)
            before = layout
            count += max(len(frame), 1)
        if frames:
            yield from self._together(frames)

    def _together(self, frames: list[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        """Return frames of one layout as one batch; as several if they need different casts."""
        together = None
        if len(frames) > 1:
            with contextlib.suppress(ValueError, TypeError):
                together = self._to_arrow(pd.concat(frames, ignore_index=True))
        if together is not None:
            yield together
        else:
            yield from map(self._to_arrow, frames)

    def _to_arrow(self, frame: pd.DataFrame) -> pa.RecordBatch:
        conf = self._facts.conf
        return PandasToArrowConversion.convert(
            frame,
            self._return_type,
            timezone=conf.timezone,
            safecheck=conf.safecheck,
            arrow_cast=True,
            assign_cols_by_name=conf.assign_cols_by_name,
            int_to_decimal_coercion_enabled=conf.int_to_decimal_coercion_enabled,
        )


def _groups(frame: pd.DataFrame, key_offsets: list[int]) -> Iterator[tuple[_Key, int, int]]:
    """Return the keys that follow each other, each with the bounds of its rows."""
    keys = zip(*(frame.iloc[:, offset].tolist() for offset in key_offsets), strict=True)
    begin = 0
    for key, group in itertools.groupby(keys):
        end = begin + sum(1 for _ in group)
        yield key, begin, end
        begin = end


def _as_of_tuples(frame: pd.DataFrame, offsets: list[int]) -> pd.DataFrame | None:
    """Return columns of a frame with the types that any part of its rows gets as tuples.

    None if parts get different types.
    """
    names = next(frame.itertuples(index=False))._fields
    columns = []
    for offset in offsets:
        column = frame.iloc[:, offset]
        if column.dtype.kind == "i" and isinstance(column.dtype, np.dtype):
            column = column.astype(np.int64)
        elif column.dtype.kind == "f" and isinstance(column.dtype, np.dtype):
            column = column.astype(np.float64)
        elif column.dtype == object:
            if not _OBJECTS.issuperset(map(type, column.array)):
                return None
        elif column.dtype not in (np.dtype(bool), np.dtype("datetime64[ns]")):
            return None
        columns.append(column)
    made = pd.concat(columns, axis=1)
    made.columns = pd.Index([names[offset] for offset in offsets])
    return made
