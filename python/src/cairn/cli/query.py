"""`cairn query`: SQL over all stores of a batch, by DuckDB.

Layer: cli, over `State`.
"""

from __future__ import annotations

import importlib
import re
import tempfile
from typing import TYPE_CHECKING, Any

import click

from cairn.cli.options import CheckpointCommand, Place, with_batch, with_limit, with_place
from cairn.cli.output import Field, Output, with_output_or_file
from cairn.errors import CairnError, PackageMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from cairn.reader.checkpoint import Checkpoint, StoreInfo
    from cairn.reader.state import State

TABLE_FIELDS = (
    Field("table", "string", "name of the table in SQL"),
    Field("column", "string", "name of the column"),
    Field("type", "string", "its Arrow type"),
    Field("is_key", "boolean", "whether it is a part of the key"),
)

_NO_NAME = re.compile(r"\W+", re.ASCII)


@click.command(cls=CheckpointCommand)
@with_place
@click.argument("sql", required=False)
@with_batch
@with_limit
@with_output_or_file
def query(
    place: Place, sql: str | None, batch: int | None, limit: int | None, output: Output
) -> None:
    """Query the state by SQL; without SQL, list the tables and their columns.

    The tables are op0, the rows of operator 0, or op0_NAME if the operator has several kinds of
    rows: op0_left and op0_right of a join, op0_VARIABLE of transformWithState. The SQL is DuckDB's;
    only tables that it names are read. It needs DuckDB: pip install "cairn-state[query]".
    """
    duckdb = None if sql is None else _duckdb()
    with place.open() as checkpoint:
        number = checkpoint.view(batch).batch
        tables = table_names(checkpoint.stores_at(number))
        if sql is None:
            output.write_fields(TABLE_FIELDS, _columns(checkpoint, number, tables))
        else:
            _run(duckdb, sql, Tables(checkpoint, number, tables), limit, output)


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


def _columns(
    checkpoint: Checkpoint, batch: int, tables: Mapping[str, StoreInfo]
) -> Iterator[list[Any]]:
    for name, one in tables.items():
        if not one.is_internal:
            state = checkpoint.state(one.operator, one.name, batch=batch)
            for field in state.schema:
                yield [name, field.name, str(field.type), field.name in state.key_columns]


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
        return [name for name, one in self._stores.items() if not one.is_internal]

    def __iter__(self) -> Iterator[tuple[str, Table]]:
        for name, one in self._stores.items():
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


def _duckdb() -> Any:  # noqa: ANN401 - an extra, which need not be there
    try:
        return importlib.import_module("duckdb")
    except ImportError as problem:
        raise PackageMissingError(
            "the package duckdb is not installed",
            next_step='pip install "cairn-state[query]"',
        ) from problem


def _run(duckdb: Any, sql: str, tables: Tables, limit: int | None, output: Output) -> None:  # noqa: ANN401
    from cairn.cli.show import limited  # noqa: PLC0415

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
                reader = result.to_arrow_reader()
                output.write(reader.schema, limited(reader, limit))
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
    return text
