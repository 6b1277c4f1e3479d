"""An instance against a dictionary per version: each version always has its rows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from offline import LITTLE_MEMORY, read_offline
from rig import Rig, family

from cairn.errors import DataError
from cairn.rocks import RocksDb, ingestion
from cairn.rocks.keys import successor
from cairn.store.local import arrivals, writer
from cairn.store.rows.committed import CommittedRows, ScanRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 5
PUT, DELETE, APPEND, DROP = 1, 2, 3, 4
PLAIN, LISTS, SPARE = 0, 1, 2
PRESENT, ABSENT = 1, 2

KEYS = st.one_of(
    st.sampled_from([b"", b"a", b"a\x00", b"a\x00\x01", b"b", b"\xff"]),
    st.integers(0, 60).map(lambda n: b"%03d" % n),
)
VALUES = st.binary(min_size=1, max_size=4)
ROWS = st.one_of(
    st.tuples(st.just(PUT), st.sampled_from([PLAIN, LISTS, SPARE]), KEYS, VALUES),
    st.tuples(st.just(DELETE), st.sampled_from([PLAIN, LISTS, SPARE]), KEYS, st.none()),
    st.tuples(st.just(APPEND), st.just(LISTS), KEYS, VALUES),
)

Row = tuple[int, int, bytes, bytes | None]
ROW_LISTS = st.lists(ROWS, min_size=1, max_size=12)
State = dict[int, dict[bytes, bytes]]


class InstanceMachine(RuleBasedStateMachine):
    """Versions in ``history``: rows, checkpoint id; ``now`` is the open session's view.

    ``held``: version, incarnation and rows of a snapshot that was begun. Whether one can begin
    depends on threads, so no precondition may depend on it: a rule then does nothing.
    """

    checkpoint_format = 2
    retained = 100
    pending_bytes = 1 << 20
    lent_cache_bytes = 0
    holds_back = True

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cairn-model-"))
        self.history: list[tuple[State, str | None]] = [({PLAIN: {}, LISTS: {}, SPARE: {}}, None)]
        self.rigs = 0
        self.attempt = 0
        self.oldest = 0  # versions below it may have been purged
        self.checkpoints = 0
        self.held: tuple[int, int, State] | None = None
        self.rig = self.fresh_rig()
        self.open(0)

    def fresh_rig(self) -> Rig:
        self.rigs += 1
        return Rig(
            self.folder / f"local{self.rigs}",
            str(self.folder / "objects"),
            self.checkpoint_format,
            {
                "minDeltasForSnapshot": 2,
                "minBatchesToRetain": self.retained,
                "orphanGraceMs": 0,
                # A commit that must have a snapshot waits five times as long for the one held back.
                "requestTimeoutMs": 200,
            },
            self.pending_bytes,
            lent_cache_bytes=self.lent_cache_bytes,
        )

    def open(self, version: int) -> None:
        state, checkpoint_id = self.history[version]
        answer = self.rig.load(version, checkpoint_id if self.checkpoint_format == 2 else None)
        assert answer["version"] == version
        assert {int(cf): n for cf, n in answer["counts"].items()} == (
            {} if version == 0 else {cf: len(rows) for cf, rows in state.items()}
        )
        # Versions after one that runs again are void.
        del self.history[version + 1 :]
        self.version = version
        self.now = {cf: dict(rows) for cf, rows in state.items()}
        self.dropped = SPARE not in state

    @rule(rows=ROW_LISTS, knows=st.booleans())
    def write(self, rows: list[Row], *, knows: bool) -> None:
        """A frame of writes; reads of it make a spill."""
        self.write_frame(rows, knows=knows)

    @rule(
        versions=st.lists(ROW_LISTS, min_size=1, max_size=4),
        then=st.sampled_from(["nothing", "begin to write", "write"]),
        beside_checkpoint=st.booleans(),
    )
    def commit_some(self, versions: list[list[Row]], then: str, *, beside_checkpoint: bool) -> None:
        """Versions one after the other; so lists and families are replaced that were written."""
        if beside_checkpoint and self.held is None:
            self.hold()
        for rows in versions:
            self.write_frame(rows, knows=False)
            self.commit_and_open(follow=True)
            if then != "nothing":
                self.rig.event_loop.run(self.rig.local.writer.write_runs)
        if then == "write" and self.held is None:
            self.rig.until_written(self.version)
        if beside_checkpoint:
            self.check_checkpoint()
        self.scan_all()

    def shaped(self, row: Row) -> Row:
        """Return the row that is written for a drawn one."""
        return row

    def write_frame(self, rows: list[Row], *, knows: bool) -> None:
        frame = self.applied(rows, knows=knows)
        if frame:
            self.rig.write(frame)

    def applied(self, rows: list[Row], *, knows: bool) -> list[tuple[Any, ...]]:
        """Apply writes to the model; return them as a frame has them."""
        committed = self.history[self.version][0]
        kept = [row for row in map(self.shaped, rows) if row[1] in self.now]
        frame: list[tuple[Any, ...]] = []
        for op, cf, key, value in kept:
            family_rows = self.now[cf]
            if op == PUT:
                family_rows[key] = value or b""
            elif op == APPEND:
                family_rows[key] = family_rows.get(key, b"") + (value or b"")
            else:
                family_rows.pop(key, None)
            presence = PRESENT if key in committed.get(cf, {}) else ABSENT
            frame.append((op, cf, key, value, presence if knows else 0))
        return frame

    @rule(keys=st.lists(KEYS, min_size=1, max_size=5), cf=st.sampled_from([PLAIN, LISTS]))
    def read(self, keys: list[bytes], cf: int) -> None:
        self.rig.until_applied(self.version)
        assert self.rig.get(cf, keys) == [self.now[cf].get(key) for key in keys]

    @rule(keys=st.lists(KEYS, min_size=1, max_size=2), cf=st.sampled_from([PLAIN, LISTS]))
    def look_up(self, keys: list[bytes], cf: int) -> None:
        """The shim's read of a few keys; it may have to wait for deltas and for the spill."""
        found = self.rig.look_up(cf, keys, self.version)
        assert found == [self.now[cf].get(key) for key in keys]

    @rule(bounds=st.sets(KEYS, min_size=2, max_size=8), cf=st.sampled_from([PLAIN, LISTS]))
    def ranges(self, bounds: set[bytes], cf: int) -> None:
        """Ranges of any kind."""
        ordered = sorted(bounds)
        self.read_ranges(cf, list(zip(ordered[::2], [*ordered[1::2], None], strict=False)))

    @rule(keys=st.sets(KEYS, min_size=1), cf=st.sampled_from([PLAIN, LISTS]))
    def prefixes(self, keys: set[bytes], cf: int) -> None:
        """The shim's read of prefixes; the commit takes from it which keys exist."""
        heads = sorted({key[:1] for key in keys if key})
        if heads:
            self.read_ranges(cf, [(head, successor(head)) for head in heads])

    def read_ranges(self, cf: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        self.rig.until_applied(self.version)

        rows, more = self.rig.ranges(cf, pairs)

        assert not more
        assert rows == [
            (key, value)
            for key, value in sorted(self.now[cf].items())
            if any(low <= key and (high is None or key < high) for low, high in pairs)
        ]

    @rule()
    def scan(self) -> None:
        self.scan_all()

    def scan_all(self) -> None:
        for cf, rows in self.now.items():
            found = self.rig.contents(cf, self.version)
            assert list(found.items()) == sorted(rows.items())

    @precondition(lambda self: not self.dropped)
    @rule()
    def drop_family(self) -> None:
        self.rig.write([(DROP, SPARE, b"", None, 0)])
        del self.now[SPARE]
        self.dropped = True

    @rule(follow=st.booleans())
    def commit(self, *, follow: bool) -> None:
        self.commit_and_open(follow=follow)

    def commit_and_open(self, *, follow: bool) -> None:
        families = [family(PLAIN, multi=False), family(LISTS, multi=True)]
        if SPARE in self.now:
            families.append(family(SPARE, multi=False))
        self.attempt += 1
        answer = self.rig.commit(
            self.version + 1, self.history[self.version][1], families, self.attempt
        )
        assert {int(cf): n for cf, n in answer["counts"].items()} == {
            cf: len(rows) for cf, rows in self.now.items()
        }
        if answer["changelog_bytes"]:
            self.check_changes(answer["checkpoint_id"])
        self.history.append((self.now, answer["checkpoint_id"]))
        self.open(self.version + 1 if follow else self.version)

    def check_changes(self, checkpoint_id: str) -> None:
        """The change feed leads from the version before to this one, by one change per key."""
        state = {cf: dict(rows) for cf, rows in self.history[self.version][0].items()}
        seen: set[tuple[int, bytes]] = set()
        row, more = 0, True
        while more:
            feed = self.rig.instance.changes
            page, more = feed.page(self.version + 1, checkpoint_id, row, 4)
            for op, cf, key, value in _rows_of(page):
                row += 1
                assert (cf, key) not in seen
                seen.add((cf, key))
                if op == DROP:
                    del state[cf]
                elif op == DELETE:
                    state[cf].pop(key, None)
                else:
                    state[cf][key] = (state[cf].get(key, b"") if op == APPEND else b"") + value
        assert state == self.now

    @rule(count=st.integers(1, 5))
    def commit_nothing(self, count: int) -> None:
        """Idle batches; in checkpoint format 2 they write no object."""
        self.abort()
        for _ in range(count):
            before = self.objects()
            self.commit(follow=True)
            if self.checkpoint_format == 1:
                assert f"{self.version}.arrow" in self.objects()
            elif self.version > 1:
                assert self.objects() == before

    def objects(self) -> set[str]:
        """Return the names of the changelogs."""
        return {path.name for path in (self.folder / "objects").glob("changelog/*")}

    @rule()
    def abort(self) -> None:
        self.rig.instance.end_sessions(self.rig.number)
        self.open(self.version)

    @rule(back=st.integers(0, 4))
    def load_earlier(self, back: int) -> None:
        self.open(max(self.oldest, self.version - back))

    @rule(back=st.integers(0, 4), ahead=st.integers(-3, 5).filter(bool))
    def load_under_the_id_of_another_version(self, back: int, ahead: int) -> None:
        """Spark does so if entries of its commit log are gone: no version may answer to the id."""
        issued_for = max(0, self.version - back)
        id_ = self.history[issued_for][1]
        if self.checkpoint_format == 1 or id_ is None or issued_for + ahead < 0:
            return
        with pytest.raises(DataError):
            self.rig.load(issued_for + ahead, id_)
        assert self.rig.state.require_version().version == self.version
        self.open(self.version)
        self.scan_all()

    @rule(cleanup=st.booleans())
    def snapshot(self, *, cleanup: bool) -> None:
        if self.held is not None:
            return
        self.rig.maintain(cleanup=cleanup)
        if cleanup:
            self.oldest = max(self.oldest, self.version - self.retained + 1)

    @rule()
    def begin_to_write(self) -> None:
        """Reads, commits and loads meet every stage of a write."""
        self.rig.event_loop.run(self.rig.local.writer.write_runs)

    @rule()
    def write_all(self) -> None:
        if self.held is None:
            self.rig.until_written(self.version)

    @rule()
    def begin_checkpoint(self) -> None:
        """Later versions are committed until ``end_checkpoint``."""
        if self.held is None:
            self.hold()

    def hold(self) -> None:
        # As a snapshot does: a commit may start another one in the background.
        running = self.rig.state.snapshots.lock
        if not self.holds_back or not running.acquire(blocking=False):
            return
        local, version = self.rig.local, self.version
        incarnation = local.incarnation
        if self.rig.event_loop.run(lambda: local.hold_above(version, incarnation)):
            self.held = version, incarnation, self.history[version][0]
        else:
            running.release()

    @rule()
    def end_checkpoint(self) -> None:
        """A snapshot has exactly its version, whatever was committed since it began."""
        self.check_checkpoint()

    def check_checkpoint(self) -> None:
        if self.held is None:
            return
        version, incarnation, state = self.held
        self.held = None
        local, loop = self.rig.local, self.rig.event_loop
        if local.incarnation == incarnation:
            self.checkpoints += 1  # those that were compared
            directory = self.folder / f"checkpoint{self.checkpoints}"
            local.wait_until_written(version, incarnation)
            local.db.flush()
            local.db.checkpoint(directory)
            assert rows_of(directory, self.rig, state) == state
        loop.run(lambda: local.release_held(incarnation))
        self.rig.state.snapshots.lock.release()

    @rule()
    def crash(self) -> None:
        """The next instance has another local directory, as a moved partition has."""
        self.end_rig()
        self.rig = self.fresh_rig()
        self.open(self.version)

    def end_rig(self) -> None:
        if self.held is not None:
            self.held = None
            self.rig.state.snapshots.lock.release()  # a snapshot may wait for it
        self.rig.crash()

    @invariant()
    def deltas_do_not_pass_the_version(self) -> None:
        if hasattr(self, "rig"):
            local = self.rig.local
            assert local.written_through <= local.readable_through
            assert local.readable_through <= local.applied_through <= self.version

    @invariant()
    def pending_bytes_are_those_of_the_runs(self) -> None:
        if hasattr(self, "rig"):
            local, pending = self.rig.local, self.rig.resources.pending
            counted, real = self.rig.event_loop.run(
                lambda: (pending.current, local.writer.pending_bytes())
            )
            assert counted == real

    @rule(back=st.integers(0, 4))
    def read_without_an_engine(self, back: int) -> None:
        self.read_version(max(self.version - back, self.oldest))

    def read_version(self, version: int) -> None:
        state, checkpoint_id = self.history[version]
        for limits in (None, LITTLE_MEMORY):
            url = str(self.folder / "objects")
            found = read_offline(url, self.checkpoint_format, version, checkpoint_id, limits)
            assert found == (state if version else {})

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.end_rig()
            for version in range(max(self.oldest, len(self.history) - 2), len(self.history)):
                self.read_version(version)
            shutil.rmtree(self.folder)


class FormatOneMachine(InstanceMachine):
    """All attempts at a version share its name."""

    checkpoint_format = 1


class RetentionMachine(InstanceMachine):
    """Few versions are retained, so real versions of empty commits leave the window."""

    retained = 3


class LittleMemoryMachine(InstanceMachine):
    """Runs are written as soon as there are a few."""

    pending_bytes = 500
    holds_back = False  # a commit above the bound would wait for the end of the checkpoint


class LentMemoryMachine(LittleMemoryMachine):
    """Runs use what the block cache does not need: more at first, nothing when reads fill it."""

    pending_bytes = 200
    lent_cache_bytes = 1024


class FixedWidthsMachine(InstanceMachine):
    """No lists, keys of 3 bytes and values of 4: files are written with numpy."""

    def shaped(self, row: Row) -> Row:
        op, cf, key, value = row
        if value is not None:
            op, value = PUT, value.ljust(4, b"\xff")
        return op, PLAIN if cf == LISTS else cf, key[:3].ljust(3, b"\x00"), value


def _rows_of(page: pa.RecordBatch | None) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a page of the change feed."""
    return [] if page is None else [tuple(row.values()) for row in page.to_pylist()]


def rows_of(directory: Path, rig: Rig, state: State) -> State:
    """Return the rows of a local checkpoint, of the families of ``state``."""
    database = RocksDb(
        directory, rig.resources.memory, create=False, multi_families=frozenset({LISTS})
    )
    try:
        found = {}
        for cf in state:
            page = CommittedRows(database).scan(ScanRequest(cf, None, True, None, 4096, 1 << 20))  # noqa: FBT003 - as the frame has it
            assert page.through is None
            found[cf] = {row["key"]: row["value"] for row in page.rows.to_pylist()}
        return found
    finally:
        database.close()


@pytest.mark.parametrize("moves_on", [False, True])
def test_a_checkpoint_is_compared_unless_its_database_is_gone(*, moves_on: bool) -> None:
    """The random runs begin few checkpoints: this one shows that they look at them."""
    machine = InstanceMachine()
    machine.start()
    try:
        for value in (b"old", b"new"):
            machine.write([(PUT, PLAIN, b"a", value)], knows=False)
            machine.commit(follow=True)
        machine.write_all()
        machine.begin_checkpoint()
        assert machine.held is not None
        machine.write([(PUT, PLAIN, b"later", b"x")], knows=False)
        machine.commit(follow=True)
        machine.begin_to_write()
        if moves_on:
            machine.load_earlier(back=2)

        machine.end_checkpoint()

        assert machine.checkpoints == (0 if moves_on else 1)
    finally:
        machine.teardown()


@pytest.mark.parametrize(
    "machine",
    [
        InstanceMachine,
        FormatOneMachine,
        RetentionMachine,
        LittleMemoryMachine,
        LentMemoryMachine,
        FixedWidthsMachine,
    ],
)
def test_every_version_is_exactly_its_rows(
    machine: type[InstanceMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put, delete, append, drop, spill, commit, abort, crash, reload, snapshot, in any order."""
    monkeypatch.setattr(arrivals, "MAX_UNSORTED", 3)
    monkeypatch.setattr(writer, "_MAX_RUNS", 2)
    monkeypatch.setattr(writer, "_PIECE_ROWS", 3)
    monkeypatch.setattr(ingestion, "_PART_ROWS", 3)
    files = {"numpy": 0, "rocksdb": 0}
    write = RocksDb.write

    def counted(db: RocksDb, rows: ingestion.Ingestion, is_wanted: Callable[[], bool]) -> bool:
        is_written = write(db, rows, is_wanted)
        files["numpy" if is_written else "rocksdb"] += 1
        return is_written

    monkeypatch.setattr(RocksDb, "write", counted)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
    # Rows of other machines have fixed widths by chance.
    assert files["numpy" if machine is FixedWidthsMachine else "rocksdb"]
    assert machine is not FixedWidthsMachine or not files["rocksdb"]
