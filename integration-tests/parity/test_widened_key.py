"""A key column became wider, from int to bigint, and Spark's checks of schemas are off.

Spark's provider goes on with keys whose bytes do not match those of the same number that are
stored: their state is lost without a word. Cairn refuses the query.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from harness.differential import Run
from harness.events import Events
from harness.operators import Operator
from harness.spark import CONTROL, STATE_STORE, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

UNCHECKED = {
    STATE_STORE + "stateSchemaCheck": "false",
    STATE_STORE + "formatValidation.enabled": "false",
}


def counts(key_type: str) -> Operator:
    """Return a count per key. All keys are negative: of these an int has other bytes."""

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        keys = left.where("k is not null").selectExpr(f"cast(-1 - k as {key_type}) key")
        return keys.groupBy("key").count()

    return Operator("counts", plan, "update", UNCHECKED)


def test_a_wider_key_is_refused_where_sparks_provider_loses_the_state(tmp_path: Path) -> None:
    """A count that begins anew is a wrong row, and no error says so."""
    events = Events(tmp_path / "input")

    def new_run(name: str, key_type: str, provider: str) -> Run:
        return Run(counts(key_type), events, str(tmp_path / name), provider, 2)

    subject, spark = new_run("subject", "int", SUBJECT), new_run("spark", "int", CONTROL)
    right = new_run("right", "bigint", CONTROL)
    for first in (0, 1):
        events.add_files(first, 1)
        right.advance()
        if first == 0:
            subject.advance()
            spark.advance()

    replace(spark, operator=counts("bigint")).advance()
    with pytest.raises(StreamingQueryException) as failure:
        replace(subject, operator=counts("bigint")).advance()
    subject.advance()

    text = str(failure.value)
    assert "[CAIRN_SCHEMA_MISMATCH]" in text
    assert "has keys of struct<int>, but the query declares struct<bigint>" in text
    assert "Next: cast the keys to the stored types" in text
    assert spark.record.rows[1] != right.record.rows[1], "Spark's provider finds the old keys now"
    assert subject.record.rows == right.record.rows
