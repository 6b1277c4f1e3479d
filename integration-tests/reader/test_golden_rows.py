"""The checkpoints of Spark's own tests, read whole: where Spark's source reads them, both agree.

Spark 2.1 to 4.0 wrote them. What the source of the Spark under test cannot read is listed here with
its error. The reader returns these rows all the same, or says why it does not.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import cairn
from cairn.errors import CairnError, NotThereError, UnsupportedStateError
from cairn.reader.checkpoint import Checkpoint
from harness.spark import CHECKPOINT_FORMAT, new_session
from harness.state_cases import compared, families_of, rows_by_key, rows_of, state_of
from harness.state_rows import rows_of_reader, rows_of_source, source_options

pytestmark = pytest.mark.usefixtures("driver")

GOLDEN = Path(__file__).resolve().parents[2] / ".build" / "golden-checkpoints"

NO_SCHEMA = "STDS_FAILED_TO_READ_STATE_SCHEMA"
"""Spark stores schemas since 3.1; those of its tests of 4.0 have the form of no release."""
NO_METADATA = "requirement failed"
"""The source needs the metadata that Spark 4.0 and later store, to list the stores of a join."""
WRONG_SCHEMA = "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE"
"""Before 3.4 the schema of `dropDuplicates` has columns that its values have not."""
NO_BATCH = "STDS_COMMITTED_BATCH_UNAVAILABLE"
"""Spark 2.1 had no commit log."""

Error = tuple[type[CairnError], str]
REFUSED: dict[str, tuple[str, dict[str, int], Error | None]] = {
    "2.1.0": (NO_BATCH, {}, (NotThereError, "not committed a batch")),
    "2.3.1-flatMapGroupsWithState-state-format-1": (NO_SCHEMA, {"default": 1}, None),
    "2.3.1-streaming-aggregate-state-format-1": (NO_SCHEMA, {"default": 2}, None),
    "2.3.1-without-commit-log-metadata": (NO_SCHEMA, {"default": 2}, None),
    "2.4.0-streaming-join": (
        NO_METADATA,
        {"left-keyToNumValues": 5, "left": 5, "right-keyToNumValues": 2, "right": 2},
        None,
    ),
    "2.4.5-for-compatibility-test-common-functions": (NO_SCHEMA, {"default": 5}, None),
    "2.4.5-for-compatibility-test-deduplicate": (NO_SCHEMA, {"default": 5}, None),
    "2.4.5-for-compatibility-test-statistical-functions": (NO_SCHEMA, {"default": 5}, None),
    "2.4.5-for-compatibility-test-sum-decimal": (NO_SCHEMA, {"default": 2}, None),
    "3.0.0-streaming-statestore-codec": (NO_SCHEMA, {"default": 3}, None),
    "3.2.0-deduplication-with-repartition": (WRONG_SCHEMA, {"default": 4}, None),
    "3.3.0-streaming-deduplication": (WRONG_SCHEMA, {"default": 2}, None),
    "4.0.0-tws-avro": (NO_SCHEMA, {}, (UnsupportedStateError, "without ids of their schemas")),
    "4.0.0-tws-unsaferow": (NO_SCHEMA, {"countState": 2}, None),
}
"""What the source says, and the rows per family that the reader returns, or its error."""


@dataclass
class Golden:
    """A checkpoint of Spark's tests; its name is its folder's, without what all have."""

    name: str
    folder: Path

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, as the reader opens it."""
        return cairn.open_checkpoint(str(self.folder))

    @property
    def spark(self) -> SparkSession:
        """A session for Spark's source: the checkpoint format is no setting of a batch."""
        return new_session({CHECKPOINT_FORMAT: "2" if "checkpoint-v2" in self.name else "1"})


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Golden]:
    """Return copies of the checkpoints by their names: nothing may write into the folder."""
    if not GOLDEN.is_dir():
        raise RuntimeError("there are no checkpoints of Spark's tests: run `make golden`")
    copy = tmp_path_factory.mktemp("golden") / "copy"
    shutil.copytree(GOLDEN, copy)
    found = {}
    for offsets in sorted(copy.rglob("offsets")):
        name = offsets.parent.relative_to(copy).as_posix().removeprefix("checkpoint-version-")
        found[name] = Golden(name, offsets.parent)
    return found


@pytest.mark.parametrize(
    ("batches", "counts"),
    [
        pytest.param(slice(-1, None), (23, 57, 227), id="newest"),
        pytest.param(slice(None), (23, 228, 918), id="all", marks=pytest.mark.slow),
    ],
)
def test_the_rows_are_those_of_sparks_source(
    golden: dict[str, Golden], batches: slice, counts: tuple[int, int, int]
) -> None:
    """A state of years ago would be shown with other values, or without some of its rows."""
    different, checkpoints, views, rows = [], 0, 0, 0
    for one in golden.values():
        if one.name in REFUSED:
            continue
        checkpoints += 1
        for batch in one.checkpoint.batches[batches]:
            for name, found, expected in compared(one.spark, one.checkpoint, batch):
                if difference := found.difference(expected):
                    different.append(f"{one.name}, batch {batch}, {name}: {difference}")
                views, rows = views + 1, rows + len(expected.rows)

    assert not different, "\n".join(different)
    assert (checkpoints, views, rows) == counts


@pytest.mark.parametrize("name", REFUSED)
def test_what_sparks_source_refuses_is_read_or_refused_with_the_reason(
    golden: dict[str, Golden], name: str
) -> None:
    """The reader is of use where Spark has none. Where it has none itself, it says why."""
    one, (reason, rows, error) = golden[name], REFUSED[name]

    if error is None:
        families = list(families_of(one.checkpoint))
        found = {family.name: len(rows_of(one.checkpoint, family).rows) for family in families}
        assert found == rows
        options = source_options(families[0]) or {}
    else:
        with pytest.raises(error[0], match=error[1]):
            rows_of(one.checkpoint, next(families_of(one.checkpoint)))
        options = {"stateVarName": "countState"} if "tws" in name else {}
    # The condition of a task's failure is in its text alone.
    with pytest.raises((PySparkException, Py4JJavaError), match=reason):
        rows_of_source(one.spark, str(one.folder), options, 0)


def test_a_key_has_the_rows_that_it_has_in_the_whole_state(golden: dict[str, Golden]) -> None:
    """Where Spark's hash does not lead to a key, as before 3.3, `get` must not miss it."""
    keys = 0
    for one in golden.values():
        if one.name in REFUSED and REFUSED[one.name][2] is not None:
            continue
        for family in families_of(one.checkpoint):
            state = state_of(one.checkpoint, family)
            for key, rows in rows_by_key(state):
                assert not rows_of_reader(state.get(key)).difference(rows), (one.name, key)
                keys += 1

    assert keys == 216
