"""A disk is full: one clear error and no partial object; the query continues with free space."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from harness.clear_errors import assert_clear
from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.small_disk import SmallDisk, mounted_disk
from harness.spark import CAIRN_CONF, CONTROL, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

DISK_MIB = 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Mount a file system of a few MiB."""
    with mounted_disk(tmp_path / "disk", DISK_MIB) as mounted:
        yield mounted


def test_a_full_checkpoint_disk_fails_the_batch_and_nothing_else(
    disk: SmallDisk, tmp_path: Path
) -> None:
    """A commit without space must leave no object that a later load would read as a version."""
    events = Events(tmp_path / "input")
    events.add_files(0, 2)
    run = Run(BY_NAME["windows_update"], events, str(tmp_path / "checkpoint"), SUBJECT)
    other = Run(run.operator, events, str(tmp_path / "control"), CONTROL)
    control = Control("disk-full/checkpoint-disk", other)
    run.advance()
    control.advance()
    move_store_to(disk.path, Path(run.checkpoint, "state", "0", "1"))
    events.add_files(2, 2)
    control.advance()

    with disk.kept_full(), pytest.raises(StreamingQueryException) as failure:
        run.advance()
    run.advance()

    assert_clear(str(failure.value), "CAIRN_DISK_FULL")
    assert run.record.rows == control.record.rows


def move_store_to(disk: Path, store: Path) -> None:
    """Move one partition's state to its own disk and link to it."""
    shutil.copytree(store, disk / "store")
    shutil.rmtree(store)
    store.symlink_to(disk / "store")


def test_a_full_local_disk_fails_the_batch_and_nothing_else(
    disk: SmallDisk, tmp_path: Path
) -> None:
    """Executors' disks fill up; committed state is safe, so an executor with space continues."""
    events = Events(tmp_path / "input")
    events.add_files(0, 2)
    checkpoint = str(tmp_path / "checkpoint")
    conf = {CAIRN_CONF + "localDir": str(disk.path)}
    run = Run(BY_NAME["windows_update"], events, checkpoint, SUBJECT, conf=conf)
    other = Run(run.operator, events, str(tmp_path / "control"), CONTROL)
    control = Control("disk-full/local-disk", other)
    run.advance()
    control.advance()
    committed = dict(run.record.rows)
    events.add_files(2, 2)
    control.advance()

    with disk.kept_full(), pytest.raises(StreamingQueryException) as failure:
        run.advance()
    run.conf = {}
    run.advance()

    assert_clear(str(failure.value), "CAIRN_DISK_FULL")
    assert committed
    assert run.record.rows == control.record.rows
