"""The function that Spark's Python worker runs for `transformWithState` in bulk.

Spark runs it as a function of `mapInArrow`. It calls the user's processor as Spark's own worker
does, for the rows of one key after another; its rows leave in batches of many keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState
from pyspark.sql.streaming.stateful_processor_util import (
    TransformWithStateInPandasFuncMode as Mode,
)
from pyspark.sql.types import StructType
from pyspark.worker_util import read_command

from cairn.transform.facts import Facts
from cairn.transform.handle import BulkHandle
from cairn.transform.timers import BulkClient

_Batches = Iterator[pa.RecordBatch]


def load(function: bytes, facts: bytes) -> tuple[Callable[[_Batches], _Batches], StructType]:
    """Return the function for the worker, and the type of its rows; the shim's pickle calls it.

    Args:
        function: the pickle of the user's function, as Spark's operator has it.
        facts: the facts of the task, as JSON.
    """
    udf, return_type = read_command(CPickleSerializer(), function)
    told = Facts.of_json(facts)
    loop = _loop(told, return_type)
    utils = udf.__self__
    utils._stateful_processor = _InBulk(utils._stateful_processor)  # noqa: SLF001

    def run(batches: _Batches) -> _Batches:
        client = BulkClient(told.socket, told.key_schema)
        try:
            if told.initial_key_offsets:
                results = _results_with_initial(udf, client, loop, batches)
            else:
                results = _results(udf, client, loop, batches)
            yield from loop.batches(results)
        finally:
            client.close()

    return run, return_type


def _loop(facts: Facts, return_type: StructType) -> Any:  # noqa: ANN401 - of rows or frames
    # Rows need no pandas.
    if facts.is_pandas:
        from cairn.transform.frame_loop import FrameLoop  # noqa: PLC0415

        return FrameLoop(facts, return_type)
    from cairn.transform.row_loop import RowLoop  # noqa: PLC0415

    return RowLoop(facts, return_type)


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


def _results(
    udf: Callable[..., Iterator[Any]],
    client: BulkClient,
    loop: Any,  # noqa: ANN401 - of rows or frames
    batches: _Batches,
) -> Iterator[Any]:
    # What Spark's function does for a key, once the processor is ready.
    handle = udf.__self__._handle_data_rows  # type: ignore[attr-defined] # noqa: SLF001
    for key, rows in loop.groups(batches, client):
        if client.handle_state == StatefulProcessorHandleState.INITIALIZED:
            of_key = handle(client, key, rows)
        else:
            of_key = udf(client, Mode.PROCESS_DATA, key, rows)
        yield from loop.results(of_key)
    yield from _last_results(udf, client, loop)


def _results_with_initial(
    udf: Callable[..., Iterator[Any]],
    client: BulkClient,
    loop: Any,  # noqa: ANN401 - of rows or frames
    batches: _Batches,
) -> Iterator[Any]:
    for key, rows, initial in loop.groups_with_initial(batches):
        yield from loop.results(udf(client, Mode.PROCESS_DATA, key, rows, initial))
    yield from _last_results(udf, client, loop)


def _last_results(
    udf: Callable[..., Iterable[Any]],
    client: BulkClient,
    loop: Any,  # noqa: ANN401 - of rows or frames
) -> Iterator[Any]:
    for mode in (Mode.PROCESS_TIMER, Mode.COMPLETE):
        yield from loop.results(udf(client, mode, None, iter([])))
