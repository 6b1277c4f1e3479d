"""Retained versions load unchanged; older ones are deleted, and loading them is an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.clear_errors import assert_clear
from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME, StateView
from harness.spark import CAIRN, CAIRN_CONF, CONTROL, STATE_STORE, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

VIEW = StateView()
RETAINED = 3
KEEP_FEW = {
    "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
    STATE_STORE + "minVersionsToDelete": "1",
    CAIRN_CONF + "orphanGraceMs": "0",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Control]:
    """Return long runs of both providers: the subject retains three batches, the control all.

    Spark also purges its own logs of the first batches. They are restored, so that only the state
    of these batches is missing.
    """
    folder = tmp_path_factory.mktemp("retained")
    events = Events(folder / "input", rows_per_file=30)
    subject = Run(
        BY_NAME["windows_update"], events, str(folder / "subject"), SUBJECT, conf=KEEP_FEW
    )
    run = Run(subject.operator, events, str(folder / "control"), CONTROL)
    control = Control("versions", run)
    for first, count in ((0, 2), (2, 12)):
        events.add_files(first, count)
        subject.advance()
        control.advance()
        if first == 0:
            for log in ("offsets", "commits"):
                shutil.copytree(folder / "subject" / log, folder / "kept" / log)
    shutil.copytree(folder / "kept", folder / "subject", dirs_exist_ok=True)
    return subject, control


def test_each_retained_version_is_unchanged(pair: tuple[Run, Control]) -> None:
    """A query that is rolled back to a retained batch needs the state of that batch."""
    subject, control = pair
    last = control.record.last_batch

    for batch in range(last - RETAINED + 1, last + 1):
        assert subject.state(VIEW, batchId=batch) == control.state(VIEW, batchId=batch), batch


def test_state_beyond_retention_is_deleted(pair: tuple[Run, Control]) -> None:
    """Users pay for the objects of a checkpoint: it must not grow forever."""
    subject, _ = pair

    kept = changelog_versions(subject)

    assert min(kept) > 1, kept
    assert len(kept) < max(kept), kept


def test_loading_a_version_beyond_retention_is_an_error(pair: tuple[Run, Control]) -> None:
    """A request for an old version must never return no rows, or those of another version."""
    subject, _ = pair

    with pytest.raises(Exception) as failure:  # noqa: PT011 - py4j's class; the text is checked
        subject.state(VIEW, batchId=0)

    assert_clear(str(failure.value), "CAIRN_MISSING", "changelog/1.arrow")


def test_the_query_continues_after_retention(pair: tuple[Run, Control]) -> None:
    """Retention must not delete what the next start needs."""
    subject, control = pair
    subject.events.add_files(14, 1)

    subject.advance()
    control.advance()

    assert subject.record.rows == control.record.rows


def changelog_versions(run: Run) -> list[int]:
    """List the versions of partition 0 with a changelog in the checkpoint."""
    folder = Path(run.checkpoint, "state", "0", "0")
    paths = folder.glob("changelog/*.arrow" if CAIRN == SUBJECT else "*.changelog")
    return sorted({int(path.stem.partition("_")[0]) for path in paths})
