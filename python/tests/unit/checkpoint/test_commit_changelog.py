"""Commits: one PUT; if another attempt was first, the rule of docs/semantics.md applies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoint_kit import STORE, Crash, ModelVersion, World, attempt, commit, crash_at, draft

from cairn.checkpoint.commit_point import commit_changelog
from cairn.checkpoint.faults import FaultPoint
from cairn.clock import FakeClock
from cairn.errors import (
    BusyError,
    ConditionalPutUnsupportedError,
    CorruptError,
    FencedError,
    ForeignObjectError,
    InternalError,
    UnavailableError,
)
from cairn.format import changelog
from cairn.format.names import changelog_name
from cairn.format.spark_log import COMMITS_PREFIX
from cairn.storage.base import Payload
from cairn.storage.memory import MemoryStore

EMPTY = ModelVersion()


@pytest.fixture
def plain(tmp_path: Path) -> World:
    """A bucket of checkpoint format 1."""
    return World(tmp_path, 1)


def test_every_machine_can_load_a_committed_version(world: World) -> None:
    """The commit point is the PUT; nothing else is needed."""
    one = world.commit(EMPTY, {b"a": b"1"}, attempt(1))
    two = world.commit(one, {b"a": None, b"b": b"2"}, attempt(2))

    assert one.ref is not None
    assert two.ref is not None
    assert world.load(1, one.ref.checkpoint_id) == {b"a": b"1"}
    assert world.load(2, two.ref.checkpoint_id) == {b"b": b"2"}


def test_commit_costs_one_put(world: World) -> None:
    """Users pay for each request and wait for it."""
    one = world.commit(EMPTY, {}, attempt(1))
    before = world.objects.request_counts()

    world.commit(one, {b"a": b"1"}, attempt(2))

    after = world.objects.request_counts()
    spent = {api: n - before.get(api, 0) for api, n in after.items() if n != before.get(api, 0)}
    assert spent == {"PutObject": 1}


def test_repeated_commit_succeeds(world: World) -> None:
    """A PUT whose answer was lost is repeated, and finds its own object."""
    header, data, _ = draft(EMPTY, {b"a": b"1"}, attempt(1))
    form = world.checkpoint_format
    commit_changelog(world.objects, header, data, checkpoint_format=form)

    commit_changelog(world.objects, header, data, checkpoint_format=form)

    assert len(world.names("changelog/")) == 1


def test_attempts_of_format_2_have_separate_objects(tmp_path: Path) -> None:
    """Spark's commit log says which attempt counts."""
    world = World(tmp_path, 2)

    first = world.commit(EMPTY, {b"a": b"1"}, attempt(1))
    second = world.commit(EMPTY, {b"a": b"2"}, attempt(2))

    assert first.ref is not None
    assert second.ref is not None
    assert world.load(1, first.ref.checkpoint_id) == {b"a": b"1"}
    assert world.load(1, second.ref.checkpoint_id) == {b"a": b"2"}


def test_rerun_after_crash_between_state_and_batch_commit(world: World) -> None:
    """Create-if-absent alone would block every query that crashed there."""
    one = world.commit(EMPTY, {b"a": b"1"}, attempt(1))
    lost = world.commit(one, {b"a": b"lost"}, attempt(2))

    later = attempt(1, run="restarted", app_start_ms=2000)
    rerun = world.commit(one, {b"a": b"2"}, later)

    assert rerun.ref is not None
    assert lost.ref is not None
    assert world.load(2, rerun.ref.checkpoint_id) == {b"a": b"2"}
    assert world.load(2, lost.ref.checkpoint_id) == {b"a": b"lost"}
    if world.checkpoint_format == 1:
        assert changelog_name(lost.ref) in world.names("changelog/")
        assert world.load(2, None) == {b"a": b"2"}


def test_restart_in_one_application_replaces(plain: World) -> None:
    """A query restarted in the same session has the same application start."""
    plain.commit(EMPTY, {b"a": b"1"}, attempt(4))

    plain.commit(EMPTY, {b"a": b"2"}, attempt(4, run="next"))

    assert plain.load(1, None) == {b"a": b"2"}


def test_late_put_of_a_zombie_does_not_change_the_next_version(world: World) -> None:
    """A plain overwrite would change the version that version 2 is based on."""
    header, data, _ = draft(EMPTY, {b"a": b"zombie"}, attempt(1))
    one = world.commit(EMPTY, {b"a": b"1"}, attempt(2))
    two = world.commit(one, {b"b": b"2"}, attempt(3))

    if world.checkpoint_format == 1:
        with pytest.raises(FencedError) as raised:
            commit_changelog(world.objects, header, data, checkpoint_format=1)
        assert raised.value.store == str(STORE)
        assert raised.value.version == 1
        assert raised.value.object_name == world.objects.object_url("changelog/1.arrow")
        assert world.load(1, None) == {b"a": b"1"}
    else:
        commit_changelog(world.objects, header, data, checkpoint_format=2)

    assert two.ref is not None
    assert world.load(2, two.ref.checkpoint_id) == {b"a": b"1", b"b": b"2"}


