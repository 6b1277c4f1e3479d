"""HadoopStore over a shim in this process: lost answers, silence, and file systems of both kinds.

The contract suite runs on a real HDFS; these tests provoke what that does not do.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from cairn.checksum import crc32c_file
from cairn.errors import (
    AlreadyExistsError,
    CairnError,
    ClosedError,
    ConditionalPutUnsupportedError,
    ConfigError,
    CorruptError,
    PreconditionFailedError,
    ProtocolError,
    UnavailableError,
)
from cairn.protocol import files
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.hadoop.store import HadoopStore
from harness.fake_shim import FILE_SYSTEM, FakeShim

TIMEOUT_MS = 500


@pytest.fixture
def shim() -> FakeShim:
    """A file system without files."""
    return FakeShim()


@pytest.fixture
def connections(shim: FakeShim) -> Iterator[StorageConnections]:
    """Four connections to it."""
    opened = StorageConnections()
    for _ in range(4):
        shim.connect(opened)
    yield opened
    opened.close()


@pytest.fixture
def store(connections: StorageConnections) -> HadoopStore:
    """A store on it."""
    settings = {"file_system": str(FILE_SYSTEM), "timeout_ms": str(TIMEOUT_MS)}
    return HadoopStore("hdfs://host:9000/a/state", settings, connections)


def fail_once(kind: int, failure: Exception, part: str = "") -> Callable[[int, str], None]:
    """Return a hook that raises once, at a request of ``kind`` for a path with ``part``."""
    left = [failure]

    def hook(asked: int, path: str) -> None:
        if asked == kind and part in path and left:
            raise left.pop()

    return hook


@pytest.mark.parametrize(
    "failure",
    [UnavailableError("the server is in safe mode"), AlreadyExistsError("it was there already")],
    ids=["unavailable", "exists"],
)
def test_a_rename_whose_answer_was_lost_is_own_success(
    store: HadoopStore, shim: FakeShim, failure: CairnError
) -> None:
    """The client repeats a rename and finds its own file: a conflict would fail the commit."""
    shim.after = fail_once(files.FILE_RENAME, failure)

    store.put_if_absent("changelog/1.arrow", b"ours")

    assert shim.content == {"/a/state/changelog/1.arrow": b"ours"}


def test_a_conflict_that_may_be_own_success_is_an_unknown_outcome(
    store: HadoopStore, shim: FakeShim
) -> None:
    """To report a conflict would make a writer give way to itself."""
    shim.after = fail_once(files.FILE_RENAME, AlreadyExistsError("it was there already"))
    shim.before = fail_once(files.FILE_STATUS, UnavailableError("the server is in safe mode"))

    with pytest.raises(UnavailableError, match="outcome of a write is unknown"):
        store.put_if_absent("changelog/1.arrow", b"ours")


def another_wins(shim: FakeShim, theirs: bytes) -> Callable[[int, str], None]:
    """Return a hook: the temporary file is deleted, and another's object gets the name."""

    def hook(kind: int, path: str) -> None:
        if kind == files.FILE_RENAME:
            for name in shim.hidden():
                del shim.content[name]
            shim.store(path, theirs)

    return hook


@pytest.mark.parametrize("theirs", [b"them", b"longer"])
def test_an_object_of_another_is_no_own_success(
    store: HadoopStore, shim: FakeShim, tmp_path: Path, theirs: bytes
) -> None:
    """The temporary file was deleted, not renamed: two attempts would believe that they won."""
    (tmp_path / "file").write_bytes(b"ours")
    shim.before = another_wins(shim, theirs)

    with pytest.raises(UnavailableError, match="outcome of a write is unknown"):
        store.put_if_absent("changelog/1.arrow", b"ours")
    with pytest.raises(UnavailableError, match="outcome of a write is unknown"):
        store.upload("sst/1.sst", tmp_path / "file", crc32c=crc32c_file(tmp_path / "file"))

    assert set(shim.content.values()) == {theirs}


