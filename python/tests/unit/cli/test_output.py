"""The forms of output: data alone, and nothing in it that controls a terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.cli.forms import FORMS
from cairn.cli.output import Output, Progress
from cairn.cli.show import limited
from cairn.cli.streams import show_copies, show_partitions
from cairn.errors import ConfigError, CorruptError

_COLUMNS: dict[str, pa.DataType] = {"user": pa.string(), "n": pa.int64()}
SCHEMA = pa.schema(_COLUMNS)


def _form(name: str, *blocks: list[tuple[object, ...]]) -> str:
    stream = io.BytesIO()
    writer = FORMS[name](stream, ["user", "n"])
    for rows in blocks:
        writer.add(rows)
    writer.end()
    return stream.getvalue().decode()


@pytest.mark.parametrize(
    ("name", "nothing"),
    [("table", "user  n\n"), ("json", "[]\n"), ("ndjson", ""), ("csv", "user,n\n")],
)
def test_nothing_has_a_form_too(name: str, nothing: str) -> None:
    """A script that parses the output must not fail when there is nothing."""
    assert _form(name) == nothing
    assert _form(name, []) == nothing


def test_json_is_one_array_however_the_rows_come() -> None:
    """The rows come in blocks of any size."""
    expected = '[\n{"user": "ä", "n": 1},\n{"user": null, "n": 2},\n{"user": "c", "n": 3}\n]\n'

    assert _form("json", [("ä", 1)], [], [(None, 2), ("c", 3)]) == expected


def test_csv_quotes_what_would_break_its_lines() -> None:
    """Null is empty; lists and objects are JSON."""
    text = _form("csv", [('a"b', None), ("x\ny", [1, {"z": 2}])])

    assert text == 'user,n\n"a""b",\n"x\ny","[1, {""z"": 2}]"\n'


def test_a_table_is_aligned_and_cannot_control_the_terminal() -> None:
    """A state has what the world sent: an escape sequence in it must not reach the terminal."""
    text = _form("table", [("\x1b[2Jann\n", 1), ("b" * 100, 200)])

    assert text.splitlines() == [
        "user" + " " * 56 + "    n",
        "\\x1b[2Jann\\x0a" + " " * 46 + "    1",
        "b" * 59 + "…  200",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table", "user    n\n\\udcff  1\n"),
        ("json", '[\n{"user": "\\udcff", "n": 1}\n]\n'),
        ("ndjson", '{"user": "\\udcff", "n": 1}\n'),
        ("csv", "user,n\n\\udcff,1\n"),
    ],
)
def test_the_name_of_a_file_need_not_be_text(name: str, text: str) -> None:
    """Python has a surrogate for a byte that is not UTF-8; JSON gives it back."""
    assert _form(name, [(os.fsdecode(b"\xff"), 1)]) == text


def test_the_name_of_a_column_cannot_control_the_terminal_either() -> None:
    """Names of struct fields and JSON columns come from the world, too; they are shown whole."""
    stream = io.BytesIO()

    FORMS["table"](stream, ["\x1b[31m\n", "n" * 100]).end()

    assert stream.getvalue().decode() == f"\\x1b[31m\\x0a  {'n' * 100}\n"


def test_rows_after_the_first_thousand_are_written_as_they_come() -> None:
    """The memory of a table does not grow with its rows."""
    stream = io.BytesIO()
    writer = FORMS["table"](stream, ["n"])

    writer.add([(number,) for number in range(1_000)])
    before = stream.tell()
    writer.add([(12_345,)])

    assert before > 0
    assert stream.getvalue().endswith(b"\n999\n12345\n")


def _batches(seen: list[int]) -> Iterator[pa.RecordBatch]:
    try:
        for number in range(5):
            seen.append(number)
            yield pa.record_batch({"user": ["a", "b"], "n": [number, number]}, schema=SCHEMA)
    finally:
        seen.append(-1)


@pytest.mark.parametrize(
    ("limit", "rows", "read"),
    [(0, 0, []), (3, 3, [0, 1]), (4, 4, [0, 1]), (10**26, 10, range(5))],
)
def test_a_limit_stops_the_reading(limit: int, rows: int, read: Sequence[int]) -> None:
    """Ten rows of a state of a terabyte must come at once; the reading threads must end."""
    seen: list[int] = []
    reader = pa.RecordBatchReader.from_batches(SCHEMA, _batches(seen))

    shown = [batch.num_rows for batch in limited(reader, limit)]
    del reader

    assert sum(shown) == rows
    assert seen == [*read, -1] if read else seen == []


def test_a_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    """A reader of the file must not take a part of the state for all of it."""

    def damaged() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"user": ["a"], "n": [1]}, schema=SCHEMA)
        raise CorruptError("an object is cut off")

    with pytest.raises(CorruptError):
        Output("table", tmp_path / "x.parquet").write(SCHEMA, damaged())

    assert list(tmp_path.iterdir()) == []


def test_two_commands_may_write_a_file_at_a_time(tmp_path: Path) -> None:
    """A script that is started again must not leave a mixture of both as the state."""
    file = tmp_path / "x.parquet"

    def rows(numbers: range) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            yield pa.record_batch({"user": ["a"], "n": [number]}, schema=SCHEMA)

    def with_another_command() -> Iterator[pa.RecordBatch]:
        yield from rows(range(3))
        Output("table", file).write(SCHEMA, rows(range(100, 200)))
        assert pq.read_table(file)["n"].to_pylist() == list(range(100, 200))
        yield from rows(range(3, 5))

    Output("table", file).write(SCHEMA, with_another_command())

    assert pq.read_table(file)["n"].to_pylist() == list(range(5))
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.decimal128(5, -3), pa.list_(pa.decimal128(5, -3))]
)
def test_a_type_that_parquet_lacks_is_one_error(tmp_path: Path, kind: pa.DataType) -> None:
    """The message names the column, and which form has it."""
    columns: dict[str, pa.DataType] = {"a": pa.int64(), "b": kind}

    with pytest.raises(ConfigError, match=r"the column 'b'.*ndjson"):
        Output("table", tmp_path / "x.parquet").write(pa.schema(columns), [])

    assert list(tmp_path.iterdir()) == []


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_shown", [True, False])
def test_progress_is_for_a_terminal_that_does_not_show_the_rows(
    monkeypatch: pytest.MonkeyPatch, *, is_shown: bool
) -> None:
    """Logs of jobs get no progress; a terminal is left with an empty line."""
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    batch = pa.record_batch({"n": pa.nulls(100_000, pa.int64())})

    with Progress(is_shown=is_shown) as progress:
        list(progress.counting([batch, batch]))

    assert progress.rows == 200_000
    assert ("100,000 rows" in terminal.getvalue()) == is_shown
    assert terminal.getvalue().endswith("\r") == is_shown


def test_steps_tell_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for hours wants to know for how many; work that is repeated goes on elsewhere."""
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    seconds = iter([0.0, 30.0, 40.0, 50.0, 60.0])
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))

    for done in (10, 13, 20):
        show_partitions(done, 20)
    show_partitions(5, 6)
    show_copies(5, 6, 1 << 20, 1 << 22)

    lines = [line.rstrip(" ") for line in terminal.getvalue().split("\r")[1:]]
    assert lines == [
        "10 of 20 partitions",
        "13 of 20 partitions, 70 s left",
        "20 of 20 partitions    \n",
        "5 of 6 partitions",
        "5 of 6 objects, 1 of 4 MiB",
    ]


@pytest.mark.parametrize(("value", "has_colour"), [(None, True), ("", True), ("1", False)])
def test_colours_are_for_a_terminal_without_no_color(
    sample: str, value: str | None, *, has_colour: bool
) -> None:
    """https://no-color.org: any text but the empty one switches them off."""
    environment = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    environment |= {"NO_COLOR": value} if value is not None else {}
    ours, theirs = pty.openpty()

    subprocess.run(  # noqa: S603 - the command itself
        [sys.executable, "-m", "cairn", "show", sample, "--store", "total", "--schema"],
        env=environment,
        stdout=theirs,
        check=True,
    )
    os.close(theirs)
    text = os.read(ours, 10_000)
    os.close(ours)

    assert b"customer" in text
    assert (b"\x1b[" in text) == has_colour
