"""`cairn bisect`: the first batch at which an SQL condition over the state is true.

Layer: cli, over `Checkpoint.bisect`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cairn.cli.options import CheckpointCommand, Place, with_place
from cairn.cli.output import Field, Output, with_output
from cairn.cli.sql import Tables, answer, load_duckdb, table_names
from cairn.errors import NotThereError

if TYPE_CHECKING:
    from cairn.reader.bisect import Look
    from cairn.reader.checkpoint import Checkpoint

FIELDS = (
    Field("batch", "integer", "batch that was looked at"),
    Field(
        "condition",
        "string",
        "true, false, null (in SQL neither), or gone: its state is not retained any more",
    ),
    Field("is_first", "boolean", "whether it is the first batch at which the condition is true"),
)


@click.command(cls=CheckpointCommand)
@with_place
@click.argument("condition")
@click.option(
    "--monotonic/--every",
    "is_monotonic",
    default=True,
    help="The condition stays true once it is: a binary search reads few batches. Or look at every "
    "batch, from the oldest on, until it is true. Default: monotonic.",
)
@click.option("--first", type=click.IntRange(min=0), metavar="N", help="First batch that counts.")
@click.option("--last", type=click.IntRange(min=0), metavar="N", help="Last batch that counts.")
@with_output
def bisect(
    place: Place,
    condition: str,
    first: int | None,
    last: int | None,
    output: Output,
    *,
    is_monotonic: bool,
) -> None:
    """Find the first batch at which an SQL condition over the state is true; exit 4 if at none.

    CONDITION is an expression, or a SELECT of one row and column; tables are named as for query,
    and it needs DuckDB too. The rows of the output are the batches that were looked at. Batches
    whose state is gone are passed over.
    """
    duckdb = load_duckdb()
    with place.open() as checkpoint:
        found = checkpoint.bisect(
            lambda batch: _is_true(duckdb, checkpoint, condition, batch),
            is_monotonic=is_monotonic,
            batches=(first or 0, sys.maxsize if last is None else last),
        )
    output.write_fields(FIELDS, (_row(look, found.first) for look in found.looks))
    if found.first is None:
        raise NotThereError("the condition is true at no batch", object_name=place.location)
    if found.is_oldest:
        click.echo(
            f"Batch {found.first} is the oldest one of these whose state is there: "
            "the condition may have been true before.",
            err=True,
        )


def _is_true(duckdb: Any, checkpoint: Checkpoint, condition: str, batch: int) -> bool | None:  # noqa: ANN401
    import pyarrow as pa  # noqa: PLC0415 - not for help

    tables = Tables(checkpoint, batch, table_names(checkpoint.stores_at(batch)))
    # An expression and a whole SELECT are both right within parentheses, a comment at its end too.
    sql = f"SELECT (\n{condition.strip().rstrip(';')}\n)"
    with answer(duckdb, sql, tables) as reader:
        rows = reader.read_all()
    (kind,) = rows.schema.types
    if kind != pa.bool_():
        raise click.UsageError(
            f"the SQL gives a value of type {kind}, not true or false; write a condition, such as "
            "exists (from op0)."
        )
    value: bool | None = rows.column(0)[0].as_py()
    return value


def _row(look: Look, first: int | None) -> list[Any]:
    text = {True: "true", False: "false", None: "null"}[look.is_true]
    return [look.batch, "gone" if look.is_gone else text, look.batch == first]
