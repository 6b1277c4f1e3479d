"""Frames of `transformWithStateInPandas`: as Spark's worker makes them, of tuples of one key."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.conversion import ArrowBatchTransformer
from pyspark.sql.types import LongType, StringType, StructType

from cairn.transform.facts import Facts
from cairn.transform.frame_loop import FrameLoop

KEY_SCHEMA = StructType().add("k", LongType())
START = datetime(2026, 1, 1, tzinfo=UTC)


class Chunks:
    """Notes the keys that the loop tells the client."""

    def __init__(self) -> None:
        self.keys: list[list[Any]] = []

    def set_chunk(self, keys: list[Any]) -> None:
        self.keys.append(keys)


def facts(width: int, **conf: str) -> Facts:
    """Return the facts of a task whose first column is the key."""
    told = {
        "socket": "",
        "keySchema": KEY_SCHEMA.jsonValue(),
        "keyOffsets": [0],
        "valueOffsets": list(range(width)),
        "initialKeyOffsets": [],
        "isPandas": True,
        "conf": {"spark.sql.session.timeZone": "Europe/Berlin", **conf},
    }
    return Facts.of_json(json.dumps(told).encode())


def a_batch(chance: random.Random, keys: list[int], *, null_one_in: int) -> pa.RecordBatch:
    """Return a batch with columns of many types."""

    def column(value: Any, kind: pa.DataType) -> pa.Array[Any]:  # noqa: ANN401
        return pa.array(
            [None if not chance.randrange(null_one_in) else value(i) for i in range(len(keys))],
            kind,
        )

    columns = {
        "k": pa.array(keys, pa.int64()),
        "tiny": column(lambda i: i % 100, pa.int8()),
        "number": column(lambda i: i, pa.int32()),
        "short float": column(lambda i: i / 3, pa.float32()),
        "flag": column(lambda i: i % 3 == 0, pa.bool_()),
        "text": column(str, pa.string()),
        "day": column(lambda i: date(2026, 1, 1) + timedelta(days=i), pa.date32()),
        "price": column(lambda i: Decimal(i) / 4, pa.decimal128(10, 2)),
        "time": column(lambda i: START + timedelta(hours=i), pa.timestamp("us", tz="UTC")),
        "raw": column(lambda i: bytes([i % 256]), pa.binary()),
        "many": column(lambda i: [i, None], pa.list_(pa.int64())),
        "both": column(lambda i: {"a": i}, pa.struct([("a", pa.int64())])),
    }
    return pa.RecordBatch.from_pydict(columns)


def of_tuples(of_task: Facts, batches: list[pa.RecordBatch], limit: int) -> Iterator[Any]:
    """Return the frames as Spark's worker makes them."""

    def rows() -> Iterator[tuple[Any, Any]]:
        for batch in batches:
            series = ArrowBatchTransformer.to_pandas(
                batch,
                timezone=of_task.conf.timezone or "UTC",
                prefer_int_ext_dtype=of_task.conf.prefer_int_ext_dtype,
            )
            for row in pd.concat(series, axis=1).itertuples(index=False):
                yield (row[0],), row

    for key, group in itertools.groupby(rows(), key=lambda pair: pair[0]):
        of_key = [row for _, row in group]
        for first in range(0, len(of_key), limit):
            yield key, pd.DataFrame(of_key[first : first + limit])


@pytest.mark.parametrize("null_one_in", [3, 40, 10**9])
@pytest.mark.parametrize("limit", [4, 10_000])
def test_frames_equal_those_of_tuples(null_one_in: int, limit: int) -> None:
    """With all types of columns, also where a key has only nulls, or goes on in the next batch."""
    chance = random.Random(f"{null_one_in}/{limit}")
    keys = sorted(chance.randrange(60) for _ in range(300)) + [90] * 50
    batches = [
        a_batch(chance, keys[first : first + 40], null_one_in=null_one_in)
        for first in range(0, len(keys), 40)
    ]
    made = facts(
        batches[0].num_columns, **{"spark.sql.execution.arrow.maxRecordsPerBatch": str(limit)}
    )
    loop = FrameLoop(made, KEY_SCHEMA)
    client = Chunks()

    groups = [
        (key, frame)
        for key, frames in loop.groups(iter(batches), client)  # type: ignore[arg-type]
        for frame in frames
    ]

    expected = list(of_tuples(made, batches, limit))
    assert [key for key, _ in groups] == [key for key, _ in expected]
    for (_, frame), (_, other) in zip(groups, expected, strict=True):
        pd.testing.assert_frame_equal(frame, other)
        assert [list(map(type, frame[name])) for name in frame] == [
            list(map(type, other[name])) for name in other
        ]


