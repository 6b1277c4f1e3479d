"""Sessions over the real channel: what is committed, what is discarded, what a read sees."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from client import APPEND, DELETE, DROP_CF, LISTS, PUT, EngineError, Store, writes_batch

from cairn.protocol import frames
from harness.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from client import WorkerProcess

ABSENT, COMMITTED, SPILL, DELETED = 0, 1, 2, 3


def test_a_commit_creates_a_version_of_exactly_its_writes(store: Store) -> None:
    """The ordinary batch: puts, a delete, an append; then the next session reads them."""
    store.write([(PUT, 0, b"a", b"1"), (PUT, 0, b"b", b"2"), (APPEND, 1, b"L", b"x")])
    store.write([(DELETE, 0, b"a", None), (APPEND, 1, b"L", b"y")])
    answer = store.commit()

    store.load(1, store.checkpoint_id)

    assert answer["counts"] == {"0": 1, "1": 1}
    assert store.get([b"a", b"b"]) == [(ABSENT, None), (COMMITTED, b"2")]
    assert store.get([b"L"], cf=1) == [(COMMITTED, b"xy")]


# A commit that comes to its frames makes the file.
COMMITTING = """
import pathlib
from cairn.store.write.session import StoreSession
complete = StoreSession.complete
def noted(*arguments):
    pathlib.Path({file!r}).touch()
    return complete(*arguments)
StoreSession.complete = noted
"""


def test_a_commit_that_races_its_last_frame_waits_for_it(
    spawn: Callable[..., WorkerProcess], url: str, tmp_path: Path
) -> None:
    """Two channels have no order between them: the frame may come after the commit's call."""
    commits = tmp_path / "commits"
    store = Store(spawn(patch=COMMITTING.format(file=str(commits))), 1, url)
    store.load(0)
    store.write([(PUT, 0, b"a", b"1")])
    late = writes_batch([(PUT, 0, b"b", b"2")])
    result: list[dict[str, object]] = []
    store.frames, store.rows = 2, 2
    commit = threading.Thread(target=lambda: result.append(store.commit(expected_rows=2)))
    commit.start()
    wait_until(commits.exists, 20, "the commit in the worker")
    assert not result

    store.channel.send(frames.WRITES, store.session, late.serialize(), sequence=2, rows=1)
    commit.join(20)

    assert result[0]["counts"] == {"0": 2, "1": 0}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [([(PUT, 0, b"a", b"1")], 0), ([(DELETE, 0, b"a", None, 1)], 0), ([], 1)],
    ids=["taken_back", "delete", "lost"],
)
def test_a_commit_whose_writes_the_shim_counts_otherwise_is_refused(
    store: Store, sent: list[tuple[Any, ...]], expected: int
) -> None:
    """A key that the session removed would come back, or a write would be lost, in silence."""
    store.write([(PUT, 0, b"kept", b"1")])
    if sent:
        store.write(sent)

    with pytest.raises(EngineError, match=r"CAIRN_PROTOCOL.*disagree"):
        store.commit(expected_rows=1 + expected)

    store.load(0)
    assert store.scan() == {}


def test_a_commit_with_other_rows_than_arrived_fails_and_changes_nothing(store: Store) -> None:
    """A lost write must fail the batch, never shorten it."""
    store.write([(PUT, 0, b"a", b"1")])
    store.rows = 2

    with pytest.raises(EngineError, match="CAIRN_FRAMES_MISSING"):
        store.commit()

    store.load(0)
    assert store.scan() == {}


def test_frames_of_a_closed_session_are_discarded(store: Store) -> None:
    """A zombie task that still sends must not reach its successor's version."""
    store.write([(PUT, 0, b"old", b"1")])
    old_session = store.session
    store.load(0)
    zombie = writes_batch([(PUT, 0, b"zombie", b"1")])
    store.channel.send(frames.WRITES, old_session, zombie.serialize(), sequence=2, rows=1)
    store.write([(PUT, 0, b"new", b"1")])
    store.commit()

    store.load(1, store.checkpoint_id)

    assert store.scan() == {b"new": b"1"}


def test_abort_after_a_read_of_the_spill_leaves_the_version_unchanged(store: Store) -> None:
    """The spill that a read returned must not stay in RocksDB."""
    store.write([(PUT, 0, b"a", b"1"), (APPEND, 1, b"L", b"x")])
    store.commit()
    store.load(1, store.checkpoint_id)
    store.write([(PUT, 0, b"a", b"2"), (DELETE, 1, b"L", None), (PUT, 0, b"n", b"3")])
    assert store.get([b"a", b"n"]) == [(SPILL, b"2"), (SPILL, b"3")]
    assert store.get([b"L"], cf=1) == [(DELETED, None)]

    store.abort()
    store.load(1, store.checkpoint_id)

    assert store.get([b"a", b"n"]) == [(COMMITTED, b"1"), (ABSENT, None)]
    assert store.scan(1) == {b"L": b"x"}


