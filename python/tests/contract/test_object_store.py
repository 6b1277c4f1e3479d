"""Contract of ObjectStore: objects. Every backend passes it; add a new one to BACKENDS."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from cairn.checksum import crc32c
from cairn.errors import (
    AlreadyExistsError,
    ClosedError,
    ConfigError,
    CorruptError,
    InternalError,
    MissingError,
    PreconditionFailedError,
)
from cairn.storage.base import Tally
from cairn.storage.copying import copy_object
from cairn.storage.memory import MemoryBucket, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cairn.storage.base import ObjectStore


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"bytes",
        bytearray(b"array"),
        memoryview(b"-view-")[1:5],
        pa.py_buffer(b"arrow"),
    ],
    ids=["empty", "bytes", "bytearray", "memoryview", "pa.Buffer"],
)
def test_get_returns_the_bytes_of_put(
    store: ObjectStore, data: bytes | bytearray | memoryview | pa.Buffer
) -> None:
    """Changelogs are Arrow buffers, manifests are bytes; the type must not change the content."""
    store.put("changelog/7.arrow", data)

    assert store.get("changelog/7.arrow").data == bytes(data)


def test_get_refuses_a_larger_object_than_its_caller_expects(store: ObjectStore) -> None:
    """The memory of a worker must not depend on what others put under a name."""
    store.put("changelog/7.arrow", b"header")

    with pytest.raises(CorruptError, match=r"6 bytes, over the limit of 5.*changelog/7\.arrow"):
        store.get("changelog/7.arrow", max_bytes=5)

    assert store.get("changelog/7.arrow", max_bytes=6).data == b"header"


@pytest.mark.parametrize("length", [1, 5, 6, 7, 100])
def test_get_start_returns_the_first_bytes_and_the_whole_length(
    store: ObjectStore, length: int
) -> None:
    """A load plans by the header of a changelog, and must know whether it has all of it."""
    store.put("changelog/7.arrow", b"header")

    start = store.get_start("changelog/7.arrow", length)

    assert start.data == b"header"[:length]
    assert start.size_bytes == 6
    assert start.is_whole == (length >= 6)


def test_get_start_of_nothing_is_missing(store: ObjectStore) -> None:
    """A version that was never committed is not an empty one."""
    with pytest.raises(MissingError, match=r"changelog/7\.arrow"):
        store.get_start("changelog/7.arrow", 10)


def test_get_start_of_an_empty_object_is_no_data(store: ObjectStore) -> None:
    """S3 refuses a range of an empty object; nobody may take that for a missing one."""
    store.put("changelog/7.arrow", b"")

    try:
        start = store.get_start("changelog/7.arrow", 10)
    except CorruptError:
        return
    assert (start.data, start.size_bytes) == (b"", 0)


@pytest.mark.parametrize(("offset", "length"), [(0, 6), (0, 1), (2, 3), (5, 1), (4, 100)])
def test_get_range_returns_these_bytes(store: ObjectStore, offset: int, length: int) -> None:
    """A reader takes single blocks out of large files; another range would be other rows."""
    store.put("sst/file", b"header")

    data = store.get_range("sst/file", offset, length)

    assert data == b"header"[offset : offset + length]


def test_get_range_of_nothing_is_missing(store: ObjectStore) -> None:
    """A file that retention has deleted must be found missing, not empty."""
    with pytest.raises(MissingError, match="sst/file"):
        store.get_range("sst/file", 0, 10)


def test_put_replaces_and_changes_the_etag(store: ObjectStore) -> None:
    """A reader after a replacement must get all the new bytes."""
    store.put("mark", b"one")
    first = store.get("mark")

    store.put("mark", b"second")

    assert store.get("mark").data == b"second"
    assert store.get("mark").etag != first.etag


def test_put_if_absent_never_replaces(store: ObjectStore) -> None:
    """An attempt's object is written once: a late duplicate must not change bytes already read."""
    store.put_if_absent("changelog/7.arrow", b"first")

    with pytest.raises(AlreadyExistsError) as raised:
        store.put_if_absent("changelog/7.arrow", b"late")

    assert store.get("changelog/7.arrow").data == b"first"
    assert raised.value.object_name == f"{store.url}/changelog/7.arrow"
    assert raised.value.kind == "conflict"


