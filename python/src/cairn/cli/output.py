"""Output: rows on standard output as a table, JSON, lines of JSON or CSV, or in a Parquet file.

Layer: cli.  Spec: docs/commands.md#output. Rows are written as they come, so memory does not grow
with them; a table takes the widths of its columns from its first rows.
"""

from __future__ import annotations

import functools
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import click

from cairn.cli.forms import FORMS, Rows, unique_names
from cairn.cli.streams import is_terminal, standard_output
from cairn.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

Command = TypeVar("Command", bound=Callable[..., Any])
_PROGRESS_ROWS = 100_000


@dataclass(frozen=True)
class Field:
    """A column of a command whose columns are always the same. Scripts use the names.

    Attributes:
        name: of the column, and of the field in JSON.
        type: its type in JSON.
        meaning: one clause.
        is_whole: whether a table shows long texts whole: explanations.
    """

    name: str
    type: str
    meaning: str
    is_whole: bool = False


Fields: TypeAlias = tuple[Field, ...]


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
            OSError: standard output is closed, or what it goes to is full.
        """
        with Progress(is_shown=self._to is not None or not is_terminal(sys.stdout)) as progress:
            counted = progress.counting(batches)
            if self._to is not None:
                _write_parquet(self._to, schema, counted)
            else:
                self._write(schema.names, map(_rows_of, counted))
        return progress.rows

    def write_fields(self, fields: Fields, rows: Rows) -> None:
        """Write rows of a command whose columns are always the same.

        Raises:
            UsageError: they were to go to a file.
            OSError: as of ``write``.
        """
        if self._to is not None:
            raise click.UsageError("--to is for rows of a store alone.")
        whole = {field.name for field in fields if field.is_whole}
        self._write([field.name for field in fields], ([row] for row in rows), whole)

    def _write(
        self, names: Sequence[str], blocks: Iterable[Rows], whole: Collection[str] = ()
    ) -> None:
        create = FORMS[self._form]
        writer = create(standard_output(), unique_names(list(names)), whole)
        for block in blocks:
            writer.add(block)
        writer.end()


def with_output(command: Command) -> Command:
    """Add -o; the command gets ``output``."""

    @functools.wraps(command)
    def run(*, form: str, **others: object) -> object:
        return command(output=Output(form), **others)

    decorated: Command = _form_option(default="table")(run)
    return decorated


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
    decorated: Command = _form_option(default=None)(file(run))
    return decorated


def _form_option(default: str | None) -> Callable[[Any], Any]:
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(list(FORMS)),
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


# -- files ---------------------------------------------------------------------------------------


def _write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - not for help
    import pyarrow.parquet as pq  # noqa: PLC0415

    # Two commands may write the file at a time: the last one that ends wins.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
        part.replace(path)
    except (pa.ArrowNotImplementedError, OSError) as problem:
        column = _not_in_parquet(schema)
        if column is None:
            raise
        raise ConfigError(
            f"Parquet cannot have the column {column!r}: {problem}",
            next_step="choose other columns, or leave out --to and use -o ndjson",
        ) from problem
    finally:
        part.unlink(missing_ok=True)


def _not_in_parquet(schema: pa.Schema) -> str | None:
    """Return the first column whose type Parquet lacks."""
    import pyarrow as pa  # noqa: PLC0415 - not for help
    import pyarrow.parquet as pq  # noqa: PLC0415

    for field in list(schema):
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except (pa.ArrowNotImplementedError, OSError):  # the latter is an error of Parquet itself
            return field.name
    return None


class Progress:
    """The number of rows so far, on standard error, if that is a terminal.

    Args:
        is_shown: not where the terminal shows the rows themselves.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown and is_terminal(sys.stderr)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown_at:
            click.echo("\r" + " " * 40 + "\r", err=True, nl=False)
