"""A disk is full: one clear error and no partial object; the query continues with free space."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from harness.clear_errors import assert_clear
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import CAIRN_CONF, CONTROL, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

DISK_MIB = 8
BALLAST = "ballast"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of a few MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=0700", "cairn-test", str(disk)]
    mounted = subprocess.run(["mount", *options], check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"this machine mounts no tmpfs: {mounted.stderr.strip()}")
    yield disk
    # Lazily: an engine may still have open files there.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> None:
    """Fill the disk to the last byte."""
    with (disk / BALLAST).open("wb", buffering=0) as ballast:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    ballast.write(b"\1" * size)
            except OSError:
                continue


def test_a_full_checkpoint_disk_fails_the_batch_and_nothing_else(
    small_disk: Path, tmp_path: Path
) -> None:
    """A commit without space must leave no object that a later load would read as a version."""
    events = Events(tmp_path / "input")
    events.add_files(0, 2)
    run = Run(BY_NAME["windows_update"], events, str(tmp_path / "checkpoint"), SUBJECT)
    control = Run(run.operator, events, str(tmp_path / "control"), CONTROL)
    for each in (run, control):
        each.advance()
    move_store_to(small_disk, Path(run.checkpoint, "state", "0", "1"))
    fill(small_disk)
    events.add_files(2, 2)
    control.advance()

    with pytest.raises(StreamingQueryException) as failure:
        run.advance()
    (small_disk / BALLAST).unlink()
    run.advance()

    assert_clear(str(failure.value), "CAIRN_DISK_FULL")
    assert run.record.rows == control.record.rows


def move_store_to(disk: Path, store: Path) -> None:
    """Move one partition's state to its own disk and link to it."""
    shutil.copytree(store, disk / "store")
    shutil.rmtree(store)
    store.symlink_to(disk / "store")


def test_a_full_local_disk_fails_the_batch_and_nothing_else(
    small_disk: Path, tmp_path: Path
) -> None:
    """Executors' disks fill up; committed state is safe, so an executor with space continues."""
    events = Events(tmp_path / "input")
    events.add_files(0, 3)
    checkpoint = str(tmp_path / "checkpoint")
    fill(small_disk)
    conf = {CAIRN_CONF + "localDir": str(small_disk)}
    run = Run(BY_NAME["windows_update"], events, checkpoint, SUBJECT, conf=conf)
    control = Run(run.operator, events, str(tmp_path / "control"), CONTROL)
    control.advance()

    with pytest.raises(StreamingQueryException) as failure:
        run.advance()
    run.conf = {}
    run.advance()

    assert_clear(str(failure.value), "CAIRN_DISK_FULL")
    assert run.record.rows == control.record.rows
