"""SQL over the stores of a batch, by DuckDB: one table per kind of rows.

Layer: cli, over `State`.
"""

from __future__ import annotations

import importlib
import re
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cairn.errors import CairnError, PackageMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from cairn.reader.checkpoint import Checkpoint, StoreInfo
    from cairn.reader.state import State

_NO_NAME = re.compile(r"\W+", re.ASCII)


def table_names(stores: tuple[StoreInfo, ...]) -> dict[str, StoreInfo]:
    """Return the stores by their names in SQL, which is blind to case."""
    with_rows: dict[int, int] = {}
    for one in stores:
        with_rows[one.operator] = with_rows.get(one.operator, 0) + (not one.is_internal)
    result: dict[str, StoreInfo] = {}
    taken: set[str] = set()
    for one in stores:
        base = f"op{one.operator}"
        # A variable keeps its name also while it is the only one.
        is_alone = with_rows[one.operator] == 1 and one.name == one.store and not one.is_internal
        name = base if is_alone else f"{base}_{_NO_NAME.sub('_', one.name).strip('_')}"
        unique, number = name, 1
        while unique.lower() in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique.lower())
        result[unique] = one
    return result


class Tables:
    """The tables of a batch. DuckDB asks each for its columns, and for rows if the query names it.

    Attributes:
        failure: what went wrong while DuckDB read a table: its own error has the text alone.
    """

    def __init__(self, checkpoint: Checkpoint, batch: int, stores: Mapping[str, StoreInfo]) -> None:
        self._checkpoint = checkpoint
        self._batch = batch
        self._stores = stores
        self.failure: CairnError | None = None

    @property
    def names(self) -> list[str]:
        """The names, without those that operators have for themselves."""
        return [name for name, one in self._stores.items() if not (one.is_internal or one.problem)]

    @property
    def problems(self) -> dict[str, str]:
        """Why tables are not there, by their names."""
        return {name: one.problem for name, one in self._stores.items() if one.problem}

    def __iter__(self) -> Iterator[tuple[str, Table]]:
        for name, one in self._stores.items():
            if one.problem:
                continue
            state = self._checkpoint.state(one.operator, one.name, batch=self._batch)
            yield name, Table(self, state)


class Table:
    """A table, which DuckDB reads anew wherever the query names it."""

    def __init__(self, tables: Tables, state: State) -> None:
        self._tables = tables
        self._state = state

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface."""
        import pyarrow as pa  # noqa: PLC0415 - not for help

        reader: Any = pa.RecordBatchReader.from_batches(self._state.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            with self._state.reader() as reader:
                yield from reader
        except CairnError as failure:
            self._tables.failure = failure
            raise


def load_duckdb() -> Any:  # noqa: ANN401 - an extra, which need not be there
    """Return the module.

    Raises:
        PackageMissingError: it is not installed.
    """
    try:
        return importlib.import_module("duckdb")
    except ImportError as problem:
        raise PackageMissingError(
            "the package duckdb is not installed",
            next_step='pip install "cairn-state[query]"',
        ) from problem


@contextmanager
def answer(duckdb: Any, sql: str, tables: Tables) -> Iterator[pa.RecordBatchReader]:  # noqa: ANN401
    """Yield the rows of a query, which are read within the block.

    Raises:
        ClickException: DuckDB refuses the SQL.
        CairnError: a table that it names cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-query-") as spill:
        config = {"temp_directory": spill, "python_enable_replacements": "false"}
        with duckdb.connect(config=config) as connection:
            try:
                connection.execute("SET TimeZone = 'UTC'")
                for name, table in tables:
                    connection.register(name, table)
                result = connection.sql(sql)
                if result is None:
                    raise click.UsageError("there is no statement in the SQL.")
                yield result.to_arrow_reader()
            except (duckdb.Error, OSError) as problem:
                if tables.failure is not None:
                    raise tables.failure from problem
                if isinstance(problem, OSError):
                    raise
                raise click.ClickException(_explained(problem, duckdb, tables)) from problem


def _explained(problem: Exception, duckdb: Any, tables: Tables) -> str:  # noqa: ANN401
    text = str(problem)
    if isinstance(problem, duckdb.CatalogException):
        text += f"\nThe tables are {', '.join(tables.names)}."
        text += "".join(f"\n{name}: {problem}" for name, problem in tables.problems.items())
    return text
