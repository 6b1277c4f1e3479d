"""What the operator tells the worker of one task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType
from pyspark.worker import RunnerConf

_UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class Facts:
    """The facts of a task.

    Attributes:
        socket: path of the socket of the state.
        key_schema: schema of the grouping key.
        key_offsets: numbers of the key's columns in the rows.
        value_offsets: numbers of those of the columns that the processor gets, if it has frames.
        initial_key_offsets: the same of the rows of the initial state; empty without one.
        is_pandas: whether the processor has frames.
        conf: Spark's settings of a worker.
        max_records: rows of a frame, or of the rows of one call with initial state.
        max_bytes: bytes of a frame, as Arrow has them.
    """

    socket: str
    key_schema: StructType
    key_offsets: list[int]
    value_offsets: list[int]
    initial_key_offsets: list[int]
    is_pandas: bool
    conf: RunnerConf
    max_records: int
    max_bytes: int

    @classmethod
    def of_json(cls, text: bytes) -> Facts:
        """Return the facts that `BulkTask` has written."""
        told = json.loads(text)
        conf = RunnerConf(told["conf"])
        records = conf.arrow_max_records_per_batch
        return cls(
            socket=told["socket"],
            key_schema=StructType.fromJson(told["keySchema"]),
            key_offsets=told["keyOffsets"],
            value_offsets=told["valueOffsets"],
            initial_key_offsets=told["initialKeyOffsets"],
            is_pandas=told["isPandas"],
            conf=conf,
            max_records=records if records > 0 else _UNLIMITED,
            max_bytes=conf.arrow_max_bytes_per_batch,
        )

    def structs(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, list[int], bool]]:
        """Return the rows of batches that have either rows or rows of the initial state.

        With them the numbers of the key's columns, and whether they are of the initial state.
        """
        for batch in batches:
            for name, offsets in (
                ("inputData", self.key_offsets),
                ("initState", self.initial_key_offsets),
            ):
                struct: Any = batch.column(name)
                if struct.null_count < len(struct):
                    names = [field.name for field in struct.type]
                    columns = [struct.field(place) for place in range(len(names))]
                    yield pa.RecordBatch.from_arrays(columns, names), offsets, name == "initState"
