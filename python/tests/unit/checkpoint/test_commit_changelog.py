"""Commits: one PUT; where another attempt was first, the rule of docs/semantics.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_kit import (
    STORE,
    Crash,
    Stand,
    World,
    attempt,
    commit,
    crash_at,
    draft,
)

from cairn.checkpoint import faults
from cairn.checkpoint.commit_point import commit_changelog
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
from cairn.storage.base import Payload
from cairn.storage.memory import MemoryStore


@pytest.fixture
def plain(tmp_path: Path) -> World:
    """A bucket of checkpoint format 1."""
    return World(tmp_path, 1)


def test_committed_version_is_loaded_by_anyone(world: World) -> None:
    """The commit point is the PUT; nothing else is needed."""
    form = world.checkpoint_format

    one, _ = commit(world.objects, Stand(), {b"a": b"1"}, attempt(1), checkpoint_format=form)
    two, _ = commit(
        world.objects, one, {b"a": None, b"b": b"2"}, attempt(2), checkpoint_format=form
    )

    assert one.ref is not None
    assert two.ref is not None
    assert world.load(1, one.ref.checkpoint_id) == {b"a": b"1"}
    assert world.load(2, two.ref.checkpoint_id) == {b"b": b"2"}


def test_commit_costs_one_put(world: World) -> None:
    """22 requests a commit is what people complain about."""
    form = world.checkpoint_format
    stand, _ = commit(world.objects, Stand(), {}, attempt(1), checkpoint_format=form)
    before = world.objects.request_counts()

    commit(world.objects, stand, {b"a": b"1"}, attempt(2), checkpoint_format=form)

    after = world.objects.request_counts()
    spent = {api: n - before.get(api, 0) for api, n in after.items() if n != before.get(api, 0)}
    assert spent == {"PutObject": 1}


def test_same_commit_again_is_done(world: World) -> None:
    """A PUT whose answer was lost is repeated, and finds its own object."""
    header, data, _ = draft(Stand(), {b"a": b"1"}, attempt(1))
    form = world.checkpoint_format
    commit_changelog(world.objects, header, data, checkpoint_format=form)

    result = commit_changelog(world.objects, header, data, checkpoint_format=form)

    assert result.replaced is None
    assert world.names("changelog/") == [result.object_name]


def test_attempts_of_format_2_do_not_meet(tmp_path: Path) -> None:
    """Spark's commit log says which one counts."""
    world = World(tmp_path, 2)

    first, _ = commit(world.objects, Stand(), {b"a": b"1"}, attempt(1), checkpoint_format=2)
    second, _ = commit(world.objects, Stand(), {b"a": b"2"}, attempt(2), checkpoint_format=2)

    assert first.ref is not None
    assert second.ref is not None
    assert world.load(1, first.ref.checkpoint_id) == {b"a": b"1"}
    assert world.load(1, second.ref.checkpoint_id) == {b"a": b"2"}


def test_rerun_after_crash_between_state_and_batch_commit(world: World) -> None:
    """Plain create-if-absent would wedge every query that crashed there."""
    form = world.checkpoint_format
    one, _ = commit(world.objects, Stand(), {b"a": b"1"}, attempt(1), checkpoint_format=form)
    commit(world.objects, one, {b"a": b"lost"}, attempt(2), checkpoint_format=form)

    later = attempt(1, run="restarted", app_start_ms=2000)
    rerun, result = commit(world.objects, one, {b"a": b"2"}, later, checkpoint_format=form)

    assert rerun.ref is not None
    assert world.load(2, rerun.ref.checkpoint_id) == {b"a": b"2"}
    if form == 1:
        assert result.replaced is not None
        assert world.load(2, None) == {b"a": b"2"}
        assert world.load(2, result.replaced.checkpoint_id) == {b"a": b"lost"}


def test_restart_in_one_application_replaces(plain: World) -> None:
    """A query restarted in the same session has the same application start."""
    commit(plain.objects, Stand(), {b"a": b"1"}, attempt(4), checkpoint_format=1)

    commit(plain.objects, Stand(), {b"a": b"2"}, attempt(4, run="next"), checkpoint_format=1)

    assert plain.load(1, None) == {b"a": b"2"}