def test_the_client_knows_each_key_before_its_frames_come() -> None:
    """A key whose last rows are in the next batch is named in that batch's chunk, too."""
    batches = [
        pa.RecordBatch.from_pydict(
            {"k": pa.array(keys, pa.int64()), "v": pa.array(keys, pa.int64())}
        )
        for keys in ([1, 1, 2, 3], [3, 3, 4], [5, 5])
    ]
    client = Chunks()

    of_keys = []
    for key, frames in FrameLoop(facts(2), KEY_SCHEMA).groups(iter(batches), client):  # type: ignore[arg-type]
        assert any(key is named for named in client.keys[-1])
        of_keys.append((key, sum(map(len, frames))))

    assert of_keys == [((1,), 2), ((2,), 1), ((3,), 3), ((4,), 1), ((5,), 2)]
    assert [len(keys) for keys in client.keys] == [3, 2, 2]


def test_a_part_of_a_batch_with_one_kind_of_object_gets_its_type() -> None:
    """A column of booleans with a null is one of objects; without a null a frame's is boolean."""
    batch = pa.RecordBatch.from_pydict(
        {"k": [1, 1, 2, 2, 3], "flag": [True, False, None, True, None]}
    )

    frames = [
        frame
        for _, of_key in FrameLoop(facts(2), KEY_SCHEMA).groups(iter([batch]), Chunks())  # type: ignore[arg-type]
        for frame in of_key
    ]

    assert [str(frame["flag"].dtype) for frame in frames] == ["bool", "object", "object"]


RETURNED = StructType().add("k", LongType()).add("text", StringType())


def test_results_of_many_keys_come_in_one_batch() -> None:
    """Columns are found by their names, also where a frame has them in another order."""
    frames = [pd.DataFrame({"k": [i], "text": [str(i)]}) for i in range(5)]
    frames.append(pd.DataFrame({"text": ["x", None], "k": np.array([8, 9], np.int32)}))

    batches = list(FrameLoop(facts(2), RETURNED).batches(iter(frames)))

    assert [batch.num_rows for batch in batches] == [5, 2]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"k": i, "text": str(i)} for i in range(5)] + [
        {"k": 8, "text": "x"},
        {"k": 9, "text": None},
    ]


def test_a_processor_may_change_a_frame_that_it_has_given() -> None:
    """Spark has converted it before the processor goes on."""

    def processor() -> Iterator[pd.DataFrame]:
        frame = pd.DataFrame({"k": [0], "text": ["a"]})
        for number in range(3):
            frame.loc[0, "k"] = number
            yield frame

    loop = FrameLoop(facts(2), RETURNED)

    (batch,) = loop.batches(loop.results(processor()))

    assert batch.column("k").to_pylist() == [0, 1, 2]


def test_frames_that_need_different_casts_come_apart() -> None:
    """Texts that are numbers are cast as Spark casts them: each frame by itself."""
    frames = [
        pd.DataFrame({"k": np.array(["1"], object), "text": ["a"]}),
        pd.DataFrame({"k": np.array([2], object), "text": ["b"]}),
    ]

    batches = list(FrameLoop(facts(2), RETURNED).batches(iter(frames)))

    assert [batch.column("k").to_pylist() for batch in batches] == [[1], [2]]


def test_a_result_that_is_no_frame_is_refused() -> None:
    """With the words of Spark."""
    loop = FrameLoop(facts(2), RETURNED)

    with pytest.raises(ValueError, match="Invalid return type"):
        list(loop.results(iter([1])))