def test_put_if_absent_works_again_after_delete(store: ObjectStore) -> None:
    """The name of a purged object is free."""
    store.put_if_absent("x", b"first")
    store.delete(["x"])

    store.put_if_absent("x", b"second")

    assert store.get("x").data == b"second"


def test_of_sixteen_concurrent_creates_exactly_one_wins(
    open_again: Callable[[], ObjectStore],
) -> None:
    """Speculative attempts commit one version concurrently; two winners would fork the state."""
    stores = [open_again() for _ in range(16)]
    barrier = threading.Barrier(len(stores))

    def create(number: int) -> bool:
        barrier.wait()
        try:
            stores[number].put_if_absent("changelog/1.arrow", b"%d" % number * 1000)
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        wins = list(pool.map(create, range(len(stores))))

    assert wins.count(True) == 1
    assert stores[0].get("changelog/1.arrow").data == b"%d" % wins.index(True) * 1000


def test_put_if_match_replaces_what_was_read(store: ObjectStore) -> None:
    """Format 1 replaces an abandoned attempt only if no other attempt has done so."""
    store.put("changelog/7.arrow", b"abandoned")
    read = store.get("changelog/7.arrow")

    store.put_if_match("changelog/7.arrow", b"ours", read.etag)

    assert store.get("changelog/7.arrow").data == b"ours"
    assert store.get("changelog/7.arrow").etag != read.etag


def test_put_if_match_refuses_a_changed_object(store: ObjectStore) -> None:
    """Another attempt replaced the object first and has won."""
    store.put("x", b"one")
    old_etag = store.get("x").etag
    store.put("x", b"two")

    with pytest.raises(PreconditionFailedError):
        store.put_if_match("x", b"three", old_etag)

    assert store.get("x").data == b"two"


def test_put_if_match_refuses_a_deleted_object(store: ObjectStore) -> None:
    """A replacement must not restore an object that retention deleted."""
    store.put("x", b"one")
    etag = store.get("x").etag
    store.delete(["x"])

    with pytest.raises(PreconditionFailedError):
        store.put_if_match("x", b"two", etag)

    with pytest.raises(MissingError):
        store.get("x")


def test_of_eight_concurrent_replacements_exactly_one_wins(
    open_again: Callable[[], ObjectStore],
) -> None:
    """Of two attempts that read the abandoned object, only one may replace it."""
    stores = [open_again() for _ in range(8)]
    stores[0].put("x", b"abandoned")
    etag = stores[0].get("x").etag
    barrier = threading.Barrier(len(stores))

    def replace(number: int) -> bool:
        barrier.wait()
        try:
            stores[number].put_if_match("x", b"%d" % number, etag)
        except PreconditionFailedError:
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        wins = list(pool.map(replace, range(len(stores))))

    assert wins.count(True) == 1
    assert stores[0].get("x").data == b"%d" % wins.index(True)


def test_get_of_nothing_is_missing(store: ObjectStore) -> None:
    """The error must name a missing changelog; it is never read as an empty one."""
    with pytest.raises(MissingError) as raised:
        store.get("changelog/8.arrow")

    assert raised.value.object_name == f"{store.url}/changelog/8.arrow"


def test_a_prefix_of_objects_is_not_an_object(store: ObjectStore) -> None:
    """A directory of a file system is not an object."""
    store.put("a/b/c", b"x")

    with pytest.raises(MissingError):
        store.get("a/b")

    store.delete(["a/b"])
    assert store.get("a/b/c").data == b"x"


@pytest.mark.parametrize(
    "key",
    [
        "sst/a b+c%20d.sst",
        "snapshot/1_ü€😀.json",
        "a/#?&=:;,'\"()[]{}!@$*~^|<>`",
        "a" * 200,
    ],
    ids=["blanks", "unicode", "punctuation", "long"],
)
def test_keys_survive_escaping(store: ObjectStore, key: str) -> None:
    """A key may contain any printable character. HDFS alone has no colons."""
    if store.url.startswith("hdfs:") and ":" in key:
        with pytest.raises(ConfigError, match="does not accept this name"):
            store.put(key, b"here")
        return
    store.put(key, b"here")

    assert store.get(key).data == b"here"
    assert [info.key for info in store.list("")] == [key]
    store.delete([key])
    assert list(store.list("")) == []


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/../b", ".a", "a\nb", "a" * 201])
def test_keys_that_not_every_backend_can_store_are_refused(store: ObjectStore, key: str) -> None:
    """A key that leaves the root would reach the objects of another store."""
    with pytest.raises(InternalError):
        store.put(key, b"x")
    with pytest.raises(InternalError):
        store.get(key)
    with pytest.raises(InternalError):
        store.delete([key])


