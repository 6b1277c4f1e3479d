"""The checkpoint is on HDFS: same results, killed workers and drivers, retention."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.storage.base import ObjectStore
from cairn.storage.hadoop.server import FileServer
from cairn.storage.open import open_store
from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.job import KILL_AFTER_BATCH, Query, continue_after_a_kill
from harness.operators import BY_NAME, StateView
from harness.processes import engines_of, wait_until
from harness.spark import CAIRN_CONF, CONTROL, STATE_STORE, SUBJECT, driver_pid

pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.hdfs]

FILES = 5
NEXT_COMMIT_S = 30.0
# One DataNode cannot have Spark's default of three copies.
CONF = {"dfs.replication": "1"}
FEW_RETAINED = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    STATE_STORE + "minVersionsToDelete": "1",
    CAIRN_CONF + "orphanGraceMs": "0",
}


@pytest.fixture
def location(hdfs_url: str) -> str:
    """A checkpoint location for one test."""
    return f"{hdfs_url}/{uuid.uuid4().hex}/query"


@pytest.fixture
def files(location: str, hdfs_files: FileServer) -> Iterator[ObjectStore]:
    """The files at that location."""
    with open_store(location, hdfs_files.settings, hdfs_files.connections) as store:
        yield store


def names(files: ObjectStore, part: str) -> list[str]:
    """Return the names of the files whose paths have a part."""
    return [info.key for info in files.list("") if part in info.key]


@pytest.mark.parametrize(
    ("operator", "checkpoint_format"),
    [
        ("windows_update", 1),
        pytest.param("windows_update", 2, marks=pytest.mark.slow),
        pytest.param("join_left_outer_v2", 1, marks=pytest.mark.slow),
    ],
)
def test_an_operator_has_the_rows_counts_and_state_of_sparks_provider(
    operator: str, checkpoint_format: int, location: str, files: ObjectStore, tmp_path: Path
) -> None:
    """The storage must not change a result, also not after a restart and in the state reader.

    After the restart workers are killed in every batch: a worker that dies in the middle of a
    request must not harm the executor's file system.
    """
    events = Events(tmp_path / "input")
    subject = Run(BY_NAME[operator], events, location, SUBJECT, checkpoint_format, CONF)
    run = Run(BY_NAME[operator], events, str(tmp_path / "control"), CONTROL)
    control = Control(f"hdfs/{operator}-format{checkpoint_format}", run)
    killed: list[int] = []

    def kill() -> None:
        for engine in engines_of(driver_pid()):
            engine.kill()
            killed.append(engine.pid)

    for first, count in ((0, 3), (3, 2)):
        events.add_files(first, count)
        subject.advance()
        control.advance()
        subject.before_batch = dict.fromkeys(range(control.record.last_batch + 1, 20), kill)

    assert killed, "there was no worker to kill"
    assert subject.record.rows == control.record.rows
    assert subject.record.counts == control.record.counts
    for view in BY_NAME[operator].views:
        assert subject.state(view) == control.state(view)
    assert names(files, "/changelog/")
    assert names(files, "/snapshot/")


@pytest.mark.slow
def test_a_mount_table_leads_to_hdfs(location: str, files: ObjectStore, tmp_path: Path) -> None:
    """Large companies give their jobs names of viewfs, so that a cluster can move."""
    events = Events(tmp_path / "input")
    events.add_files(0, 3)
    conf = {**CONF, "fs.viewfs.mounttable.here.link./cp": location.rpartition("/")[0]}
    subject = Run(BY_NAME["windows_update"], events, "viewfs://here/cp/query", SUBJECT, 1, conf)
    control = Run(BY_NAME["windows_update"], events, str(tmp_path / "control"), CONTROL)

    subject.advance()
    control.advance()

    assert subject.record.rows == control.record.rows
    assert names(files, "/changelog/")


@pytest.mark.parametrize("checkpoint_format", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_query_continues_after_its_driver_was_killed(
    checkpoint_format: int, location: str, files: ObjectStore, tmp_path: Path
) -> None:
    """The batch that was cut runs again; in format 1 it meets the changelogs of the first run."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    query = Query("distinct", events, location, SUBJECT, checkpoint_format, CONF)

    def await_next_commit() -> None:
        # The next batch has committed its state, and its sink waits.
        version = re.compile(rf"{KILL_AFTER_BATCH + 2}[_.]")
        wait_until(
            lambda: any(
                version.match(name.rpartition("/")[2]) for name in names(files, "/changelog/")
            ),
            NEXT_COMMIT_S,
            "the next commit",
        )

    job = continue_after_a_kill(query, tmp_path, await_next_commit)

    assert job.all_rows() == query.batch_rows()
    if checkpoint_format == 1:
        replaced = [name for name in names(files, "/changelog/") if "_" in name.rpartition("/")[2]]
        assert replaced, "no changelog of the first run was replaced"


@pytest.mark.slow  # recovery/test_versions.py has it for local files in `make test`.
def test_retention_deletes_what_no_retained_version_needs(
    location: str, files: ObjectStore, tmp_path: Path
) -> None:
    """A checkpoint that only grows fills the file system."""
    events = Events(tmp_path / "input")
    events.add_files(0, 9)
    conf = {**CONF, **FEW_RETAINED}
    control = Run(BY_NAME["windows_update"], events, str(tmp_path / "control"), CONTROL)
    control.advance()
    run = Run(BY_NAME["windows_update"], events, location, SUBJECT, 2, conf)

    run.advance()

    store = "state/0/0/"
    versions = [
        int(name.rpartition("/")[2].split("_")[0]) for name in names(files, store + "changelog/")
    ]
    assert versions
    assert min(versions) > 1, "the first changelog is still there"
    assert max(versions) == run.record.last_batch + 1
    second = Run(BY_NAME["windows_update"], events, location, SUBJECT, 2, conf)
    events.add_files(9, 1)
    second.advance()
    control.advance()
    assert {**run.record.rows, **second.record.rows} == control.record.rows
    assert second.state(StateView()) == control.state(StateView())
