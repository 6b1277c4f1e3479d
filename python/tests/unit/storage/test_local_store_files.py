"""LocalStore: the files that it leaves on the disk, and its translation of the disk's errors."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from cairn.checksum import crc32c_file
from cairn.clock import SYSTEM_CLOCK, FakeClock
from cairn.errors import (
    AccessError,
    AlreadyExistsError,
    CairnError,
    ConditionalPutUnsupportedError,
    CorruptError,
    DiskFullError,
    FileSystemUnsupportedError,
    ForeignObjectError,
    PreconditionFailedError,
    UnavailableError,
)
from cairn.storage import local
from cairn.storage.files import PendingFile, translate_os_error
from cairn.storage.local import LocalStore

SOURCES = Path(local.__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(str(root))


def names_below(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()
    )


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_object_is_a_file_of_its_key(store: LocalStore, root: Path) -> None:
    """People inspect checkpoints with ls, and Spark lists the same directories."""
    store.put("changelog/1.arrow", b"x")

    assert (root / "changelog" / "1.arrow").read_bytes() == b"x"
    assert names_below(root) == [".cairn.lock", "changelog/1.arrow"]


def test_a_create_leaves_one_file(store: LocalStore, root: Path) -> None:
    """A second hard link would keep the bytes of a deleted object on the disk."""
    store.put_if_absent("changelog/1.arrow", b"x")

    assert names_below(root) == ["changelog/1.arrow"]
    assert (root / "changelog" / "1.arrow").stat().st_nlink == 1


@pytest.mark.parametrize("verb", ["put", "put_if_absent", "put_if_match", "upload", "download"])
def test_a_full_disk_leaves_nothing_half_written(
    store: LocalStore, tmp_path: Path, verb: str
) -> None:
    """The previous version must still load, and the name must be free for the next attempt."""
    source = tmp_path / "source"
    source.write_bytes(bytes(3_000_000))
    checksum = crc32c_file(source)
    store.put("old", b"old")
    etag = store.get("old").etag
    store.upload("large", source, crc32c=checksum)
    before = names_below(tmp_path)

    actions: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("old", bytes(3_000_000)),
        "put_if_absent": lambda: store.put_if_absent("new", bytes(3_000_000)),
        "put_if_match": lambda: store.put_if_match("old", bytes(3_000_000), etag),
        "upload": lambda: store.upload("new", source, crc32c=checksum),
        "download": lambda: store.download(
            "large", tmp_path / "t", size_bytes=3_000_000, crc32c=checksum
        ),
    }
    with file_size_limit(1_000_000), pytest.raises(DiskFullError) as raised:
        actions[verb]()

    assert raised.value.object_name is not None
    assert names_below(tmp_path) == before
    assert store.get("old").data == b"old"


def test_no_space_at_fsync_is_a_full_disk(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system may report ENOSPC as late as fsync."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    root.mkdir()

    with pytest.raises(DiskFullError, match=r"CAIRN_DISK_FULL.*free space"):
        store.put_if_absent("new", b"x")

    assert names_below(root) == []


def test_a_directory_that_may_not_be_written_is_named() -> None:
    """The error must say which path, and that permissions are the cause."""
    store = LocalStore("file:///sys/cairn-may-not-write")

    with pytest.raises(AccessError, match="/sys"):
        store.put("x", b"x")


def test_a_file_in_the_place_of_a_directory_is_foreign(store: LocalStore, root: Path) -> None:
    """Cairn did not create the file, so it must not remove it."""
    root.mkdir()
    (root / "changelog").write_text("foreign")

    with pytest.raises(ForeignObjectError):
        store.put("changelog/1.arrow", b"x")

    assert (root / "changelog").read_text() == "foreign"


def test_a_directory_in_the_place_of_an_object_is_foreign(store: LocalStore, root: Path) -> None:
    """A replacement would delete the content of the directory."""
    (root / "mark" / "inside").mkdir(parents=True)

    with pytest.raises(ForeignObjectError):
        store.put("mark", b"x")

    assert (root / "mark" / "inside").is_dir()


def test_a_link_whose_answer_was_lost_is_own_success(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS the client repeats it and finds its own file: the commit failed."""
    really_link = os.link

    def link_twice(source: Path, target: Path) -> None:
        really_link(source, target)
        really_link(source, target)

    monkeypatch.setattr(os, "link", link_twice)

    store.put_if_absent("changelog/1.arrow", b"ours")
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("changelog/1.arrow", b"ours")

    assert store.get("changelog/1.arrow").data == b"ours"
    assert names_below(root) == ["changelog/1.arrow"]