def test_list_is_in_order_of_the_keys_bytes(store: ObjectStore) -> None:
    """All backends must list in the same order; an order by directory would differ."""
    keys = ["a", "a/b", "a-b", "B", "z/1", "z/10", "z/2", "ü", "a.b/c"]
    names = [key for key in keys if key != "a"]
    for key in names:
        store.put(key, key.encode())

    found = list(store.list(""))

    assert [info.key for info in found] == sorted(names, key=lambda key: key.encode())
    assert [info.size_bytes for info in found] == [
        len(key.encode()) for key in sorted(names, key=lambda key: key.encode())
    ]


def test_list_describes_each_object(store: ObjectStore) -> None:
    """The sweep compares ages: a time in another zone would delete objects in use."""
    store.put("sst/1.sst", b"12345")

    (info,) = store.list("sst/")

    assert info.size_bytes == 5
    assert info.last_modified.utcoffset() == timedelta(0)
    assert abs(info.last_modified - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", ["changelog/1.arrow", "changelog/10.arrow", "snapshot/1_a.json"]),
        ("changelog/1", ["changelog/1.arrow", "changelog/10.arrow"]),
        ("changelog/10", ["changelog/10.arrow"]),
        ("ch", ["changelog/1.arrow", "changelog/10.arrow"]),
        ("snapshot/", ["snapshot/1_a.json"]),
        ("none/of/these", []),
    ],
)
def test_list_takes_any_prefix(store: ObjectStore, prefix: str, expected: list[str]) -> None:
    """A prefix need not end at a slash: ``changelog/7_`` lists the attempts of version 7."""
    for key in ["changelog/1.arrow", "changelog/10.arrow", "snapshot/1_a.json"]:
        store.put(key, b"")

    assert [info.key for info in store.list(prefix)] == expected


def test_list_hides_the_metadata_of_spark(store: ObjectStore) -> None:
    """Spark keeps its metadata below the state directory; an orphan sweep must not see it."""
    store.put("_metadata/schema", b"of spark")
    store.put("sst/1.sst", b"of cairn")

    assert [info.key for info in store.list("")] == ["sst/1.sst"]
    assert [info.key for info in store.list("_metadata/")] == ["_metadata/schema"]


def test_list_of_a_store_that_never_wrote_is_empty(store: ObjectStore) -> None:
    """The first listing of a new partition is not an error."""
    assert list(store.list("")) == []


def test_delete_is_idempotent_and_deletes_many(store: ObjectStore) -> None:
    """A purge that failed half-way is repeated."""
    keys = [f"sst/{number}.sst" for number in range(25)]
    for key in keys:
        store.put(key, b"x")

    store.delete(keys[:20])
    store.delete([*keys[:20], "never/there", *keys[20:24]])
    store.delete([])

    assert [info.key for info in store.list("")] == [keys[24]]


def test_sixteen_threads_share_one_instance(store: ObjectStore, tmp_path: Path) -> None:
    """SSTs are downloaded in parallel through one store."""

    def round_trip(number: int) -> bytes:
        store.put(f"sst/{number}", b"%d" % number)
        store.download(
            f"sst/{number}",
            tmp_path / "cache" / str(number),
            size_bytes=len(str(number)),
            crc32c=crc32c(b"%d" % number),
        )
        return (tmp_path / "cache" / str(number)).read_bytes()

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(round_trip, range(64)))

    assert results == [b"%d" % number for number in range(64)]
    assert len(list(store.list("sst/"))) == 64


def test_another_instance_sees_a_write_at_once(
    open_again: Callable[[], ObjectStore],
) -> None:
    """The next batch may run on another executor."""
    writer, reader = open_again(), open_again()

    writer.put("changelog/1.arrow", b"x")

    assert reader.get("changelog/1.arrow").data == b"x"
    assert [info.key for info in reader.list("changelog/")] == ["changelog/1.arrow"]


def test_each_call_costs_one_request(store: ObjectStore) -> None:
    """Requests are billed, and each is a round trip: no probing, no listing, no HEAD."""
    store.put("a", b"1")
    store.put_if_absent("b", b"2")
    store.put_if_match("a", b"3", store.get("a").etag)

    assert store.request_counts() == {"PutObject": 3, "GetObject": 1}


