"""`cairn query`: SQL over all stores of a batch, by DuckDB.

Layer: cli, over `State`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.cli.options import CheckpointCommand, Place, with_batch, with_limit, with_place
from cairn.cli.output import Field, Output, with_output_or_file
from cairn.cli.sql import Tables, answer, load_duckdb, table_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cairn.reader.checkpoint import Checkpoint, StoreInfo

TABLE_FIELDS = (
    Field("table", "string", "name of the table in SQL"),
    Field("column", "string", "name of the column"),
    Field("type", "string", "its Arrow type"),
    Field("is_key", "boolean", "whether it is a part of the key"),
)


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
    duckdb = None if sql is None else load_duckdb()
    with place.open() as checkpoint:
        number = checkpoint.view(batch).batch
        tables = table_names(checkpoint.stores_at(number))
        if sql is None:
            output.write_fields(TABLE_FIELDS, _columns(checkpoint, number, tables))
        else:
            from cairn.cli.show import limited  # noqa: PLC0415 - not for the list of tables

            with answer(duckdb, sql, Tables(checkpoint, number, tables)) as reader:
                output.write(reader.schema, limited(reader, limit))


def _columns(
    checkpoint: Checkpoint, batch: int, tables: Mapping[str, StoreInfo]
) -> Iterator[list[Any]]:
    for name, one in tables.items():
        if not one.is_internal and not one.problem:
            state = checkpoint.state(one.operator, one.name, batch=batch)
            for field in state.schema:
                yield [name, field.name, str(field.type), field.name in state.key_columns]