def test_an_upload_whose_answer_was_lost_is_own_success(
    store: HadoopStore, shim: FakeShim, tmp_path: Path
) -> None:
    """Its bytes are read again from the file."""
    (tmp_path / "file").write_bytes(b"ours")
    shim.after = fail_once(files.FILE_RENAME, UnavailableError("the server is in safe mode"))

    store.upload("sst/1.sst", tmp_path / "file", crc32c=crc32c_file(tmp_path / "file"))

    assert shim.content == {"/a/state/sst/1.sst": b"ours"}


def test_a_rename_that_was_not_done_is_reported_and_leaves_nothing(
    store: HadoopStore, shim: FakeShim
) -> None:
    """The task fails and Spark retries it; the file must not appear afterwards."""
    shim.before = fail_once(files.FILE_RENAME, UnavailableError("the server is in safe mode"))

    with pytest.raises(UnavailableError, match="safe mode"):
        store.put("x", b"1")

    assert shim.content == {}


def test_a_name_that_is_taken_stays_as_it_is(store: HadoopStore, shim: FakeShim) -> None:
    """Two attempts at one version: the second one must learn that it lost."""
    store.put_if_absent("x", b"first")

    with pytest.raises(AlreadyExistsError) as raised:
        store.put_if_absent("x", b"second")

    assert raised.value.object_name == "hdfs://host:9000/a/state/x"
    assert shim.content == {"/a/state/x": b"first"}


def test_silence_ends_the_connection_and_the_next_request_uses_another(
    store: HadoopStore, shim: FakeShim
) -> None:
    """A late answer must not be taken for that of the next request."""
    store.put("x", b"1")
    release = threading.Event()

    def hang(kind: int, _path: str) -> None:
        if kind == files.FILE_READ and not release.is_set():
            release.wait(10)

    shim.before = hang
    with pytest.raises(UnavailableError, match=rf"within {TIMEOUT_MS} ms.*state/x"):
        store.get("x")
    release.set()

    assert store.get("x").data == b"1"


def test_a_connection_that_ends_in_the_middle_of_a_file_is_no_short_file(
    store: HadoopStore, shim: FakeShim, tmp_path: Path
) -> None:
    """An executor that dies must not leave a cut SST in a cache."""
    store.put("sst/1.sst", b"12345")
    shim.after = fail_once(files.FILE_READ, ConnectionAbortedError())

    with pytest.raises(UnavailableError, match="broke"):
        store.download("sst/1.sst", tmp_path / "1.sst", size_bytes=5, crc32c=0)

    assert list(tmp_path.iterdir()) == []


def test_without_a_free_connection_a_request_fails_in_time() -> None:
    """A shim that never connects must not hold a task for ever."""
    settings = {"file_system": "1", "timeout_ms": "50"}
    store = HadoopStore("hdfs://host/x", settings, StorageConnections())

    with pytest.raises(UnavailableError, match="no connection to the file system was free"):
        store.get("x")


def test_a_connection_that_ended_while_it_was_free_is_not_used(
    store: HadoopStore, connections: StorageConnections
) -> None:
    """An executor's thread may end at any time between two requests."""
    ours, theirs = socket.socketpair()
    connections.add(theirs)
    ours.close()

    store.put("x", b"1")

    assert store.get("x").data == b"1"


def test_replacement_moves_the_old_file_away_and_back_if_it_fails(
    store: HadoopStore, shim: FakeShim
) -> None:
    """Format 1: a failed attempt must not leave the version without an object."""
    store.put("x", b"old")
    etag = store.get("x").etag
    is_second = [False]

    def fail_second_rename(kind: int, path: str) -> None:
        if kind == files.FILE_RENAME and path == "/a/state/x" and not is_second[0]:
            is_second[0] = True
            raise UnavailableError("the server is in safe mode")

    shim.before = fail_second_rename
    with pytest.raises(UnavailableError):
        store.put_if_match("x", b"new", etag)

    assert shim.content == {"/a/state/x": b"old"}
    store.put_if_match("x", b"new", store.get("x").etag)
    assert store.get("x").data == b"new"
    with pytest.raises(PreconditionFailedError):
        store.put_if_match("x", b"late", etag)
    assert store.get("x").data == b"new"


