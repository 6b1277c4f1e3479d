"""Output: rows on standard output as a table, JSON, lines of JSON or CSV, or in a Parquet file.

Layer: cli.  Spec: docs/commands.md#output. Rows are written as they come, so memory does not grow
with them; a table takes the widths of its columns from its first rows.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from cairn.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

Command = TypeVar("Command", bound=Callable[..., Any])
Rows = Iterable[Sequence[Any]]
"""Cells as ``cairn.cli.cells.plain`` returns them."""

_MEASURED_ROWS = 1_000
_CELL_CHARS = 60
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?|", re.ASCII)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PROGRESS_ROWS = 100_000


@dataclass(frozen=True)
class Field:
    """A column of a command whose columns are always the same. Scripts use the names.

    Attributes:
        name: of the column, and of the field in JSON.
        type: its type in JSON.
        meaning: one clause.
    """

    name: str
    type: str
    meaning: str


class Output:
    """Where rows go, and how.

    Args:
        form: ``table``, ``json``, ``ndjson`` or ``csv``.
        to: a Parquet file, which then has the rows instead of standard output.
    """

    def __init__(self, form: str, to: Path | None = None) -> None:
        self._form = form
        self._to = to

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Write the batches, and return the number of their rows.

        Raises:
            ConfigError: Parquet has no such type; no file is left.
        """
        with Progress(is_shown=self._to is not None or not sys.stdout.isatty()) as progress:
            counted = progress.counting(batches)
            if self._to is not None:
                _write_parquet(self._to, schema, counted)
            else:
                self._write(schema.names, map(_rows_of, counted))
        return progress.rows

    def write_rows(self, names: Sequence[str], rows: Rows) -> None:
        """Write rows that no Arrow schema describes.

        Raises:
            UsageError: they were to go to a file.
        """
        if self._to is not None:
            raise click.UsageError("--to is for rows of a store alone.")
        self._write(names, ([row] for row in rows))

    def write_fields(self, fields: Sequence[Field], rows: Rows) -> None:
        """Write rows of a command whose columns are always the same."""
        self.write_rows([field.name for field in fields], rows)

    def _write(self, names: Sequence[str], blocks: Iterable[Rows]) -> None:
        from cairn.cli.cells import unique_names  # noqa: PLC0415 - it imports pyarrow

        writer = _WRITERS[self._form](click.get_binary_stream("stdout"), unique_names(list(names)))
        for block in blocks:
            writer.add(block)
        writer.end()


def with_output(command: Command) -> Command:
    """Add -o; the command gets ``output``."""

    @functools.wraps(command)
    def run(*, form: str, **others: object) -> object:
        return command(output=Output(form), **others)

    return _form_option(default="table")(run)  # type: ignore[return-value]


def with_output_or_file(command: Command) -> Command:
    """Add -o and --to; the command gets ``output``."""

    @functools.wraps(command)
    def run(*, form: str | None, to: Path | None, **others: object) -> object:
        if form and to:
            raise click.UsageError("--to writes a file; -o is for standard output. Leave one out.")
        return command(output=Output(form or "table", to), **others)

    file = click.option(
        "--to",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_parquet,
        metavar="FILE.parquet",
        help="Write the rows to a Parquet file instead; it appears when it is whole.",
    )
    return _form_option(default=None)(file(run))  # type: ignore[return-value]


def _form_option(default: str | None) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(list(_WRITERS)),
        default=default,
        help="Form of the output. Default: table.",
    )


