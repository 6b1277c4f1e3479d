"""LocalStore on real mounts that lack what a checkpoint needs: it refuses them, and says so."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cairn.checksum import crc32c_file
from cairn.errors import CairnError, UnavailableError
from cairn.storage.local import LocalStore
from harness.faulty_mount import faulty_mount


def files_below(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()
    )


@pytest.mark.parametrize("call", ["FSYNCDIR", "FSYNC"])
@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP])
@pytest.mark.parametrize("present", ["nothing", "checkpoint/state/changelog"])
def test_a_mount_that_cannot_sync_is_refused(
    tmp_path: Path, call: str, number: int, present: str
) -> None:
    """Another attempt fails like the first. An object there would look like a version."""
    mount = tmp_path / "mount"
    with faulty_mount(mount, {call: number}):
        (mount / present).mkdir(parents=True)
        store = LocalStore(str(mount / "checkpoint" / "state"))

        with pytest.raises(CairnError) as raised:
            store.put_if_absent("changelog/1.arrow", b"x")

        assert files_below(mount) == []
    assert (raised.value.kind, raised.value.code) == ("invalid", "CAIRN_FILE_SYSTEM")
    assert str(mount) in str(raised.value)
    assert "another file system" in (raised.value.next_step or "")


@pytest.mark.parametrize("call", ["FSYNCDIR", "FSYNC"])
def test_a_disk_that_fails_at_a_sync_is_no_file_system_without_sync(
    tmp_path: Path, call: str
) -> None:
    """A move to another file system is no cure for a cable."""
    store = LocalStore(str(tmp_path / "mount" / "state"))

    with faulty_mount(tmp_path / "mount", {call: errno.EIO}), pytest.raises(UnavailableError):
        store.put_if_absent("changelog/1.arrow", b"x")


def test_a_mount_without_links_takes_what_format_2_writes(tmp_path: Path) -> None:
    """Only a create needs links; the error names the cure."""
    root = tmp_path / "mount" / "state"
    store = LocalStore(str(root))
    source = tmp_path / "source"
    source.write_bytes(os.urandom(300_000))
    with faulty_mount(root.parent, {"LINK": errno.EPERM}):
        store.put("changelog/1_a.arrow", b"1")
        store.upload("sst/1.sst", source, crc32c=crc32c_file(source))

        with pytest.raises(CairnError) as raised:
            store.put_if_absent("changelog/1.arrow", b"x")

        assert store.get("sst/1.sst").data == source.read_bytes()
        assert files_below(root) == [".cairn.lock", "changelog/1_a.arrow", "sst/1.sst"]
    assert (raised.value.kind, raised.value.code) == ("invalid", "CAIRN_NO_CONDITIONAL_PUT")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_a_link_that_fails_otherwise_is_that_error(tmp_path: Path, number: int) -> None:
    """A full disk has links: the query must not go on without conditional PUT."""
    store = LocalStore(str(tmp_path / "mount" / "state"))

    with faulty_mount(tmp_path / "mount", {"LINK": number}), pytest.raises(CairnError) as raised:
        store.put_if_absent("changelog/1.arrow", b"x")

    assert raised.value.code != "CAIRN_NO_CONDITIONAL_PUT"
    assert os.strerror(number) in str(raised.value)
