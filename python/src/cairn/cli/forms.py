"""The forms of rows on standard output: a table, JSON, lines of JSON, CSV.

Layer: cli.  Spec: docs/commands.md#output. A writer keeps no rows; but a table takes the widths of
its columns from the first ones.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol, TypeAlias

import click

from cairn.cli.streams import is_terminal

Rows: TypeAlias = Iterable[Sequence[Any]]
"""Cells as ``cairn.cli.cells.plain`` returns them."""

_MEASURED_ROWS = 1_000
_CELL_CHARS = 60
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?|", re.ASCII)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BYTE_MAX = 0xFF


class Writer(Protocol):
    """Writes rows to a stream; begins when it is created."""

    def add(self, rows: Rows) -> None:
        """Write rows."""
        ...

    def end(self) -> None:
        """Write what follows the last row."""
        ...


class _Ndjson:
    """One object per line."""

    def __init__(
        self,
        stream: BinaryIO,
        names: Sequence[str],
        whole: Collection[str] = (),  # noqa: ARG002 - all cells are
    ) -> None:
        self._stream = stream
        self._names = names

    def add(self, rows: Rows) -> None:
        self._stream.write(_encoded("".join(f"{line}\n" for line in self._lines(rows))))

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
            self._stream.write(_encoded(f"{self._before}{line}"))
            self._before = ",\n"

    def end(self) -> None:
        is_empty = self._before == _Json._before
        self._stream.write(b"[]\n" if is_empty else b"\n]\n")
        super().end()


class _Csv:
    """A line of names, then one per row; null is empty."""

    def __init__(
        self,
        stream: BinaryIO,
        names: Sequence[str],
        whole: Collection[str] = (),  # noqa: ARG002 - all cells are
    ) -> None:
        self._stream = stream
        self.add([names])

    def add(self, rows: Rows) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            [_text(cell) for cell in row] for row in rows
        )
        self._stream.write(_encoded(text.getvalue()))

    def end(self) -> None:
        self._stream.flush()


class _Table:
    """Aligned columns: for people."""

    def __init__(self, stream: BinaryIO, names: Sequence[str], whole: Collection[str] = ()) -> None:
        self._stream = stream
        self._names = [_table_cell(name, None) for name in names]
        self._limits = [None if name in whole else _CELL_CHARS for name in names]
        self._first: list[list[str]] = []
        self._widths: list[int] | None = None

    def add(self, rows: Rows) -> None:
        shown = [list(map(_table_cell, row, self._limits)) for row in rows]
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
        self._is_right = [any(column) and all(map(_NUMBER.fullmatch, column)) for column in columns]
        self._widths = [
            max(map(len, (name, *column)))
            for name, column in zip(self._names, columns, strict=True)
        ]
        (head,) = self._lines([self._names])
        self._stream.write(
            _encoded((click.style(head, bold=True) if has_colour() else head) + "\n")
        )
        self._put(self._first)
        self._first = []

    def _put(self, rows: Iterable[Sequence[str]]) -> None:
        self._stream.write(_encoded("".join(f"{line}\n" for line in self._lines(rows))))

    def _lines(self, rows: Iterable[Sequence[str]]) -> Iterator[str]:
        assert self._widths is not None  # noqa: S101 - see _begin
        for row in rows:
            cells = [
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(row, self._widths, self._is_right, strict=True)
            ]
            yield "  ".join(cells).rstrip()


def _encoded(text: str) -> bytes:
    r"""Return text as UTF-8.

    A surrogate, which UTF-8 lacks, becomes ``\udcff``: in JSON the same text. Python has one for
    each byte of a file's name that is not UTF-8.
    """
    return text.encode("utf-8", "backslashreplace")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(cell: object) -> str:
    if isinstance(cell, str):
        return cell
    return "" if cell is None else _json(cell)


def _table_cell(cell: object, limit: int | None) -> str:
    # A state has what the world sent: nothing of it may control the terminal.
    if isinstance(cell, list) and all(isinstance(one, str) for one in cell):
        cell = ", ".join(cell)
    text = _text(cell) if limit is None else _text(cell)[: limit + 1]
    text = _UNPRINTABLE.sub(lambda found: _escaped(ord(found[0])), text)
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


def _escaped(number: int) -> str:
    return f"\\x{number:02x}" if number <= _BYTE_MAX else f"\\u{number:04x}"


def unique_names(names: list[str]) -> list[str]:
    """Return the names; of several equal ones, those after the first have a number."""
    result: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique in result:
            number += 1
            unique = f"{name}_{number}"
        result.append(unique)
    return result


def has_colour() -> bool:
    """Return whether standard output shows colours: https://no-color.org."""
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


FORMS: dict[str, Callable[..., Writer]] = {
    "table": _Table,
    "json": _Json,
    "ndjson": _Ndjson,
    "csv": _Csv,
}
"""What creates a writer: of a stream, the columns' names, and those that a table shows whole."""