def test_a_scan_merges_the_spill_over_the_committed_rows(store: Store) -> None:
    """Pages of two sources: neither a deleted row nor a gap between two pages."""
    committed = {b"%04d" % n: b"c" for n in range(0, 200, 2)}
    store.write([(PUT, 0, key, value) for key, value in committed.items()])
    store.commit()
    store.load(1, store.checkpoint_id)
    store.write([(PUT, 0, b"%04d" % n, b"s") for n in range(1, 200, 2)])
    store.write([(DELETE, 0, b"%04d" % n, None) for n in range(100)])
    store.write([(PUT, 0, b"%04d" % n, b"t") for n in range(50, 60)])

    found = store.scan(limit_rows=7)

    expected = {b"%04d" % n: b"t" for n in range(50, 60)}
    expected |= {b"%04d" % n: b"s" if n % 2 else b"c" for n in range(100, 200)}
    assert list(found.items()) == sorted(expected.items())
    assert store.page(0, b"0050", b"0052")[0] == [(2, b"0050", b"t"), (2, b"0051", b"t")]


def test_an_append_in_a_spill_reads_as_the_whole_list(store: Store) -> None:
    """A list consists of the committed part and the session's own."""
    store.write([(APPEND, 1, b"L", b"a"), (APPEND, 1, b"M", b"m")])
    store.commit()
    store.load(1, store.checkpoint_id)
    store.write([(APPEND, 1, b"L", b"b"), (PUT, 1, b"M", b"n")])
    store.get([b"L"], cf=1)
    store.write([(APPEND, 1, b"L", b"c"), (APPEND, 1, b"N", b"o")])

    assert store.get([b"L", b"M", b"N"], cf=1) == [(SPILL, b"abc"), (SPILL, b"n"), (SPILL, b"o")]
    answer = store.commit()
    store.load(2, store.checkpoint_id)
    assert store.scan(1) == {b"L": b"abc", b"M": b"n", b"N": b"o"}
    assert answer["counts"]["1"] == 3


def test_a_dropped_family_and_its_keys_are_removed(store: Store) -> None:
    """Spark's removeColFamilyIfExists; the family's id is never used again."""
    store.write([(PUT, 0, b"a", b"1"), (APPEND, 1, b"L", b"x")])
    store.commit()
    store.load(1, store.checkpoint_id)
    store.write([(APPEND, 1, b"M", b"y"), (DROP_CF, 1, b"", None)])
    assert store.get([b"L"], cf=1) == [(DELETED, None)]
    store.families = [family for family in store.families if family is not LISTS]
    answer = store.commit(max_cf_id=1)

    loaded = store.load(2, store.checkpoint_id)

    assert answer["counts"] == {"0": 1}
    assert [family["id"] for family in loaded["column_families"]] == [0]
    assert loaded["max_cf_id"] == 1
    assert store.scan(1) == {}


def test_a_large_spill_goes_to_the_local_disk_and_commits_whole(store: Store) -> None:
    """Several runs: the newest write wins, appends add up."""
    value = b"v" * 1000
    for round_number in range(3):
        for start in range(0, 12_000, 2_000):
            store.write(
                [
                    (PUT, 0, b"%06d" % n, b"%d" % round_number + value)
                    for n in range(start, start + 2_000)
                ]
            )
        store.write([(APPEND, 1, b"L", b"%d" % round_number)])
    assert store.get([b"000007"])[0] == (SPILL, b"2" + value)

    answer = store.commit()
    store.load(1, store.checkpoint_id)

    assert answer["counts"] == {"0": 12_000, "1": 1}
    maintained = store.worker.call("maintain", instance=store.number, snapshot=False, cleanup=True)
    assert maintained["engine"]["spilled_bytes"] > 12_000 * len(value)
    assert store.get([b"L"], cf=1) == [(COMMITTED, b"012")]
    assert store.get([b"011999"]) == [(COMMITTED, b"2" + value)]


def test_an_older_version_is_loaded_on_an_instance_with_a_newer_one(store: Store) -> None:
    """A failed batch runs again: nothing of the newer version may be visible."""
    ids: list[str | None] = [None]
    for version in range(1, 5):
        store.write([(PUT, 0, b"v", b"%d" % version), (PUT, 0, b"k%d" % version, b"x")])
        store.commit()
        ids.append(store.checkpoint_id)
        store.load(version, store.checkpoint_id)

    store.load(2, ids[2])

    assert store.scan() == {b"v": b"2", b"k1": b"x", b"k2": b"x"}
    store.write([(PUT, 0, b"v", b"again")])
    assert store.commit()["counts"]["0"] == 3


