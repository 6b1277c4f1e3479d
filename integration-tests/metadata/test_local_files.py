"""The checkpoint file manager in a local folder, beside Spark's own manager."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from cairn.storage.files import NO_LINK_ERRNOS
from harness.checkpoint_files import CheckpointFiles, causes
from harness.differential import Run
from harness.events import Events
from harness.faulty_mount import faulty_mount
from harness.operators import BY_NAME
from harness.spark import CAIRN_FILES, SUBJECT, driver_log

if TYPE_CHECKING:
    from pathlib import Path

LOCAL_FILES = "io.cairn.spark.metadata.LocalCheckpointFiles"

pytestmark = pytest.mark.usefixtures("driver")

SPARKS_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
)


@pytest.fixture
def log(tmp_path: Path) -> CheckpointFiles:
    """Cairn's manager of a log's folder."""
    return CheckpointFiles(f"file://{tmp_path}/offsets", {}).open_log()


def of_spark(log: CheckpointFiles) -> CheckpointFiles:
    """Return Spark's manager of the same folder."""
    return CheckpointFiles(log.folder, {}, manager=SPARKS_MANAGER)


def on_disk(tmp_path: Path) -> dict[str, bytes]:
    """Return every file of the log, hidden ones too."""
    return {file.name: file.read_bytes() for file in (tmp_path / "offsets").iterdir()}


def test_a_file_appears_whole_and_leaves_nothing_else(log: CheckpointFiles, tmp_path: Path) -> None:
    """A reader must never see a part of an entry, and old temporary files would pile up."""
    stream = log.begin("0", b"v1\n")
    assert not log.exists("0")
    assert log.names() == [name for name in on_disk(tmp_path) if name.endswith(".tmp")]

    stream.write(b"{}")
    stream.close()

    assert on_disk(tmp_path) == {"0": b"v1\n{}"}


@pytest.mark.parametrize("mask", ["000", "077"])
def test_a_file_has_the_permissions_that_spark_gives(mask: str, tmp_path: Path) -> None:
    """Hadoop's setting counts, not the umask of the service or container."""
    conf = {"fs.permissions.umask-mode": mask}
    modes = set()
    for manager in (CAIRN_FILES, SPARKS_MANAGER):
        folder = tmp_path / manager
        CheckpointFiles(f"file://{folder}", {}, conf, manager).open_log().create("0", b"v1")
        modes.add((folder / "0").stat().st_mode)

    assert modes == {0o100666 & ~int(mask, 8)}


def test_the_folder_is_local(log: CheckpointFiles) -> None:
    """Spark warns of temporary checkpoints on remote file systems."""
    assert log.manager.isLocal()
    assert of_spark(log).manager.isLocal()


def test_a_cancelled_file_never_appears(log: CheckpointFiles, tmp_path: Path) -> None:
    """Spark cancels an entry whose serialization failed."""
    log.begin("0", b"half").cancel()

    assert on_disk(tmp_path) == {}


def test_an_entry_of_another_driver_stays(log: CheckpointFiles, tmp_path: Path) -> None:
    """Overwriting it would lose the other driver's batch. Its checksum is theirs, too."""
    of_spark(log).create("0", b"theirs")
    before = on_disk(tmp_path)

    with pytest.raises(Py4JJavaError) as failure:
        log.create("0", b"ours")

    text = "\n".join(causes(failure.value))
    assert "org.apache.hadoop.fs.FileAlreadyExistsException" in text
    assert "CAIRN_FENCED" in text
    assert "offsets/0 exists" in text
    assert on_disk(tmp_path) == before
    assert of_spark(log).read("0") == b"theirs"


def test_one_of_many_drivers_creates_an_entry(log: CheckpointFiles) -> None:
    """Spark's managers look first and rename then: two drivers can both see no file."""
    managers = [CheckpointFiles(log.folder, {}) for _ in range(4)]

    def is_first(driver: int, batch: int) -> bool:
        try:
            managers[driver].create(str(batch), b"%d" % driver)
        except Py4JJavaError:
            return False
        return True

    with ThreadPoolExecutor(len(managers)) as pool:
        for batch in range(25):
            won = list(pool.map(is_first, range(len(managers)), [batch] * len(managers)))
            assert won.count(True) == 1
            assert log.read(str(batch)) == b"%d" % won.index(True)


