"""A checkpoint that a person rolled back, or copied while the query ran."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from harness.clear_errors import assert_clear
from harness.differential import Rows, Run, forget_batches
from harness.events import Events
from harness.operators import BY_NAME, StateView
from harness.spark import CONTROL, STATE_STORE, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

OPERATOR = BY_NAME["totals_complete"]
FILES = 6
RETAINED = 4
CONF = {
    "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
    STATE_STORE + "minVersionsToDelete": "1",
    STATE_STORE + "minDeltasForSnapshot": "2",
}
VIEW = StateView()
TOTAL = re.compile(r"\bk=(-?\w+)\b.*?\b(?:sum|total)=(-?\w+)")
FOLDERS = ("commits", "metadata", "offsets", "sources", "state")


@pytest.mark.parametrize("checkpoint_format", [1, 2], ids=["format1", "format2"])
def test_a_query_that_was_rolled_back_by_hand_repeats_its_batches(
    tmp_path: Path, checkpoint_format: int
) -> None:
    """The objects of the batches that are run again exist already, and snapshots of them."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    runs = [
        Run(OPERATOR, events, str(tmp_path / name), provider, checkpoint_format, CONF)
        for name, provider in (("subject", SUBJECT), ("control", CONTROL))
    ]
    for run in runs:
        run.advance()
        roll_back(run, FILES - RETAINED)  # the oldest batch whose version is retained
        # Spark has forgotten which files were in which batch: the next one has all of them.
        run.advance()
        roll_back(run, FILES - RETAINED)
    events.add_files(FILES, 1)

    for run in runs:
        run.advance()

    subject, control = runs
    assert subject.record.rows == control.record.rows
    last = FILES - RETAINED + 1
    assert committed(control) == last
    # In format 1 Spark's provider may show the state of a batch that was rolled back.
    assert totals(subject.state(VIEW, batchId=last)) == totals(subject.record.rows[last])
    if checkpoint_format == 2:
        assert subject.state(VIEW, batchId=last) == control.state(VIEW, batchId=last)


def totals(rows: Rows) -> dict[str, str]:
    """Return the total of each key, in rows of the sink or of the state."""
    found = [match for match in map(TOTAL.search, rows) if match]
    assert len(found) == len(rows)
    return {match[1]: match[2] for match in found}


def roll_back(run: Run, batch: int) -> None:
    """Delete the newer entries of both logs."""
    for log in ("offsets", "commits"):
        forget_batches(Path(run.checkpoint), log, batch + 1)


def committed(run: Run) -> int:
    """Return the newest batch in the log of commits."""
    names = [path.name for path in Path(run.checkpoint, "commits").iterdir()]
    return max(int(name) for name in names if name.isdigit())


@pytest.mark.parametrize(
    ("checkpoint_format", "batches"),
    [
        (2, (2, 2, 2, 2, 2)),
        pytest.param(2, (2, 2, 3, 3, 4), marks=pytest.mark.slow),
        pytest.param(1, (2, 2, 2, 2, 2), marks=pytest.mark.slow),
        pytest.param(1, (2, 2, 3, 3, 4), marks=pytest.mark.slow),
    ],
    ids=["format2", "format2-slowly", "format1", "format1-slowly"],
)
def test_a_query_starts_from_a_copy_that_was_made_while_it_ran(
    tmp_path: Path, checkpoint_format: int, batches: tuple[int, ...]
) -> None:
    """The copy has the folders as they were in these batches, in the order of names.

    If its log of offsets is two batches ahead, Spark passes ids of another version in format 2.
    """
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    copy = tmp_path / "copy"
    whole = Run(OPERATOR, events, str(tmp_path / "whole"), SUBJECT, checkpoint_format, CONF)

    def copy_folders(batch: int) -> None:
        for folder, of in zip(FOLDERS, batches, strict=True):
            if of != batch:
                continue
            source = Path(whole.checkpoint, folder)
            if source.is_dir():
                # A provider's maintenance may be renaming its temporary files.
                ignore = shutil.ignore_patterns("*.tmp", "*.tmp.crc")
                shutil.copytree(source, copy / folder, ignore=ignore)
            else:
                copy.mkdir(exist_ok=True)
                shutil.copy(source, copy / folder)

    whole.before_batch = {batch: partial(copy_folders, batch) for batch in range(FILES)}
    whole.advance()
    again = Run(OPERATOR, events, str(copy), SUBJECT, checkpoint_format, CONF)

    first = max(int(path.name) for path in (copy / "offsets").iterdir() if path.name.isdigit())
    if checkpoint_format == 2 and first > 2:
        with pytest.raises(StreamingQueryException) as failure:
            again.advance()
        assert not again.record.rows
        assert_clear(str(failure.value), "CAIRN_MISSING", "offsets")
        forget_batches(copy, "offsets", 3)
        first = 2
    again.advance()

    assert min(again.record.rows) == first
    assert again.record.rows[first] == whole.record.rows[first]
    # The source's log may be ahead of that of offsets: Spark then reads two files in one batch.
    last, again_last = whole.record.last_batch, again.record.last_batch
    assert again.record.rows[again_last] == whole.record.rows[last]
    assert again.state(VIEW, batchId=again_last) == whole.state(VIEW, batchId=last)