@pytest.mark.parametrize(
    "commits", [(0,), (0, 1), (7, 8)], ids=["its batch", "later ones too", "its own was purged"]
)
def test_a_late_twin_does_not_replace_a_version_whose_batch_is_committed(
    world: World, commits: tuple[int, ...]
) -> None:
    """Its number is higher than that of the attempt whose rows the query has."""
    one = world.commit(EMPTY, {b"a": b"1"}, attempt(1))
    world.log(COMMITS_PREFIX, *commits)
    before = world.names()

    if world.checkpoint_format == 1:
        with pytest.raises(FencedError, match="batch 0 is committed with this version") as refused:
            world.commit(EMPTY, {b"a": b"twin"}, attempt(2))
        assert refused.value.object_name == world.objects.object_url("changelog/1.arrow")
        assert world.names() == before
        assert world.load(1, None) == {b"a": b"1"}
    else:
        world.commit(EMPTY, {b"a": b"twin"}, attempt(2))
    assert one.ref is not None
    assert world.load(1, one.ref.checkpoint_id) == {b"a": b"1"}


def test_a_late_twin_of_a_store_with_a_name_is_refused(plain: World) -> None:
    """Joins have several stores, one folder deeper than others."""
    store = replace(STORE, name="left-keyToNumValues")
    objects = MemoryStore("memory://bucket/state/0/3/left-keyToNumValues", plain.bucket)
    first, late = (draft(EMPTY, {b"a": b"1"}, attempt(n))[0] for n in (1, 2))
    first, late = replace(first, store=store), replace(late, store=store)
    commit_changelog(objects, first, changelog.encode(first, []), checkpoint_format=1)
    plain.log(COMMITS_PREFIX, 0)

    with pytest.raises(FencedError):
        commit_changelog(objects, late, changelog.encode(late, []), checkpoint_format=1)


def test_a_batch_that_is_rolled_back_by_hand_is_replaced(plain: World) -> None:
    """The newest entries of Spark's logs were deleted: the batches run again."""
    one = plain.commit(EMPTY, {b"a": b"1"}, attempt(1))
    plain.commit(one, {b"a": b"2"}, attempt(2))
    plain.log(COMMITS_PREFIX, 0, 1)
    plain.log(COMMITS_PREFIX, 0)

    plain.commit(one, {b"a": b"again"}, attempt(3))

    assert plain.load(2, None) == {b"a": b"again"}


def test_twins_that_both_end_before_their_batch_is_committed_replace_each_other(
    plain: World,
) -> None:
    """What format 1 does not promise: the newer one stays, whichever Spark has taken."""
    first = plain.commit(EMPTY, {b"a": b"first"}, attempt(1))
    plain.commit(EMPTY, {b"a": b"twin"}, attempt(2))
    plain.log(COMMITS_PREFIX, 0)

    assert first.ref is not None
    assert plain.load(1, None) == {b"a": b"twin"}
    assert plain.load(1, first.ref.checkpoint_id) == {b"a": b"first"}


def test_version_on_a_replaced_attempt_still_loads(plain: World) -> None:
    """Lineages name ids: the load finds the copy where the plain name has another attempt."""
    lost = plain.commit(EMPTY, {b"a": b"lost"}, attempt(1))
    after = plain.commit(lost, {b"b": b"2"}, attempt(2))

    plain.commit(EMPTY, {b"a": b"1"}, attempt(3))

    assert after.ref is not None
    assert plain.load(1, None) == {b"a": b"1"}
    assert plain.load(2, after.ref.checkpoint_id) == {b"a": b"lost", b"b": b"2"}


@pytest.mark.parametrize(
    "point", [point for point in FaultPoint if point.startswith("commit.")], ids=str
)
def test_crash_inside_a_replacement_leaves_old_or_new(plain: World, point: FaultPoint) -> None:
    """After any crash version 1 loads as one attempt wrote it, and the next attempt succeeds."""
    old = plain.commit(EMPTY, {b"a": b"old"}, attempt(1))

    with pytest.raises(Crash):
        plain.commit(EMPTY, {b"a": b"new"}, attempt(2), fault=crash_at(point))

    assert old.ref is not None
    is_new = point is FaultPoint.COMMIT_AFTER_PUT
    assert plain.load(1, None) == ({b"a": b"new"} if is_new else {b"a": b"old"})
    assert plain.load(1, old.ref.checkpoint_id) == {b"a": b"old"}
    plain.commit(EMPTY, {b"a": b"third"}, attempt(3))
    assert plain.load(1, None) == {b"a": b"third"}


def test_the_error_names_a_clock_that_is_behind(plain: World) -> None:
    """After a restart on another host the ended driver fences it; there is no second query."""
    ended = attempt(1, run="run-before", app_start_ms=90_000)
    plain.commit(EMPTY, {b"a": b"1"}, ended)

    with pytest.raises(FencedError, match=r"clock is behind .* 60000 ms after this one"):
        plain.commit(EMPTY, {b"a": b"2"}, attempt(1, app_start_ms=30_000))