def test_a_file_system_without_links_is_refused(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without hard links two creators could both succeed; the error must come at once."""

    def no_link(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", no_link)

    with pytest.raises(ConditionalPutUnsupportedError):
        store.probe_conditional_put()


def test_a_file_is_uploaded_without_links(
    store: LocalStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots of format 2 need no condition there: the names of their SSTs are new."""
    source = tmp_path / "source"
    source.write_bytes(b"sst")

    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)

    store.upload("sst/1.sst", source, crc32c=crc32c_file(source))

    assert names_below(root) == ["sst/1.sst"]
    assert store.get("sst/1.sst").data == b"sst"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_only_a_replacement_needs_locks(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Commits of format 2 and deletions replace nothing that another writer may replace."""

    def no_lock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_lock)

    store.put("x", b"1")
    store.put("y", b"2")
    store.delete(["y"])

    assert [info.key for info in store.list("")] == ["x"]
    with pytest.raises(ConditionalPutUnsupportedError, match="format 2"):
        store.probe_replacement()
    with pytest.raises(ConditionalPutUnsupportedError, match="format 2"):
        store.put_if_match("x", b"3", store.get("x").etag)
    assert store.get("x").data == b"1"


def test_a_lock_that_fails_is_no_file_system_without_locks(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a put could change the object that another process replaces at that moment."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)

    with pytest.raises(UnavailableError):
        store.put("x", b"1")


def test_list_removes_abandoned_temporary_files(root: Path) -> None:
    """The temporary file of a killed worker must not stay forever."""
    clock = FakeClock(SYSTEM_CLOCK.now() + timedelta(hours=2))
    (root / "sst").mkdir(parents=True)
    (root / "sst" / ".1.sst.0123456789abcdef.tmp").write_bytes(b"abandoned")

    assert list(LocalStore(str(root), clock).list("")) == []

    assert names_below(root) == []


def test_a_listing_of_a_reader_removes_nothing(root: Path) -> None:
    """Who looks into a checkpoint must not change it, nor what is at a root of it."""
    clock = FakeClock(SYSTEM_CLOCK.now() + timedelta(hours=2))
    name = ".1.sst.0123456789abcdef.tmp"
    (root / "sst").mkdir(parents=True)
    (root / "sst" / name).write_bytes(b"abandoned")
    store = LocalStore(str(root), clock)
    store.cleans = False

    assert list(store.list("")) == []
    assert list(store.at(f"{root}/sst").list("")) == []

    assert names_below(root / "sst") == [name]


def test_list_keeps_temporary_files_of_spark(root: Path) -> None:
    """Spark locks none of its files: a driver that stood still would lose its entry."""
    clock = FakeClock(SYSTEM_CLOCK.now() + timedelta(hours=2))
    root.mkdir()
    name = ".17.a9f0e4f2-4a3c-4b7c-8d7e-0123456789ab.tmp"
    (root / name).write_bytes(b"v1")

    assert list(LocalStore(str(root), clock).list("")) == []

    assert names_below(root) == [name]


def test_a_lock_file_of_another_user_is_enough(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator who ran a command as root must not lock the query out."""
    store.put("x", b"1")
    store.delete(["x"])
    lock = root / ".cairn.lock"
    assert lock.exists()
    really_open = os.open

    def as_another_user(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path) == lock and flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", as_another_user)
    store.put("y", b"2")
    store.delete(["y"])

    assert list(store.list("")) == []


def test_list_keeps_the_file_of_a_live_writer(root: Path) -> None:
    """A slow write may take longer than any age; its lock shows that it is alive."""
    clock = FakeClock(SYSTEM_CLOCK.now() + timedelta(hours=2))

    with PendingFile(root / "1.sst") as pending:
        pending.write(b"slow")
        list(LocalStore(str(root), clock).list(""))
        pending.sync()
        pending.publish_new()

    assert (root / "1.sst").read_bytes() == b"slow"


def test_list_keeps_young_temporary_files(store: LocalStore, root: Path) -> None:
    """A network file system may not share the lock of another machine."""
    root.mkdir()
    (root / ".1.sst.0123456789abcdef.tmp").write_bytes(b"young")

    list(store.list(""))

    assert names_below(root) == [".1.sst.0123456789abcdef.tmp"]


def test_list_hides_hadoops_checksum_files(store: LocalStore, root: Path) -> None:
    """Spark's own writers create ``.name.crc`` beside their files."""
    store.put("1.json", b"x")
    (root / ".1.json.crc").write_bytes(b"crc")

    assert [info.key for info in store.list("")] == ["1.json"]


def test_a_replacement_excludes_writers_of_other_processes(store: LocalStore, root: Path) -> None:
    """Compare and replace must be one step for a writer in another process."""
    store.put("x", b"old")
    etag = store.get("x").etag
    code = (
        "from cairn.storage.local import LocalStore; "
        f"store = LocalStore({str(root)!r}); print('up', flush=True); "
        f"store.put_if_match('x', b'other', {etag!r})"
    )
    with (root / ".cairn.lock").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(SOURCES)},
            stdout=subprocess.PIPE,
        )
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)  # what it would do without the lock takes a few milliseconds
        while_locked = (root / "x").read_bytes()
    with other:
        assert other.wait(20) == 0

    assert while_locked == b"old"
    assert store.get("x").data == b"other"


def test_an_object_over_the_limit_of_a_get_is_replaced(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changelog may be larger than most objects; no attempt could replace such a one."""
    defaults = LocalStore.get.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "max_bytes", 4)
    store.put("x", b"large")
    with pytest.raises(CorruptError, match="over the limit of 4"):
        store.get("x")
    etag = store.get("x", max_bytes=5).etag

    store.put_if_match("x", b"new", etag)

    assert store.get("x").data == b"new"
    store.put("x", b"other")  # of the same size
    with pytest.raises(PreconditionFailedError):
        store.put_if_match("x", b"late", etag)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EACCES, AccessError),
        (errno.EROFS, AccessError),
        (errno.EOPNOTSUPP, FileSystemUnsupportedError),
        (errno.EIO, UnavailableError),
        (errno.ESTALE, UnavailableError),
        (None, UnavailableError),
    ],
)
def test_each_os_error_says_what_to_do(number: int | None, expected: type[CairnError]) -> None:
    """Transient errors are retried; the user corrects the others."""
    cause = OSError() if number is None else OSError(number, os.strerror(number), "/data/x")

    error = translate_os_error(cause, "file:///data/x")

    assert type(error) is expected
    assert error.object_name == "file:///data/x"