def test_a_lookup_reads_what_a_get_reads(store: Store) -> None:
    """The shim chooses by the number of keys alone."""
    store.write([(PUT, 0, b"a", b"1"), (PUT, 0, b"", b""), (APPEND, 1, b"L", b"x")])
    store.commit()
    store.load(1, store.checkpoint_id)
    assert store.look_up([b"a"]) == [(COMMITTED, b"1")]
    assert store.look_up([b""]) == [(COMMITTED, b"")]
    assert store.look_up([b"none"]) == [(ABSENT, None)]
    assert store.look_up([b"L"], cf=1) == [(COMMITTED, b"x")]
    many = [b"a", b"none", b""] * 21 + [b"a"]
    assert store.look_up(many) == store.get(many)

    store.write([(PUT, 0, b"a", b"2"), (DELETE, 0, b"", None), (APPEND, 1, b"L", b"y")])

    assert store.look_up([b"a"]) == [(SPILL, b"2")]
    assert store.look_up([b"a", b"", b"b"]) == [(SPILL, b"2"), (DELETED, None), (ABSENT, None)]
    assert store.look_up([b"L"], cf=1) == [(SPILL, b"xy")]


def test_a_large_value_is_looked_up_whole(store: Store) -> None:
    """The reply is larger than the socket's buffer: it leaves in parts."""
    value = bytes(range(256)) * 40_000
    store.write([(PUT, 0, b"a", value)])
    store.commit()
    store.load(1, store.checkpoint_id)

    assert store.look_up([b"a"]) == [(COMMITTED, value)]
    assert store.look_up([b"a", b"a", b"b"])[:2] == [(COMMITTED, value)] * 2


def test_a_lookup_that_cannot_be_answered_gets_the_error_of_a_get(store: Store) -> None:
    """The shim decides by the error what to do."""
    for payload, rows in ((b"", 1), (b"\0" * 7, 1), (b"\0" * 6, 2), (b"\0" * 6, 0)):
        store.channel.send(frames.LOOKUP, store.session, payload, rows=rows)
        with pytest.raises(EngineError, match="CAIRN_PROTOCOL"):
            store.channel.receive()
    with pytest.raises(EngineError, match="CAIRN_PROTOCOL"):
        store.look_up([b"a"], applied=7)
    store.number = 8
    with pytest.raises(EngineError, match="CAIRN_UNKNOWN_INSTANCE"):
        store.look_up([b"a"])
    store.number = 1
    former = store.session_number
    store.load(0)
    store.session_number = former
    with pytest.raises(EngineError, match="CAIRN_CLOSED"):
        store.look_up([b"a"])


def test_two_instances_of_one_store_do_not_disturb_each_other(
    worker: WorkerProcess, store: Store, url: str
) -> None:
    """A state reader beside the running query, in one JVM."""
    store.write([(PUT, 0, b"a", b"1")])
    store.commit()
    first = store.checkpoint_id
    reader = Store(worker, 2, url)
    reader.load(1, first)
    store.load(1, first)
    store.write([(PUT, 0, b"a", b"2")])
    store.commit()
    store.load(2, store.checkpoint_id)

    assert reader.get([b"a"]) == [(COMMITTED, b"1")]
    assert store.get([b"a"]) == [(COMMITTED, b"2")]


def test_presence_is_resolved_against_the_base_version(store: Store) -> None:
    """Counts are right even if the cache knows no presence."""
    store.write([(PUT, 0, b"%05d" % n, b"v", 2) for n in range(2_000)])
    assert store.commit()["counts"]["0"] == 2_000
    store.load(1, store.checkpoint_id)
    store.write([(PUT, 0, b"%05d" % n, b"v") for n in range(1_000, 3_000)])
    store.write([(DELETE, 0, b"%05d" % n, None) for n in range(500)])
    store.write([(DELETE, 0, b"none", None)])

    assert store.commit()["counts"]["0"] == 2_500


def test_a_read_that_requires_a_version_never_committed_is_refused(store: Store) -> None:
    """It would never get a reply."""
    with pytest.raises(EngineError, match="CAIRN_PROTOCOL") as raised:
        store.get([b"a"], applied=7)
    assert (raised.value.fields["store"], raised.value.fields["version"]) == ("0/3/default", 0)


def test_an_unknown_instance_has_its_own_error(worker: WorkerProcess, store: Store) -> None:
    """After a worker's death the shim opens and loads again, and needs this code for it."""
    with pytest.raises(EngineError) as failed:
        worker.call("load", instance=9, session=1, version=0)
    assert failed.value.code == "CAIRN_UNKNOWN_INSTANCE"
    assert failed.value.kind == "retry"

    store.number = 8
    with pytest.raises(EngineError, match="CAIRN_UNKNOWN_INSTANCE"):
        store.get([b"a"])


def test_counting_can_be_switched_off_and_on_again(store: Store) -> None:
    """Spark's trackTotalNumberOfRows may change between two runs of a query."""
    store.write([(PUT, 0, b"%03d" % n, b"v") for n in range(100)])
    assert store.commit(track_counts=False)["counts"] == {}
    store.load(1, store.checkpoint_id)
    store.write([(PUT, 0, b"x", b"v"), (DELETE, 0, b"000", None), (DELETE, 0, b"001", None)])

    assert store.commit()["counts"]["0"] == 99
