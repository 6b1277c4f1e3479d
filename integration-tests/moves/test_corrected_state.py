"""A query goes on from state that was exported and imported, and from state without a key.

Each operator runs some batches. Then copies of its checkpoint are changed, and go on beside one
that is not.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import cairn
from cairn.errors import UnsupportedStateError
from cairn.offline.exchange.file_form import FileForm
from cairn.offline.exchange.reading import FileReader
from cairn.reader.checkpoint import Checkpoint
from cairn.reader.families import Family
from cairn.reader.rows.lists import elements
from cairn.reader.rows.spans import Spans
from harness.differential import Run, as_text, copy_checkpoint
from harness.events import Events
from harness.operators import BY_NAME, ENCODED, OPERATORS, SINGLE_JOINS
from harness.s3 import S3Bucket
from harness.spark import CAIRN, new_session, s3a_conf
from harness.state_cases import families_of, state_of

pytestmark = pytest.mark.usefixtures("driver")

FILES = 3
MORE_FILES = 2
NAMES_OF_KEYS = ("k", "field0", "_1", "value")
PARTITIONS = {"spark.sql.shuffle.partitions": "3"}
# Their rows depend on the time of day.
BY_CLOCK = re.compile("processing_time|clock")
NO_KEY = {"limit"}
# Their second operator adds up what the first one counts of all keys; an erased one counts anew.
OVER_ALL_KEYS = {"transform_then_windows"}
# The others are slow tests (`make test-all`).
QUICK = {
    ("sessions", 2),
    ("join_left_outer_v3", 1),
    ("transform_event_time", 1),
}
CASES = [
    pytest.param(
        (one.name, number),
        id=f"{one.name}-format{number}",
        marks=[] if (one.name, number) in QUICK else [pytest.mark.slow],
    )
    for one in (*OPERATORS, *SINGLE_JOINS, *ENCODED)
    for number in (1, 2)
]


@dataclass
class Query:
    """An operator that has run, and the same one that goes on unchanged."""

    run: Run
    folder: Path
    control: Run | None = None

    @property
    def name(self) -> str:
        """That of the operator."""
        return self.run.operator.name

    def copy(self, name: str) -> Run:
        """Return a copy whose logs are old."""
        copied = copy_checkpoint(self.run, self.folder / name)
        age_logs(copied.checkpoint)
        return copied

    def later_rows(self, shift: int) -> dict[int, list[str]]:
        """Return the rows of the query that goes on unchanged, by the batches of another one."""
        if self.control is None:
            self.control = self.copy("control")
            self.run.events.add_files(FILES, MORE_FILES)
            self.control.advance()
        return {batch + shift: rows for batch, rows in self.control.record.rows.items()}


def age_logs(checkpoint: str) -> None:
    """Let a query seem to have ended an hour ago."""
    for log in ("offsets", "commits"):
        for path in Path(checkpoint, log).iterdir():
            past = path.stat().st_mtime - 3600
            os.utime(path, (past, past))


@pytest.fixture(scope="module", params=CASES)
def query(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Query:
    """Run an operator."""
    name, checkpoint_format = request.param
    folder = tmp_path_factory.mktemp(name)
    events = Events(folder / "input")
    events.add_files(0, FILES)
    run = Run(
        BY_NAME[name], events, str(folder / "query"), CAIRN, checkpoint_format, conf=PARTITIONS
    )
    run.advance()
    return Query(run, folder)


def stored(checkpoint: Checkpoint, family: Family) -> Counter[Any]:
    """Return the stored rows of a family with their partitions; of a list each element."""
    state = state_of(checkpoint, family)
    found: Counter[Any] = Counter()
    for partition in range(state.partitions):
        for some in state.stored_rows(partition):
            keys, values = some.keys.to_pylist(), some.values.to_pylist()
            if family.is_list:
                rows, owners = elements(Spans.of(some.values), "a list")
                keys, values = [keys[one] for one in owners], rows.binary().to_pylist()
            found.update(zip([partition] * len(keys), keys, values, strict=True))
    return found


def all_stored(checkpoint: str) -> dict[tuple[int, str], Counter[Any]]:
    """Return the stored rows of all families."""
    with cairn.open_checkpoint(checkpoint) as opened:
        return {(one.operator.id, one.family): stored(opened, one) for one in families_of(opened)}


def from_files(family: Family, folder: Path) -> Iterator[tuple[int, Any, Any]]:
    """Yield what comes back from the files of an export."""
    reader = FileReader(FileForm(family))
    place = folder / str(family.operator.id) / family.store.name / family.family
    for path in sorted(place.glob("*.parquet")):
        for some in reader.batches(pq.ParquetFile(path), str(path)):
            yield from zip(
                some.partitions.tolist(),
                some.keys.to_pylist(),
                some.values.to_pylist(),
                strict=True,
            )
    assert reader.problems == []


def test_all_rows_come_back_from_the_files_as_the_same_bytes(query: Query, tmp_path: Path) -> None:
    """Also those of families that only the operator itself may write."""
    cairn.export(query.run.checkpoint, to=str(tmp_path))

    with cairn.open_checkpoint(query.run.checkpoint) as checkpoint:
        rows = 0
        for family in families_of(checkpoint):
            expected = stored(checkpoint, family)
            assert Counter(from_files(family, tmp_path)) == expected, family.family
            rows += expected.total()
    assert rows


def imported(run: Run, folder: str, options: Mapping[str, Any] | None = None) -> list[str]:
    """Export all families, import them one by one, and return those that can be imported.

    Args:
        run: the query.
        folder: for the files, a folder or a URL.
        options: how to reach both; ``None``: they are local.
    """
    cairn.export(run.checkpoint, to=folder, storage_options=options, to_storage_options=options)
    with cairn.open_checkpoint(run.checkpoint, storage_options=options) as checkpoint:
        families = list(families_of(checkpoint))
    done = []
    for one in families:
        try:
            plan = cairn.import_state(
                run.checkpoint,
                files=f"{folder}/{one.operator.id}/{one.store.name}/{one.family}",
                operator=one.operator.id,
                store=one.store.name,
                family=one.family,
                mode="replace",
                storage_options=options,
                files_storage_options=options,
            )
        except UnsupportedStateError:
            continue
        with plan:
            assert plan.problems == ()
            plan.apply(processes=1)
        if options is None:
            age_logs(run.checkpoint)
        done.append(one.family)
    return done


def test_a_query_goes_on_from_imported_rows(query: Query, tmp_path: Path) -> None:
    """Nothing was changed in the files: so nothing changes for the query."""
    run = query.copy("imported")
    before = all_stored(run.checkpoint)

    done = imported(run, str(tmp_path))

    if "join" in query.name or "ttl" in query.name or "clock" in query.name:
        assert not done or "_then_" in query.name or "clock" in query.name
        return
    assert done
    assert all_stored(run.checkpoint) == before
    if BY_CLOCK.search(query.name):
        return
    later = query.later_rows(shift=len(done))
    run.advance()
    assert run.record.rows == later
    with cairn.open_checkpoint(run.checkpoint) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []
    assert query.control is not None
    assert all_stored(run.checkpoint) == all_stored(query.control.checkpoint)


def a_key(checkpoint: str, options: Mapping[str, Any] | None = None) -> tuple[str, int]:
    """Return a column and a value that a family has."""
    with cairn.open_checkpoint(checkpoint, storage_options=options) as opened:
        for one in families_of(opened):
            state = state_of(opened, one)
            for column in (name for name in NAMES_OF_KEYS if name in state.key_columns):
                cells: set[Any] = set(state.to_table()[column].to_pylist())
                values = sorted(cells - {None})
                if values:
                    return column, values[len(values) // 2]
    raise AssertionError("no family has a key")


def without_key(rows: dict[int, list[str]], value: int) -> dict[int, list[str]]:
    """Leave out the rows of a key."""
    of_key = re.compile(rf"\b(k|_1|value)={value}\b")
    return {batch: [row for row in some if not of_key.search(row)] for batch, some in rows.items()}


def has_key_stored(
    checkpoint: str, column: str, value: int, options: Mapping[str, Any] | None = None
) -> bool:
    """Return whether a family shows the key."""
    with cairn.open_checkpoint(checkpoint, storage_options=options) as opened:
        return any(
            row.get(column) == value
            for one in families_of(opened)
            for row in state_of(opened, one).to_table().to_pylist()
        )


def test_a_query_goes_on_without_a_key(query: Query) -> None:
    """All rows of other keys are those of the query from which nothing was erased."""
    if query.name in NO_KEY:
        return
    run = query.copy("erased")
    column, value = a_key(run.checkpoint)

    with cairn.erase(run.checkpoint, key={column: value}) as plan:
        done = plan.apply(processes=1)

    assert done
    assert not has_key_stored(run.checkpoint, column, value)
    with cairn.erase(run.checkpoint, key={column: value}) as plan:
        assert plan.stores == ()
    with cairn.open_checkpoint(run.checkpoint) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []
    if BY_CLOCK.search(query.name):
        return
    later = query.later_rows(shift=1)
    run.advance()
    if query.name in OVER_ALL_KEYS:
        assert run.record.rows.keys() == later.keys()
        return
    assert without_key(run.record.rows, value) == without_key(later, value)


@pytest.mark.parametrize(
    ("name", "checkpoint_format"),
    [
        ("sessions", 2),
        pytest.param("sessions", 1, marks=pytest.mark.slow),
        pytest.param("transform_event_time", 2, marks=pytest.mark.slow),
    ],
)
def test_a_query_on_s3_goes_on_from_imported_rows_and_without_a_key(
    tmp_path: Path,
    s3_bucket: S3Bucket,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    checkpoint_format: int,
) -> None:
    """The files are there, too. All objects that have the key are deleted."""
    # The age of an object of S3 is that of its PUT: a person waits.
    monkeypatch.setattr("cairn.offline.hold.QUIET_S", 0)
    options = s3_bucket.settings
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    conf = {**PARTITIONS, **s3a_conf(options)}
    place = f"{s3_bucket.url}/query"
    run = Run(BY_NAME[name], events, place, CAIRN, checkpoint_format, conf)
    run.advance()
    control = Run(run.operator, events, str(tmp_path / "control"), CAIRN, checkpoint_format, conf)
    with cairn.clone(place, to=control.checkpoint, storage_options=options) as clone:
        clone.apply()
    before = set(run.record.rows)
    column, value = a_key(place, options)

    done = imported(run, f"{s3_bucket.url}/export", options)
    with cairn.erase(place, key={column: value}, storage_options=options) as erase:
        assert erase.apply(processes=1)

    assert done
    assert not has_key_stored(place, column, value, options)
    with cairn.erase(place, key={column: value}, storage_options=options) as erase:
        assert erase.stores == ()
    events.add_files(FILES, MORE_FILES)
    run.advance()
    control.advance()
    later = {batch: rows for batch, rows in run.record.rows.items() if batch not in before}
    shift = len(done) + 1
    expected = {batch + shift: rows for batch, rows in control.record.rows.items()}
    assert any(expected.values())
    assert without_key(later, value) == without_key(expected, value)
    with cairn.open_checkpoint(place, storage_options=options) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []


# -- rows that SQL has made, and rows of another query --------------------------------------------

TOTALS = BY_NAME["totals_complete"]
CORRECTED_KEY = 3
CORRECTION = 1_000_000


def totals(events: Events, files: int, checkpoint: Path) -> Run:
    """Run the first batches of a query that adds up the values of each key; it has ended."""
    events.add_files(0, files)
    run = Run(TOTALS, events, str(checkpoint), CAIRN, 2, PARTITIONS)
    run.advance()
    age_logs(run.checkpoint)
    return run


def expected_totals(folder: Path, *paths: Path) -> list[str]:
    """Return the rows of a batch job over some files."""
    events = Events(folder / "all")
    Path(events.side("left")).mkdir(parents=True)
    for number, path in enumerate(paths):
        events.path("left", number).write_bytes(path.read_bytes())
    Path(events.side("right")).mkdir()
    return as_text(TOTALS.batch(new_session({}), events))


def import_totals(run: Run, files: Path) -> None:
    """Let the rows of a file, or of the files of a folder, be the totals of a query."""
    with cairn.import_state(run.checkpoint, files=str(files), operator=0, mode="replace") as plan:
        assert plan.problems == ()
        assert plan.apply(processes=1)


def test_a_query_adds_to_a_total_that_sql_has_corrected(tmp_path: Path) -> None:
    """A wrong total is corrected once: the next batch must not bring the former one back."""
    run = totals(Events(tmp_path / "input"), FILES, tmp_path / "query")
    first = run.record.last_batch + 2
    corrected = tmp_path / "corrected.parquet"

    cairn.export(run.checkpoint, to=str(tmp_path / "export"))
    exported = duckdb.read_parquet(str(tmp_path / "export/0/default/default/*.parquet"))
    changed = f"* REPLACE (if(k = {CORRECTED_KEY}, sum + {CORRECTION}, sum) AS sum)"
    exported.project(changed).write_parquet(str(corrected))
    import_totals(run, corrected)
    run.events.add_files(FILES, 1)
    run.advance()

    paths = [run.events.path("left", number) for number in range(FILES + 1)]
    expected = expected_totals(tmp_path, *paths)
    assert run.record.last_batch == first
    assert run.record.rows[first] == with_correction(expected)


def with_correction(rows: list[str]) -> list[str]:
    """Return rows with the corrected total of the key."""
    (of_key,) = (row for row in rows if row.startswith(f"Row(k={CORRECTED_KEY}, "))
    found = re.search(r"total=(-?\d+)", of_key)
    assert found is not None
    total = int(found.group(1)) + CORRECTION
    others = [row for row in rows if row != of_key]
    return sorted([*others, of_key.replace(found.group(0), f"total={total}")])


def test_a_new_query_begins_with_the_totals_of_another_one(tmp_path: Path) -> None:
    """A program that was rewritten takes the state over: what its own first batch has left goes."""
    former = totals(Events(tmp_path / "input-1"), FILES, tmp_path / "former")
    # Some of its keys are its own.
    new = totals(Events(tmp_path / "input-2", seed=8, keys=20), 1, tmp_path / "new")
    (first_batch,) = new.record.rows
    cairn.export(former.checkpoint, to=str(tmp_path / "export"))

    import_totals(new, tmp_path / "export/0/default/default")
    new.events.add_files(1, 1)
    new.advance()

    paths = [former.events.path("left", number) for number in range(FILES)]
    expected = expected_totals(tmp_path, *paths, new.events.path("left", 1))
    assert list(new.record.rows) == [first_batch, first_batch + 2]
    assert new.record.rows[first_batch + 2] == expected
