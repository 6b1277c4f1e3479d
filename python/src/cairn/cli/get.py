"""`cairn get`: one key in every store that has it.

Layer: cli, over `State.get`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.cli.options import (
    CheckpointCommand,
    Place,
    Stores,
    with_batch,
    with_key,
    with_place,
    with_stores,
)
from cairn.cli.output import Field, Output, with_output
from cairn.errors import NotThereError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.reader.checkpoint import StoreInfo
    from cairn.reader.state import State

FIELDS = (
    Field("operator", "integer", "number of the stateful operator"),
    Field("name", "string", "short name of the rows"),
    Field("partition", "integer", "partition that has the row"),
    Field("key", "object", "columns of the key"),
    Field("value", "object", "columns of the value"),
)


@click.command(cls=CheckpointCommand)
@with_place
@with_batch
@with_stores
@with_key
@with_output
def get(
    place: Place, batch: int | None, stores: Stores, key: dict[str, Any], output: Output
) -> None:
    """Show one key in every store and family that has it; exit 4 if none has it.

    A store is searched if its key has the given columns. With all columns on which Spark's
    partition of a key depends, one partition is read; of a whole key in Cairn's stores only some
    blocks of it.
    """
    from cairn.cli.selection import chosen_stores  # noqa: PLC0415 - it imports pyarrow

    with place.open() as checkpoint:
        number = checkpoint.view(batch).batch
        states = [
            (one, checkpoint.state(one.operator, one.name, batch=number))
            for one in chosen_stores(checkpoint, number, stores)
        ]
        searched = [(one, state) for one, state in states if set(key) <= set(state.key_columns)]
        if states and not searched:
            keys = "; ".join(
                f"{one.operator}/{one.name}: {', '.join(state.key_columns)}"
                for one, state in states
            )
            raise click.UsageError(f"no store has these columns in its key. The keys are {keys}.")
        rows = list(_rows(searched, key))
        output.write_fields(FIELDS, rows)
        if not rows:
            raise NotThereError(
                f"no store has the key at batch {number}", object_name=place.location
            )


def _rows(searched: list[tuple[StoreInfo, State]], key: dict[str, Any]) -> Iterator[list[Any]]:
    from cairn.cli.selection import KeyAndValue, key_of  # noqa: PLC0415 - it imports pyarrow

    for one, state in searched:
        form = KeyAndValue(state.schema.names, state.key_columns)
        for batch in state.get(key_of(key, state)).to_batches():
            for partition, own_key, value in form.rows(batch):
                yield [one.operator, one.name, partition, own_key, value]