def test_a_replaced_file_loses_the_checksum_of_the_old_one(log: CheckpointFiles) -> None:
    """Hadoop keeps checksums in a file beside; one of other bytes makes the file unreadable."""
    of_spark(log).create("7.compact", b"old" * 1000, replace=True)

    log.create("7.compact", b"new", replace=True)

    assert log.read("7.compact") == b"new"
    assert of_spark(log).read("7.compact") == b"new"


def test_spark_reads_and_deletes_what_cairn_wrote(log: CheckpointFiles, tmp_path: Path) -> None:
    """A job may turn the manager off between two starts of the query."""
    log.create("a name with spaces %20 and ä", b"content")

    assert of_spark(log).names() == ["a name with spaces %20 and ä"]
    assert of_spark(log).read("a name with spaces %20 and ä") == b"content"
    of_spark(log).delete("a name with spaces %20 and ä")
    assert on_disk(tmp_path) == {}


def test_a_foreign_entry_ends_the_query(tmp_path: Path) -> None:
    """Two drivers on one checkpoint: the second one must not go on."""
    events = Events(tmp_path / "input")
    events.add_files(0, 4)
    checkpoint = tmp_path / "query"
    run = Run(BY_NAME["windows_update"], events, str(checkpoint), SUBJECT, 2, {})
    entry = checkpoint / "commits" / "2"

    def write_theirs() -> None:
        entry.write_bytes(b"theirs")

    run.before_batch[2] = write_theirs

    with pytest.raises(Exception, match="only one streaming job runs on a specific checkpoint"):
        run.advance()

    assert entry.read_bytes() == b"theirs"


def test_a_mount_without_links_is_used_and_warned_of_once(tmp_path: Path) -> None:
    """The fence of two drivers is gone there: nobody would know before it was needed."""
    with ExitStack() as mounts:  # at once: the warnings count devices
        for number in NO_LINK_ERRNOS - {errno.ENOSYS}:  # which the kernel turns into EPERM
            mount = tmp_path / f"mount-{number}"
            mounts.enter_context(faulty_mount(mount, {"LINK": number}))
            with driver_log(LOCAL_FILES) as warnings:
                for folder in ("offsets", "commits"):
                    log = CheckpointFiles(f"file://{mount}/{folder}", {}).open_log()
                    for batch in range(3):
                        log.create(str(batch), b"v1")

                    assert sorted(log.names()) == ["0", "1", "2"]
                    with pytest.raises(Py4JJavaError):
                        log.create("2", b"other")
                    assert log.read("2") == b"v1"

                text = warnings.toString()
            assert text.count("has no hard links") == 1
            assert os.strerror(number) in text
            assert "two drivers" in text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_a_link_that_fails_otherwise_is_that_error(number: int, tmp_path: Path) -> None:
    """A full or failing disk has links: the fence must stay, and the error must name the disk."""
    mount = tmp_path / "mount"
    with faulty_mount(mount, {"LINK": number}), driver_log(LOCAL_FILES) as warnings:
        log = CheckpointFiles(f"file://{mount}/offsets", {}).open_log()

        with pytest.raises(Py4JJavaError) as failure:
            log.create("0", b"v1")

        assert list((mount / "offsets").iterdir()) == []
        assert warnings.toString() == ""
    text = "\n".join(causes(failure.value))
    assert os.strerror(number) in text or "AccessDeniedException" in text
    assert f"{mount}/offsets/0" in text


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP])
def test_a_mount_that_cannot_sync_a_folder_is_refused(number: int, tmp_path: Path) -> None:
    """Spark would name an "Invalid argument", after an entry that a crash can take back."""
    mount = tmp_path / "mount"
    with faulty_mount(mount, {"FSYNCDIR": number}):
        log = CheckpointFiles(f"file://{mount}/offsets", {}).open_log()

        with pytest.raises(Py4JJavaError) as failure:
            log.create("0", b"v1")

        assert list((mount / "offsets").iterdir()) == []
    text = "\n".join(causes(failure.value))
    assert f"[CAIRN_FILE_SYSTEM] the file system of {mount}/offsets cannot sync" in text
    assert "another file system" in text


def test_a_disk_that_fails_at_a_sync_is_that_error(tmp_path: Path) -> None:
    """A move to another file system is no cure for a cable."""
    mount = tmp_path / "mount"
    with faulty_mount(mount, {"FSYNCDIR": errno.EIO}):
        log = CheckpointFiles(f"file://{mount}/offsets", {}).open_log()

        with pytest.raises(Py4JJavaError) as failure:
            log.create("0", b"v1")

    text = "\n".join(causes(failure.value))
    assert os.strerror(errno.EIO) in text
    assert "CAIRN_FILE_SYSTEM" not in text