def test_a_tally_has_the_requests_of_all_roots(store: ObjectStore) -> None:
    """A read opens a root per store of the query: its cost is that of all of them."""
    store.tally = Tally()

    store.put("below/a", b"1")
    with store.at(f"{store.url}/below") as below:
        below.get("a")

    assert store.tally.counts() == {"PutObject": 1, "GetObject": 1}


def test_the_probe_passes_once_and_leaves_nothing(store: ObjectStore) -> None:
    """Format 1 needs conditional PUTs; the probe must leave no object and run only once."""
    store.probe_conditional_put()
    after_first = store.request_counts()

    store.probe_conditional_put()

    assert store.request_counts() == after_first
    assert list(store.list("")) == []


def test_the_time_of_the_server_costs_one_request(store: ObjectStore) -> None:
    """A wrong clock of this machine is found before the first batch; nothing is written for it."""
    time = store.server_time()

    if "ListObjectsV2" in store.request_counts():
        assert time is not None
        assert abs(time - datetime.now(UTC)) < timedelta(minutes=5)
        assert store.request_counts() == {"ListObjectsV2": 1}
    else:
        assert time is None
        assert store.request_counts() == {}


def test_a_closed_store_raises_closed_error(open_again: Callable[[], ObjectStore]) -> None:
    """Use after close is a bug and must not look like a fault of the storage."""
    with open_again() as store:
        store.put("a", b"1")

    store.close()

    with pytest.raises(ClosedError):
        store.get("a")
    with pytest.raises(ClosedError):
        store.put("a", b"2")


def test_another_root_of_the_same_place_has_its_own_keys(store: ObjectStore) -> None:
    """Spark's logs are beside the state of a query, above the root of each store."""
    with store.at(f"{store.url}/below") as below:
        below.put("commits/7", b"v1")
        assert [info.key for info in below.list("commits/")] == ["commits/7"]

    assert store.get("below/commits/7").data == b"v1"
    with store.at(f"{store.url}/below") as below:
        assert below.get("commits/7").data == b"v1"


def test_an_object_is_copied_from_another_root(store: ObjectStore) -> None:
    """A clone of a checkpoint on the same storage: its bytes do not leave that."""
    other = store.at(f"{store.url}-other")
    data = bytes(range(256)) * 8
    store.put("a/with space+%", data)
    other.put("b", b"former")

    copy_object(store, "a/with space+%", other, "b", size_bytes=len(data))
    copy_object(store, "a/with space+%", other, "c/d", size_bytes=len(data))

    assert other.get("b").data == other.get("c/d").data == data
    assert store.get("a/with space+%").data == data
    with pytest.raises(MissingError):
        copy_object(store, "absent", other, "e", size_bytes=1)
    other.delete(["b", "c/d"])
    assert list(other.list("")) == []


@pytest.mark.parametrize("limit", [1 << 20, 16])
def test_an_object_is_copied_to_and_from_another_storage(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """A large one by way of a file."""
    monkeypatch.setattr("cairn.storage.copying.IN_MEMORY_BYTES", limit)
    other = MemoryStore("memory://x/y", MemoryBucket())
    data = b"0123456789" * 10
    other.put("a", data)

    copy_object(other, "a", store, "b", size_bytes=100)
    copy_object(other, "a", store, "b", size_bytes=100, crc32c=crc32c(data))
    copy_object(store, "b", other, "c", size_bytes=100, crc32c=crc32c(data))
    copy_object(store, "b", other, "d", size_bytes=100)

    assert other.get("c").data == other.get("d").data == data
    if isinstance(store, MemoryStore):
        return
    for size, checksum in ((99, None), (101, None), (100, 7)):
        with pytest.raises(CorruptError):
            copy_object(store, "b", other, "f", size_bytes=size, crc32c=checksum)
    with pytest.raises(MissingError):
        other.get("f")


def test_a_very_large_object_is_copied_in_parts(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 copies no more than 5 GiB at once, and a long copy is over the read timeout."""
    for module in ("store", "transfer"):
        monkeypatch.setattr(f"cairn.storage.s3.{module}.COPIED_AT_ONCE_BYTES", 5 << 20)
    data = b"0123456789abcdef" * (11 << 16)
    store.put("a", data)

    copy_object(store, "a", store, "b", size_bytes=len(data))

    assert store.get("b").data == data