def test_zombie_put_after_the_next_version_was_built(world: World) -> None:
    """A plain overwrite would change what version 2 was built upon."""
    form = world.checkpoint_format
    zombie = draft(Stand(), {b"a": b"zombie"}, attempt(1))
    one, _ = commit(world.objects, Stand(), {b"a": b"1"}, attempt(2), checkpoint_format=form)
    two, _ = commit(world.objects, one, {b"b": b"2"}, attempt(3), checkpoint_format=form)

    if form == 1:
        with pytest.raises(FencedError) as raised:
            commit_changelog(world.objects, zombie[0], zombie[1], checkpoint_format=1)
        assert raised.value.store == str(STORE)
        assert raised.value.version == 1
        assert raised.value.object_name == world.objects.object_url("changelog/1.arrow")
        assert world.load(1, None) == {b"a": b"1"}
    else:
        commit_changelog(world.objects, zombie[0], zombie[1], checkpoint_format=2)

    assert two.ref is not None
    assert world.load(2, two.ref.checkpoint_id) == {b"a": b"1", b"b": b"2"}


def test_what_was_built_on_a_replaced_attempt_still_loads(plain: World) -> None:
    """Lineages name ids: the copy is found where the plain name holds another attempt."""
    lost, _ = commit(plain.objects, Stand(), {b"a": b"lost"}, attempt(1), checkpoint_format=1)
    upon, _ = commit(plain.objects, lost, {b"b": b"2"}, attempt(2), checkpoint_format=1)

    commit(plain.objects, Stand(), {b"a": b"1"}, attempt(3), checkpoint_format=1)

    assert upon.ref is not None
    assert plain.load(1, None) == {b"a": b"1"}
    assert plain.load(2, upon.ref.checkpoint_id) == {b"a": b"lost", b"b": b"2"}


@pytest.mark.parametrize(
    "point",
    [
        faults.COMMIT_BEFORE_PUT,
        faults.COMMIT_BEFORE_KEEP,
        faults.COMMIT_BEFORE_REPLACE,
        faults.COMMIT_AFTER_PUT,
    ],
)
def test_crash_inside_a_replacement_leaves_old_or_new(plain: World, point: str) -> None:
    """Whatever breaks, version 1 loads as one attempt wrote it, and the next attempt gets on."""
    old, _ = commit(plain.objects, Stand(), {b"a": b"old"}, attempt(1), checkpoint_format=1)

    with pytest.raises(Crash):
        commit(
            plain.objects,
            Stand(),
            {b"a": b"new"},
            attempt(2),
            checkpoint_format=1,
            fault=crash_at(point),
        )

    assert old.ref is not None
    is_new = point == faults.COMMIT_AFTER_PUT
    assert plain.load(1, None) == ({b"a": b"new"} if is_new else {b"a": b"old"})
    assert plain.load(1, old.ref.checkpoint_id) == {b"a": b"old"}
    commit(plain.objects, Stand(), {b"a": b"third"}, attempt(3), checkpoint_format=1)
    assert plain.load(1, None) == {b"a": b"third"}


def test_driver_whose_clock_is_behind_is_told_so(plain: World) -> None:
    """Restarted on another host it is fenced by its dead predecessor, with no second query."""
    dead = attempt(1, run="run-before", app_start_ms=90_000)
    commit(plain.objects, Stand(), {b"a": b"1"}, dead, checkpoint_format=1)

    with pytest.raises(FencedError, match=r"clock is behind .* 60000 ms after ours"):
        commit(
            plain.objects,
            Stand(),
            {b"a": b"2"},
            attempt(1, app_start_ms=30_000),
            checkpoint_format=1,
        )


def test_attempt_that_changes_meanwhile_is_looked_at_again(plain: World) -> None:
    """Between our look and our PUT, a newer attempt replaced the object: now we are the zombie."""
    commit(plain.objects, Stand(), {b"a": b"1"}, attempt(1), checkpoint_format=1)

    def overtake(point: str) -> None:
        if point == faults.COMMIT_BEFORE_REPLACE:
            commit(plain.connect(), Stand(), {b"a": b"3"}, attempt(3), checkpoint_format=1)

    with pytest.raises(FencedError):
        commit(
            plain.objects, Stand(), {b"a": b"2"}, attempt(2), checkpoint_format=1, fault=overtake
        )

    assert plain.load(1, None) == {b"a": b"3"}


