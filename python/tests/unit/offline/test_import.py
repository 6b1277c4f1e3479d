"""`cairn.import_state`: rows of Parquet files become the rows of a store."""

from __future__ import annotations

import json
import math
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from running_checkpoint import RunningCheckpoint, age
from small_checkpoint import PARTITIONS, SmallCheckpoint, partition_of_user

import cairn
from cairn.cli.main import main
from cairn.errors import (
    AlreadyExistsError,
    CairnError,
    ConfigError,
    InUseError,
    InvalidError,
    NotThereError,
    UnsupportedStateError,
)
from cairn.offline.exchange.reading import Problem

Users = dict[int, tuple[int, int]]


def files_of(checkpoint: SmallCheckpoint, folder: Path) -> list[Path]:
    """Export a checkpoint, and return the files."""
    return [Path(one.object_name) for one in cairn.export(str(checkpoint.folder), to=str(folder))]


def write(path: Path, users: Users, **columns: list[Any]) -> Path:
    """Write a file as SQL would: without metadata and partition."""
    table = pa.table(
        {
            "user": pa.array(list(users), pa.int64()),
            "max": [one for one, _ in users.values()],
            "max_2": [other for _, other in users.values()],
            **columns,
        }
    )
    pq.write_table(table, path)
    return path


def import_rows(checkpoint: RunningCheckpoint, files: Path, mode: str) -> None:
    """Import rows, as a person does who has looked at the plan."""
    with cairn.import_state(
        str(checkpoint.folder), files=str(files), operator=0, mode=mode
    ) as plan:
        assert plan.problems == ()
        plan.apply(processes=1)


def problems_of(checkpoint: SmallCheckpoint, files: Path) -> tuple[Problem, ...]:
    """Return what is wrong with files, which are not imported then."""
    before = contents(checkpoint.folder)
    with cairn.import_state(
        str(checkpoint.folder), files=str(files), operator=0, mode="replace"
    ) as plan:
        with pytest.raises(InvalidError, match="problems"):
            plan.apply()
        assert contents(checkpoint.folder) == before
        return plan.problems


def contents(folder: Path) -> dict[Path, bytes]:
    """Return all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def goes_on(checkpoint: RunningCheckpoint, rows: Users) -> None:
    """Check the rows of the appended batch, and that the query goes on from them."""
    assert checkpoint.state() == rows
    checkpoint.adopt(rows)
    checkpoint.start()
    for number in range(4):
        checkpoint.commit({user: (200 + number, user) for user in range(3)})
        checkpoint.snapshot()
    assert checkpoint.state() == checkpoint.rows[-1]
    checkpoint.stop()
    with cairn.open_checkpoint(str(checkpoint.folder)) as opened:
        assert [one for one in opened.verify() if one.severity == "error"] == []


def test_an_export_has_all_rows_and_comes_back(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """What nobody changes stays as it is."""
    files = files_of(stopped, tmp_path / "files")

    assert [path.relative_to(tmp_path / "files").as_posix() for path in files] == [
        f"0/default/default/{partition:05}.parquet" for partition in range(PARTITIONS)
    ]
    found = pa.concat_tables(pq.read_table(path) for path in files).to_pylist()
    assert {row["user"]: (row["max"], row["max_2"]) for row in found} == stopped.rows[-1]
    assert all(row["partition"] == partition_of_user(row["user"]) for row in found)
    metadata = json.loads(pq.read_schema(files[0]).metadata[b"cairn.export"])
    assert (metadata["batch"], metadata["operator"], metadata["partition"]) == (9, 0, 0)
    import_rows(stopped, tmp_path / "files", "replace")
    goes_on(stopped, stopped.rows[-1])


def test_rows_take_the_place_of_all_others(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """A partition without a row in the files is empty then."""
    users = {3: (1, 2), 1000: (3, 4)}

    import_rows(stopped, write(tmp_path / "few.parquet", users), "replace")

    goes_on(stopped, users)


def test_rows_with_other_keys_stay(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """Only the partitions of the keys are written."""
    before = contents(stopped.folder / "state")
    users = {3: (1, 2)}

    import_rows(stopped, write(tmp_path / "one.parquet", users), "merge")

    new = set(contents(stopped.folder / "state")) - set(before)
    changed = {path.relative_to(stopped.folder / "state/0").parts[0] for path in new}
    others = set() if stopped.checkpoint_format == 2 else {"0", "1", "2"}
    assert changed == others | {str(partition_of_user(3))}
    goes_on(stopped, stopped.rows[-1] | users)


def test_the_same_import_may_be_repeated(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """An empty commit follows an empty commit."""
    file = write(tmp_path / "one.parquet", {3: (1, 2)})
    for _ in range(2):
        import_rows(stopped, file, "merge")
        stopped.adopt(stopped.rows[-1] | {3: (1, 2)})
        age(stopped.folder / "commits" / str(len(stopped.rows) - 1))
        age(stopped.folder / "offsets" / str(len(stopped.rows) - 1))

    import_rows(stopped, file, "merge")

    goes_on(stopped, stopped.rows[-1])


def test_a_query_can_go_back_behind_an_import(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """The former rows stay as long as retention has them."""
    import_rows(stopped, write(tmp_path / "few.parquet", {3: (1, 2)}), "replace")
    for log in ("offsets", "commits"):
        age(stopped.folder / log / "10")

    with cairn.restore(str(stopped.folder), to_batch=9) as plan:
        assert plan.apply() == ()

    assert stopped.state() == stopped.rows[-1]


KILLED_AT = """
import os, sys
import cairn
from cairn.offline.exchange import importing
from cairn.offline.record import Record
place, files, name, mode = sys.argv[1:]
def die(*_, **__):
    os.kill(os.getpid(), 9)