def _parquet(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    if value is None:
        return None
    if value.suffix != ".parquet":
        raise click.BadParameter(f"{str(value)!r} does not end with .parquet.")
    if not value.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {str(value.parent)!r} does not exist.")
    return value


def _rows_of(batch: pa.RecordBatch) -> Rows:
    from cairn.cli.cells import plain  # noqa: PLC0415 - it imports pyarrow

    return zip(*map(plain, batch.columns), strict=True)


def has_colour() -> bool:
    """Return whether standard output shows colours: https://no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


# -- forms ---------------------------------------------------------------------------------------


class _Writer(Protocol):
    def __init__(self, stream: Any, names: Sequence[str]) -> None: ...  # noqa: ANN401 - binary

    def add(self, rows: Rows) -> None: ...

    def end(self) -> None: ...


class _Ndjson:
    """One object per line."""

    def __init__(self, stream: Any, names: Sequence[str]) -> None:  # noqa: ANN401 - binary
        self._stream = stream
        self._names = names

    def add(self, rows: Rows) -> None:
        self._stream.write("".join(f"{line}\n" for line in self._lines(rows)).encode())

    def end(self) -> None:
        self._stream.flush()

    def _lines(self, rows: Rows) -> Iterator[str]:
        for row in rows:
            yield _json(dict(zip(self._names, row, strict=True)))


class _Json(_Ndjson):
    """One array, with an object per line."""

    _before = "[\n"

    def add(self, rows: Rows) -> None:
        for line in self._lines(rows):
            self._stream.write(f"{self._before}{line}".encode())
            self._before = ",\n"

    def end(self) -> None:
        is_empty = self._before == _Json._before
        self._stream.write(b"[]\n" if is_empty else b"\n]\n")
        super().end()


class _Csv:
    """A line of names, then one per row; null is empty."""

    def __init__(self, stream: Any, names: Sequence[str]) -> None:  # noqa: ANN401 - binary
        self._stream = stream
        self.add([names])

    def add(self, rows: Rows) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_csv_cell(cell) for cell in row] for row in rows)
        self._stream.write(text.getvalue().encode())

    def end(self) -> None:
        self._stream.flush()


class _Table:
    """Aligned columns: for people."""

    def __init__(self, stream: Any, names: Sequence[str]) -> None:  # noqa: ANN401 - binary
        self._stream = stream
        self._names = names
        self._first: list[list[str]] = []
        self._widths: list[int] | None = None

    def add(self, rows: Rows) -> None:
        shown = [[_table_cell(cell) for cell in row] for row in rows]
        if self._widths is None:
            self._first += shown
            if len(self._first) >= _MEASURED_ROWS:
                self._begin()
        else:
            self._put(shown)

    def end(self) -> None:
        if self._widths is None:
            self._begin()
        self._stream.flush()

    def _begin(self) -> None:
        columns = list(zip(*self._first, strict=True)) or [()] * len(self._names)
        self._is_right = [
            any(column) and all(map(_NUMBER.fullmatch, column)) for column in columns
        ]
        self._widths = [
            max(map(len, (name, *column)))
            for name, column in zip(self._names, columns, strict=True)
        ]
        (head,) = self._lines([self._names])
        self._stream.write((click.style(head, bold=True) if has_colour() else head).encode() + b"\n")
        self._put(self._first)
        self._first = []

    def _put(self, rows: Iterable[Sequence[str]]) -> None:
        self._stream.write("".join(f"{line}\n" for line in self._lines(rows)).encode())

    def _lines(self, rows: Iterable[Sequence[str]]) -> Iterator[str]:
        assert self._widths is not None  # noqa: S101 - see _begin
        for row in rows:
            cells = [
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(row, self._widths, self._is_right, strict=True)
            ]
            yield "  ".join(cells).rstrip()


_WRITERS: dict[str, type[_Writer]] = {
    "table": _Table,
    "json": _Json,
    "ndjson": _Ndjson,
    "csv": _Csv,
}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(cell: object) -> str:
    if isinstance(cell, str):
        return cell
    return "" if cell is None else _json(cell)


def _csv_cell(cell: object) -> str:
    return _text(cell)


def _table_cell(cell: object) -> str:
    # A state has what the world sent: nothing of it may control the terminal.
    if isinstance(cell, list) and all(isinstance(one, str) for one in cell):
        cell = ", ".join(cell)
    text = _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", _text(cell)[: _CELL_CHARS + 1])
    return text if len(text) <= _CELL_CHARS else f"{text[: _CELL_CHARS - 1]}…"


# -- files ---------------------------------------------------------------------------------------


def _write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - not for help
    import pyarrow.parquet as pq  # noqa: PLC0415

    part = path.with_name(f".{path.name}.part")
    try:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
        part.replace(path)
    except pa.ArrowNotImplementedError as problem:
        raise ConfigError(
            f"Parquet cannot have these rows: {problem}", next_step="use -o ndjson"
        ) from problem
    finally:
        part.unlink(missing_ok=True)


class Progress:
    """The number of rows so far, on standard error, if that is a terminal.

    Args:
        is_shown: not where the terminal shows the rows themselves.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()
        self._shown_at = 0
        self.rows = 0

    def counting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and count their rows."""
        for batch in batches:
            self.rows += batch.num_rows
            if self._is_shown and self.rows - self._shown_at >= _PROGRESS_ROWS:
                self._shown_at = self.rows
                click.echo(f"\r{self.rows:,} rows", err=True, nl=False)
            yield batch

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown_at:
            click.echo("\r" + " " * 40 + "\r", err=True, nl=False)