def test_object_that_goes_meanwhile_is_written_anew(plain: World) -> None:
    """It was deleted between our PUT and our look."""
    commit(plain.objects, Stand(), {b"a": b"1"}, attempt(1), checkpoint_format=1)

    def delete(point: str) -> None:
        if point == faults.COMMIT_BEFORE_REPLACE:
            plain.connect().delete(["changelog/1.arrow"])

    commit(plain.objects, Stand(), {b"a": b"2"}, attempt(2), checkpoint_format=1, fault=delete)

    assert plain.load(1, None) == {b"a": b"2"}


def test_attempts_that_keep_overtaking_each_other_end(plain: World) -> None:
    """Rounds are bounded; Spark retries the task."""
    commit(plain.objects, Stand(), {b"a": b"1"}, attempt(1), checkpoint_format=1)

    def overtake(point: str) -> None:
        if point == faults.COMMIT_BEFORE_REPLACE:
            commit(plain.connect(), Stand(), {b"a": b"x"}, attempt(2), checkpoint_format=1)

    with pytest.raises(BusyError):
        commit(
            plain.objects, Stand(), {b"a": b"2"}, attempt(2), checkpoint_format=1, fault=overtake
        )


@pytest.mark.parametrize(
    ("there", "error"),
    [
        (b"not ours, whatever it may be", ForeignObjectError),
        (b"", CorruptError),
        (b"\xff\xff\xff\xff\x10\x00", CorruptError),
    ],
)
def test_what_cannot_be_read_is_not_overwritten(
    plain: World, there: bytes, error: type[Exception]
) -> None:
    """It may be somebody's; the error names it."""
    plain.objects.put("changelog/1.arrow", there)

    with pytest.raises(error) as raised:
        commit(plain.objects, Stand(), {b"a": b"1"}, attempt(1), checkpoint_format=1)

    assert "changelog/1.arrow" in str(raised.value)
    assert "Next: " in str(raised.value)
    assert plain.objects.get("changelog/1.arrow").data == there
    assert plain.names() == ["changelog/1.arrow"]


class _OverwritingStore(MemoryStore):
    """A storage that ignores If-None-Match."""

    def probe_conditional_put(self) -> None:
        raise ConditionalPutUnsupportedError("it overwrites", object_name=self.url)


def test_commit_to_a_store_that_overwrites_is_refused_in_format_1_only() -> None:
    """Commits of format 2 need no condition."""
    objects = _OverwritingStore("memory://x/state/0/3", clock=FakeClock())

    with pytest.raises(ConditionalPutUnsupportedError):
        commit(objects, Stand(), {}, attempt(1), checkpoint_format=1)
    commit(objects, Stand(), {}, attempt(1), checkpoint_format=2)


class _LosingStore(MemoryStore):
    """A storage whose answers to PUT are lost after the work was done."""

    def put_if_absent(self, key: str, data: Payload) -> str:
        super().put_if_absent(key, data)
        raise UnavailableError("no answer", object_name=self.object_url(key))


def test_put_whose_answer_is_lost_is_done_the_second_time(plain: World) -> None:
    """The caller does not know; repeating the same commit settles it."""
    header, data, _ = draft(Stand(), {b"a": b"1"}, attempt(1))
    losing = _LosingStore("memory://bucket/state/0/3", plain.bucket, plain.clock)

    with pytest.raises(UnavailableError) as raised:
        commit_changelog(losing, header, data, checkpoint_format=1)
    commit_changelog(plain.objects, header, data, checkpoint_format=1)

    assert raised.value.version == 1
    assert plain.names() == ["changelog/1.arrow"]


def test_unknown_checkpoint_format_is_a_bug(plain: World) -> None:
    """A format 3 of Spark's would need names of its own."""
    with pytest.raises(InternalError):
        commit(plain.objects, Stand(), {}, attempt(1), checkpoint_format=3)