setattr(Record if name == "end" else importing, name, die)
with cairn.import_state(place, files=files, operator=0, mode=mode) as plan:
    plan.apply(processes=1)
"""


@pytest.mark.parametrize("name", ["run_move", "unchanged_stores", "checkpoint_ids"])
def test_a_killed_import_is_finished_by_the_same_one(
    stopped: RunningCheckpoint, tmp_path: Path, name: str
) -> None:
    """Nothing has happened for the query before."""
    users = {3: (1, 2), 1000: (3, 4)}
    file = write(tmp_path / "few.parquet", users)
    kill(stopped, file, name)
    assert not (stopped.folder / "commits/10").exists()

    import_rows(stopped, file, "replace")

    assert len(list(stopped.folder.glob("cairn-log/*-import-*"))) == 1
    goes_on(stopped, users)


def kill(checkpoint: RunningCheckpoint, file: Path, name: str, mode: str = "replace") -> None:
    """Import rows in a process that dies where it would call something."""
    command = [sys.executable, "-c", KILLED_AT, str(checkpoint.folder), str(file), name, mode]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def test_an_import_that_was_killed_behind_its_commit_is_not_done_twice(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """The query may have gone on from the rows: another import would undo what it did."""
    users = {3: (1, 2), 1000: (3, 4)}
    file = write(tmp_path / "few.parquet", users)
    kill(stopped, file, "end")
    assert stopped.state() == users
    stopped.adopt(users)
    stopped.start()
    stopped.commit({3: (7, 7)})
    stopped.stop()

    with cairn.import_state(
        str(stopped.folder), files=str(file), operator=0, mode="replace"
    ) as plan:
        assert plan.is_committed
        (done,) = plan.apply(processes=1)

    assert (done.keys, done.partitions) == (2, PARTITIONS)
    assert not (stopped.folder / "commits/12").exists()
    assert stopped.state() == stopped.rows[-1]
    # Once more is once more.
    with cairn.import_state(
        str(stopped.folder), files=str(file), operator=0, mode="replace"
    ) as plan:
        assert not plan.is_committed


def test_a_killed_import_whose_batch_is_gone_is_not_repeated(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """Its batch may have been committed: rows that the query has written since would be lost."""
    file = write(tmp_path / "few.parquet", {3: (1, 2), 1000: (3, 4)})
    kill(stopped, file, "end")
    rows = {3: (1, 2), 1000: (3, 4)}
    stopped.adopt(rows)
    stopped.start()
    for number in range(5):
        stopped.commit({5 + number: (9, 9)})
        stopped.snapshot()
    stopped.stop()
    for batch in range(12):
        for log in ("offsets", "commits"):
            (stopped.folder / f"{log}/{batch}").unlink(missing_ok=True)
    before = contents(stopped.folder)

    with pytest.raises(NotThereError, match="cannot be read any more") as caught:
        import_rows(stopped, file, "replace")

    assert "cairn-log/" in str(caught.value)
    assert contents(stopped.folder) == before
    (record,) = stopped.folder.glob("cairn-log/*")
    shutil.rmtree(record)
    import_rows(stopped, file, "replace")
    assert stopped.state() == rows


def test_what_a_killed_import_has_written_is_not_taken_for_what_a_driver_wrote(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """In checkpoint format 1 it has the same name: the batch would have the driver's rows.

    Spark's documents say how to go back: delete the last files of both logs.
    """
    users = {3: (1, 2), 1000: (3, 4)}
    file = write(tmp_path / "few.parquet", users)
    kill(stopped, file, "unchanged_stores")
    (stopped.folder / "offsets/10").unlink()  # the hold
    stopped.start()
    stopped.commit(dict.fromkeys(range(40), (10, -1)))
    stopped.snapshot()
    stopped.stop()
    for log in ("offsets", "commits"):
        (stopped.folder / log / "10").unlink()
    stopped.go_back(9)

    import_rows(stopped, file, "replace")

    goes_on(stopped, users)


def test_a_killed_import_is_not_continued_on_another_history(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """The rows that it has written beside its own are those of a batch that was given up."""
    file = write(tmp_path / "few.parquet", {3: (1, 2)})
    kill(stopped, file, "unchanged_stores", "merge")
    with cairn.restore(str(stopped.folder), to_batch=8) as plan:
        plan.apply()
    stopped.go_back(8)
    stopped.start()
    stopped.commit(dict.fromkeys(range(40), (9, -9)))
    stopped.stop()
    expected = stopped.rows[-1] | {3: (1, 2)}

    import_rows(stopped, file, "merge")

    goes_on(stopped, expected)


def test_problems_name_file_row_and_column(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """A person corrects them in the SQL that made the file."""
    file = tmp_path / "bad.parquet"
    place = str(file)

    write(file, {1: (1, 1), 2: (2, 2)}, partition=[partition_of_user(1), 7])
    (found,) = problems_of(stopped, file)
    assert (found.file, found.row, found.column) == (place, 1, "partition")
    assert f"partition {partition_of_user(2)} by Spark's hash" in found.text

    pq.write_table(pa.table({"user": [1, 5, 1], "max": [1, 2, 3], "max_2": [1, 2, 3]}), file)
    (found,) = problems_of(stopped, file)
    assert (found.row, found.column) == (2, None)
    assert found.text.endswith(f"row 0 of {place}, too")

    pq.write_table(pa.table({"user": ["a"], "max": [1], "other": [1]}), file)
    assert [(one.column, one.row) for one in problems_of(stopped, file)] == [
        ("user", None),
        ("max_2", None),
        ("other", None),
    ]

    too_large = pa.array([1, 2**63], pa.uint64())
    pq.write_table(pa.table({"user": too_large, "max": [1, 2], "max_2": [1, 2]}), file)
    (found,) = problems_of(stopped, file)
    assert (found.row, found.column) == (1, "user")


def test_a_number_that_would_be_rounded_is_a_problem(tmp_path: Path) -> None:
    """SQL makes doubles of floats."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local")
    written.declare({"user": "long"}, {"max": "float", "max_2": "float"})
    written.commit({1: (1, 1)})
    written.stop()
    exact = [0.5, -0.0, math.nan, math.inf, None]
    users = pa.array(range(len(exact)), pa.int64())
    for inexact, place in ((0.1, 2), (1e300, 1), (16777217.0, 0)):
        doubles: list[float | None] = [*exact]
        doubles.insert(place, inexact)
        columns = {"user": range(6), "max": doubles, "max_2": [1.5] * 6}
        pq.write_table(pa.table(columns), tmp_path / "file.parquet")
        (problem,) = problems_of(written, tmp_path / "file.parquet")
        assert (problem.row, problem.column) == (place, "max")
        assert f"{inexact} would become" in problem.text

    pq.write_table(pa.table({"user": users, "max": exact, "max_2": exact}), tmp_path / "ok.parquet")
    with cairn.import_state(
        str(written.folder), files=str(tmp_path / "ok.parquet"), operator=0, mode="replace"
    ) as plan:
        assert plan.problems == ()


