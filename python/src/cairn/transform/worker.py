"""The function that Spark's Python worker runs for `transformWithState` in bulk.

Spark runs it as a function of `mapInArrow`. It calls the user's processor as Spark's own worker
does, for the rows of one key after another; its rows leave in batches of many keys.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor_util import (
    TransformWithStateInPandasFuncMode as Mode,
)
from pyspark.sql.types import Row, StructType
from pyspark.worker_util import read_command

from cairn.transform.handle import BulkHandle
from cairn.transform.timers import BulkClient

# Rows of a batch that goes to the JVM: enough that a batch costs less than its rows.
_OUTPUT_ROWS = 500

_Batches = Iterator[pa.RecordBatch]


def load(function: bytes, facts: bytes) -> tuple[Callable[[_Batches], _Batches], StructType]:
    """Return the function for the worker, and the type of its rows; the shim's pickle calls it.

    Args:
        function: the pickle of the user's function, as Spark's operator has it.
        facts: count of the key's columns, their numbers, the path of the socket, the key's schema.
    """
    udf, return_type = read_command(CPickleSerializer(), function)
    count = struct.unpack_from(">i", facts)[0]
    key_offsets = struct.unpack_from(f">{count}i", facts, 4)
    socket_path, place = _text(facts, 4 + 4 * count)
    key_schema = StructType.fromJson(_json(_text(facts, place)[0]))
    utils = udf.__self__
    utils._stateful_processor = _InBulk(utils._stateful_processor)  # noqa: SLF001

    def run(batches: _Batches) -> _Batches:
        client = BulkClient(socket_path, key_schema)
        try:
            results = _results(udf, client, _rows(batches, key_offsets, client))
            yield from _as_batches(results, return_type)
        finally:
            client.close()

    return run, return_type


def _text(facts: bytes, place: int) -> tuple[str, int]:
    begin = place + 4
    end = begin + struct.unpack_from(">i", facts, place)[0]
    return facts[begin:end].decode(), end


def _json(text: str) -> Any:  # noqa: ANN401
    import json  # noqa: PLC0415

    return json.loads(text)


class _InBulk(StatefulProcessor):
    """The user's processor, with a handle whose values are read and written in bulk."""

    def __init__(self, users: StatefulProcessor) -> None:
        self._users = users
        self.handleInputRows = users.handleInputRows  # type: ignore[method-assign]
        self.handleInitialState = users.handleInitialState  # type: ignore[method-assign]
        self.handleExpiredTimer = users.handleExpiredTimer  # type: ignore[method-assign]
        self.close = users.close  # type: ignore[method-assign]

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._users.init(BulkHandle(handle._statefulProcessorApiClient))  # type: ignore[arg-type] # noqa: SLF001

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: ANN401, N802, N803
        raise NotImplementedError  # replaced in each instance


def _rows(
    batches: Iterable[pa.RecordBatch], key_offsets: tuple[int, ...], client: BulkClient
) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """Return each row with its key; tell the client the keys of each batch."""
    for batch in batches:
        made = Row(*batch.schema.names)
        columns = [column.to_pylist() for column in batch.columns]
        keys = list(zip(*(columns[offset] for offset in key_offsets), strict=True))
        client.set_chunk(key for key, _ in itertools.groupby(keys))
        for key, values in zip(keys, zip(*columns, strict=True), strict=True):
            yield key, made(*values)


def _results(
    udf: Callable[..., Iterator[Row]],
    client: BulkClient,
    rows: Iterator[tuple[tuple[Any, ...], Row]],
) -> Iterator[dict[str, Any]]:
    for key, group in itertools.groupby(rows, key=lambda pair: pair[0]):
        of_key = udf(client, Mode.PROCESS_DATA, key, (row for _, row in group))
        # All of them before the next key: they may read and write its state.
        yield from [row.asDict(recursive=True) for row in of_key]
    for mode in (Mode.PROCESS_TIMER, Mode.COMPLETE):
        for row in udf(client, mode, None, iter([])):
            yield row.asDict(recursive=True)


def _as_batches(results: Iterator[dict[str, Any]], return_type: StructType) -> _Batches:
    # As Spark's worker: times in UTC.
    arrow_type = to_arrow_type(return_type, timezone="UTC", prefers_large_types=False)
    schema = pa.schema(list(arrow_type))  # type: ignore[call-overload]
    while rows := list(itertools.islice(results, _OUTPUT_ROWS)):
        yield pa.RecordBatch.from_pylist(rows, schema=schema)