def test_an_object_over_the_limit_of_a_get_is_replaced(
    store: HadoopStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changelog may be larger than most objects; no attempt could replace such a one."""
    defaults = HadoopStore.get.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "max_bytes", 4)
    store.put("x", b"large")
    with pytest.raises(CorruptError, match="over the limit of 4"):
        store.get("x")

    store.put_if_match("x", b"new", store.get("x", max_bytes=5).etag)

    assert store.get("x").data == b"new"


def test_an_attempt_that_compared_too_early_cannot_move_the_new_object_away(
    store: HadoopStore, shim: FakeShim
) -> None:
    """A zombie that stops between comparison and rename must not remove what another committed."""
    store.put("x", b"old")
    etag = store.get("x").etag
    is_done = [False]

    def let_another_win(kind: int, path: str) -> None:
        if kind == files.FILE_RENAME and path.endswith(".old") and not is_done[0]:
            is_done[0] = True
            store.put_if_match("x", b"winner", etag)

    shim.before = let_another_win
    with pytest.raises(PreconditionFailedError):
        store.put_if_match("x", b"zombie", etag)

    assert store.get("x").data == b"winner"


def test_an_object_that_was_put_between_comparison_and_rename_is_moved_back(
    store: HadoopStore, shim: FakeShim
) -> None:
    """A writer that ignores etags: its object is the newest."""
    store.put("x", b"old")
    etag = store.get("x").etag
    is_done = [False]

    def put(kind: int, path: str) -> None:
        if kind == files.FILE_RENAME and path.endswith(".old") and not is_done[0]:
            is_done[0] = True
            store.put("x", b"other")

    shim.before = put
    with pytest.raises(PreconditionFailedError):
        store.put_if_match("x", b"late", etag)

    assert shim.content == {"/a/state/x": b"other"}


def test_a_file_system_that_publishes_by_closing_gets_no_rename(
    store: HadoopStore, shim: FakeShim, tmp_path: Path
) -> None:
    """A rename there copies: not atomic, and twice the bytes."""
    shim.publishing = files.PUBLISHES_BY_CLOSE
    shim.before = fail_once(files.FILE_RENAME, ProtocolError("a rename"))
    (tmp_path / "file").write_bytes(b"bytes")

    store.put("x", b"1")
    store.put("x", b"2")
    store.upload("sst", tmp_path / "file", crc32c=crc32c_file(tmp_path / "file"))

    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("x", b"3")
    with pytest.raises(AlreadyExistsError):
        store.upload("sst", tmp_path / "file", crc32c=crc32c_file(tmp_path / "file"))
    assert shim.content == {"/a/state/x": b"2", "/a/state/sst": b"bytes"}


def test_format_1_is_refused_where_renames_are_not_atomic(
    store: HadoopStore, shim: FakeShim
) -> None:
    """At the first commit, not at the first retry, when the format cannot be chosen any more."""
    shim.publishing = files.PUBLISHES_BY_CLOSE

    store.probe_conditional_put()
    with pytest.raises(ConditionalPutUnsupportedError, match="format 2"):
        store.probe_replacement()


def test_a_file_system_that_always_replaces_is_found_out(
    store: HadoopStore, shim: FakeShim
) -> None:
    """Two attempts would overwrite each other in silence."""
    shim.replaces_always = True

    with pytest.raises(ConditionalPutUnsupportedError):
        store.probe_conditional_put()

    assert shim.content == {}


def test_hidden_names_are_deleted_after_a_day_of_the_server(
    store: HadoopStore, shim: FakeShim
) -> None:
    """A writer that died leaves a part of a file; one that is alive needs it.

    The shim's files are of 1970: by the clock of this machine all of them are old.
    """
    digest, of_spark = "0123456789abcdef", ".0.3c0c3b1e-4a4c.TID1.tmp"
    etag = f"{2 * digest}-1f"
    ours = (
        f"changelog/.1.arrow.{digest}.tmp",
        f"changelog/.1.arrow.{etag}.old",
        f"changelog/.2.arrow.{etag}.{digest}.new",
    )
    for name in (*ours, of_spark, "x"):
        shim.store(f"/a/state/{name}", b"1")

    assert [info.key for info in store.list("")] == ["x"]
    assert len(shim.hidden()) == 4
    shim.now_ms += int(timedelta(days=1).total_seconds() * 1000)
    shim.store("/a/state/y", b"1")
    assert [info.key for info in store.list("")] == ["x", "y"]

    assert shim.hidden() == [f"/a/state/{of_spark}"]


def test_what_a_cut_replacement_has_left_stays_until_the_name_is_there(
    store: HadoopStore, shim: FakeShim
) -> None:
    """It is the object. The names beside it differ in the etag, or in the name."""
    unique = "0123456789abcdef"
    etag, other = f"{2 * unique}-1f", f"{2 * unique}-20"
    left = [f".1.arrow.{etag}.old", f".1.arrow.{etag}.{unique}.new"]
    for name in (*left, f".1.arrow.{other}.old", f".2.arrow.{other}.{unique}.new"):
        shim.store(f"/a/state/changelog/{name}", name.encode())
    shim.now_ms += int(timedelta(days=2).total_seconds() * 1000)
    shim.store("/a/state/y", b"1")

    list(store.list(""))

    assert shim.hidden() == [f"/a/state/changelog/{name}" for name in left]
    moved = store.moved_away("changelog/1.arrow")
    assert moved is not None
    assert moved.data == left[0].encode()
    assert store.moved_away("changelog/2.arrow") is None
    shim.store("/a/state/changelog/1.arrow", b"again")
    list(store.list(""))
    assert shim.hidden() == []


def test_answers_that_are_none_of_the_protocol_are_refused(
    store: HadoopStore, shim: FakeShim
) -> None:
    """A wrong jar must not be taken for a file system."""
    shim.publishing = 9

    with pytest.raises(ProtocolError):
        store.put("x", b"1")


@pytest.mark.parametrize("settings", [{}, {"file_system": "x", "timeout_ms": "1"}])
def test_malformed_settings_are_refused(settings: dict[str, str]) -> None:
    """A shim of another release must be named, not guessed."""
    with pytest.raises(ConfigError):
        HadoopStore("hdfs://host/x", settings, StorageConnections())


def test_closed_connections_raise_closed_error(
    store: HadoopStore, connections: StorageConnections
) -> None:
    """Use after the end is a bug, not a fault of the storage."""
    connections.close()

    with pytest.raises(ClosedError):
        store.get("x")


def test_a_listing_that_is_cut_is_refused() -> None:
    """A sweep that sees half of the files would delete the rest."""
    whole = struct.pack("<2QI", 1, 2, 3) + b"abc"

    assert files.decode_listing(whole, 1) == [("abc", files.FileStatus(1, 2))]
    for cut in range(1, len(whole)):
        with pytest.raises(ProtocolError):
            files.decode_listing(whole[:cut], 1)
    with pytest.raises(ProtocolError):
        files.decode_listing(whole, 2)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("hdfs://host:9000/a/state", "/a/state/x"),
        ("hdfs:///a/state/", "/a/state/x"),
        ("viewfs:/a/state", "/a/state/x"),
        ("hdfs://host", "/x"),
    ],
)
def test_a_location_is_the_folder_that_hadoop_takes_it_for(
    connections: StorageConnections, shim: FakeShim, url: str, path: str
) -> None:
    """Hadoop's paths need no authority. Another folder could have another checkpoint."""
    settings = {"file_system": str(FILE_SYSTEM), "timeout_ms": str(TIMEOUT_MS)}

    HadoopStore(url, settings, connections).put("x", b"1")

    assert list(shim.content) == [path]