def test_keys_of_an_aggregation_have_one_zero_and_one_nan(tmp_path: Path) -> None:
    """Spark would never find a row with another one."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", key_type="double")
    written.commit({1.0: (1, 1)})
    written.stop()
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    columns = {"user": [0.0, -0.0, 2.0], "max": [1, 2, 3], "max_2": [1, 2, 3]}
    pq.write_table(pa.table(columns), tmp_path / "file.parquet")
    (problem,) = problems_of(written, tmp_path / "file.parquet")
    assert "the key is that of row 0" in problem.text
    columns = {"user": [-0.0, other_nan], "max": [1, 2], "max_2": [1, 2]}
    pq.write_table(pa.table(columns), tmp_path / "file.parquet")

    import_rows(written, tmp_path / "file.parquet", "replace")

    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        state = checkpoint.state()
        found = {row["max"]: row["user"] for row in state.to_table().to_pylist()}
        assert state.get({"user": 0.0}).num_rows == 1
        assert state.get({"user": math.nan}).num_rows == 1
    assert struct.pack("<d", found[1]) == struct.pack("<d", 0.0)
    assert struct.pack("<d", found[2]) == struct.pack("<Q", 0x7FF8_0000_0000_0000)


def test_a_null_where_spark_has_none_is_a_problem(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """The operator would fail at it, or take it for a zero."""
    for path in (stopped.folder / "state/0/0/_metadata").glob("schema"):
        data = path.read_bytes()
        before = b'"name": "user", "type": "long", "nullable": true,'
        assert before in data
        path.write_bytes(
            data.replace(before, before.replace(b"true,", b"false").ljust(len(before)))
        )
        path.write_bytes(data.replace(before, b'"name":"user", "type": "long", "nullable": false,'))
    file = tmp_path / "null.parquet"
    pq.write_table(pa.table({"user": [1, None], "max": [1, 2], "max_2": [1, 2]}), file)

    (found,) = problems_of(stopped, file)

    assert (found.row, found.column) == (1, "user")


def test_what_cannot_be_imported_is_refused(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """Before anything is written."""
    place = str(stopped.folder)
    file = write(tmp_path / "one.parquet", {1: (1, 1)})
    (tmp_path / "empty").mkdir()
    (tmp_path / "no.parquet").write_bytes(b"no parquet file")
    hdfs = SmallCheckpoint(tmp_path / "hdfs")
    hdfs.commit({1: (1, 1)})

    refused: list[tuple[type[CairnError], str, dict[str, Any]]] = [
        (ConfigError, "no mode", {"mode": "both"}),
        (NotThereError, r"no files \*.parquet", {"files": str(tmp_path / "empty")}),
        (ConfigError, "no Parquet file", {"files": str(tmp_path / "no.parquet")}),
        (NotThereError, "no operator 4", {"operator": 4}),
        (UnsupportedStateError, "migrate", {"location": str(hdfs.folder)}),
    ]
    for kind, text, change in refused:
        options: dict[str, Any] = {"location": place, "files": str(file), "operator": 0}
        with pytest.raises(kind, match=text):
            cairn.import_state(**{**options, "mode": "merge", **change})


def test_a_damaged_file_is_named(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """A download was cut off, or a disk has lost a page: the query is as it was."""
    file = write(tmp_path / "damaged.parquet", {user: (user, user) for user in range(100)})
    whole = file.read_bytes()
    before = contents(stopped.folder)

    # Behind the magic number is the header of the first page.
    for damaged in (whole[:4] + b"\xff" * 16 + whole[20:], whole[:-100], whole[:4]):
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match="damaged") as failure:
            cairn.import_state(str(stopped.folder), files=str(file), operator=0, mode="merge")
        assert failure.value.object_name == str(file)
        assert failure.value.next_step
    assert contents(stopped.folder) == before


def test_a_running_query_is_not_changed(written: RunningCheckpoint, tmp_path: Path) -> None:
    """Its next batch would go on from the former state."""
    before = contents(written.folder)
    file = write(tmp_path / "one.parquet", {1: (1, 1)})
    with (
        cairn.import_state(str(written.folder), files=str(file), operator=0, mode="merge") as plan,
        pytest.raises(InUseError, match="written"),
    ):
        plan.apply()

    assert contents(written.folder) == before


def test_an_export_spares_other_files(stopped: RunningCheckpoint, tmp_path: Path) -> None:
    """A wrong folder is not filled; a repeated export replaces its own files."""
    files_of(stopped, tmp_path / "files")
    assert len(files_of(stopped, tmp_path / "files")) == PARTITIONS
    (tmp_path / "files/notes").write_text("mine")

    with pytest.raises(AlreadyExistsError, match="notes"):
        files_of(stopped, tmp_path / "files")


def test_the_commands_print_their_plan_and_then_do_it(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """As all commands that change a checkpoint."""
    place, file = str(stopped.folder), str(tmp_path / "all.parquet")

    def run(*arguments: str) -> Any:  # noqa: ANN401 - click's own
        return CliRunner().invoke(main, [*arguments, "-o", "ndjson"])

    export = ("export", place, "--to", file, "--batch", "8", "--partition", "1")
    shown = run(*export)
    assert not Path(file).exists()
    exported = run(*export, "--apply")
    command = ["import", place, "--operator", "0", "--from", file, "--merge"]
    planned = run(*command)
    done = run(*command, "--apply", "--processes", "1")

    assert (exported.exit_code, planned.exit_code, done.exit_code) == (0, 3, 0), done.output
    assert shown.exit_code == 3
    unknown = {"rows": None, "bytes": None}
    assert json.loads(shown.stdout) == json.loads(exported.stdout) | unknown
    rows = {user: row for user, row in stopped.rows[8].items() if partition_of_user(user) == 1}
    assert json.loads(exported.stdout)["rows"] == json.loads(planned.stdout)["keys"] == len(rows)
    assert "Nothing was imported" in planned.stderr
    goes_on(stopped, stopped.rows[-1] | rows)