def test_attempt_that_changes_meanwhile_is_read_again(plain: World) -> None:
    """A newer attempt replaced the object between our GET and our PUT: ours is fenced."""
    plain.commit(EMPTY, {b"a": b"1"}, attempt(1))

    def overtake(point: str) -> None:
        if point == FaultPoint.COMMIT_BEFORE_REPLACE:
            plain.commit(EMPTY, {b"a": b"3"}, attempt(3))

    with pytest.raises(FencedError):
        plain.commit(EMPTY, {b"a": b"2"}, attempt(2), fault=overtake)

    assert plain.load(1, None) == {b"a": b"3"}


def test_object_that_is_deleted_meanwhile_is_created(plain: World) -> None:
    """It was deleted between our GET and our PUT."""
    plain.commit(EMPTY, {b"a": b"1"}, attempt(1))

    def delete(point: str) -> None:
        if point == FaultPoint.COMMIT_BEFORE_REPLACE:
            plain.connect().delete(["changelog/1.arrow"])

    plain.commit(EMPTY, {b"a": b"2"}, attempt(2), fault=delete)

    assert plain.load(1, None) == {b"a": b"2"}


def test_attempts_that_keep_replacing_each_other_end(plain: World) -> None:
    """The rounds are bounded; Spark retries the task."""
    plain.commit(EMPTY, {b"a": b"1"}, attempt(1))

    def overtake(point: str) -> None:
        if point == FaultPoint.COMMIT_BEFORE_REPLACE:
            plain.commit(EMPTY, {b"a": b"x"}, attempt(2))

    with pytest.raises(BusyError):
        plain.commit(EMPTY, {b"a": b"2"}, attempt(2), fault=overtake)


@pytest.mark.parametrize(
    ("present", "error"),
    [
        (b"a file of another program", ForeignObjectError),
        (b"", CorruptError),
        (b"\xff\xff\xff\xff\x10\x00", CorruptError),
    ],
)
def test_object_that_cannot_be_read_is_not_overwritten(
    plain: World, present: bytes, error: type[Exception]
) -> None:
    """Another program may own it; the error names it."""
    plain.objects.put("changelog/1.arrow", present)

    with pytest.raises(error) as raised:
        plain.commit(EMPTY, {b"a": b"1"}, attempt(1))

    assert "changelog/1.arrow" in str(raised.value)
    assert "Next: " in str(raised.value)
    assert plain.objects.get("changelog/1.arrow").data == present
    assert plain.names() == ["changelog/1.arrow"]


class _OverwritingStore(MemoryStore):
    """A storage that ignores If-None-Match."""

    def probe_conditional_put(self) -> None:
        raise ConditionalPutUnsupportedError("it overwrites", object_name=self.url)


def test_commit_to_a_store_that_overwrites_is_refused_in_format_1_only() -> None:
    """Commits of format 2 need no condition."""
    objects = _OverwritingStore("memory://x/state/0/3", clock=FakeClock())

    with pytest.raises(ConditionalPutUnsupportedError):
        commit(objects, EMPTY, {}, attempt(1), checkpoint_format=1)
    commit(objects, EMPTY, {}, attempt(1), checkpoint_format=2)


class _LosingStore(MemoryStore):
    """A storage whose answers to PUT are lost after the object was stored."""

    def put_if_absent(self, key: str, data: Payload) -> None:
        super().put_if_absent(key, data)
        raise UnavailableError("no answer", object_name=self.object_url(key))


def test_put_whose_answer_is_lost_succeeds_the_second_time(plain: World) -> None:
    """The caller does not know the outcome; a repetition of the same commit succeeds."""
    header, data, _ = draft(EMPTY, {b"a": b"1"}, attempt(1))
    losing = _LosingStore("memory://bucket/state/0/3", plain.bucket, plain.clock)

    with pytest.raises(UnavailableError) as raised:
        commit_changelog(losing, header, data, checkpoint_format=1)
    commit_changelog(plain.objects, header, data, checkpoint_format=1)

    assert raised.value.version == 1
    assert plain.names() == ["changelog/1.arrow"]


def test_a_damaged_changelog_of_an_earlier_attempt_says_when_it_is_not_needed(plain: World) -> None:
    """The query could not start: it was to be restarted from where it was."""
    header, data, _ = draft(EMPTY, {b"a": b"1"}, attempt(1))
    plain.objects.put("changelog/1.arrow", data[:-9])

    with pytest.raises(CorruptError) as refused:
        commit_changelog(plain.objects, header, data, checkpoint_format=1)

    assert "has no batch 0, nobody needs this object: move it away" in str(refused.value)


def test_unknown_checkpoint_format_is_a_bug(plain: World) -> None:
    """A format 3 of Spark would need its own names."""
    with pytest.raises(InternalError):
        commit(plain.objects, EMPTY, {}, attempt(1), checkpoint_format=3)
