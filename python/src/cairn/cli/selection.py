"""The stores and keys that a command's options mean, and rows of different stores in one form.

Layer: cli. Imports pyarrow: commands import it when they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.cli.cells import plain
from cairn.cli.options import Stores
from cairn.cli.typed_values import typed_value
from cairn.errors import NotThereError
from cairn.reader.families import PARTITION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from cairn.reader.checkpoint import Checkpoint, StoreInfo
    from cairn.reader.state import State


def chosen_stores(
    checkpoint: Checkpoint, batch: int | None, stores: Stores
) -> tuple[StoreInfo, ...]:
    """Return the stores and families that the options name; without names, those with rows.

    A query without state has none.

    Raises:
        NotThereError: there is none of these names.
    """
    there = checkpoint.stores_at(batch)
    found = [
        one
        for one in there
        if stores.operator in (None, one.operator)
        and stores.store in (None, one.store, one.name)
        and stores.family in (None, one.family, one.name)
    ]
    if not found and stores != Stores():
        names = ", ".join(f"{one.operator}/{one.name}" for one in there)
        raise NotThereError(
            f"no store has these names; there are, as operator and name: {names or 'none'}",
            object_name=checkpoint.location,
            next_step="choose one of these",
        )
    return tuple(one for one in found if not one.is_internal) or tuple(found)


def key_of(key: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Return a key of the command line with the values that ``State.get`` takes.

    Raises:
        UsageError: the state's key has no such column, or a value cannot be one of its column's
            type.
    """
    if unknown := set(key) - set(state.key_columns):
        raise click.UsageError(
            f"the key has no column {min(unknown)!r}; it has: {', '.join(state.key_columns)}."
        )
    return {
        name: typed_value(value, state.schema.field(name).type, f"the key's column {name!r}")
        for name, value in key.items()
    }


class KeyAndValue:
    """Rows of a store as objects of their keys and of their values: all stores have this form.

    Args:
        names: of the columns of the rows.
        keys: those of the key.
    """

    def __init__(self, names: Sequence[str], keys: Sequence[str]) -> None:
        self._keys = [name for name in names if name in keys]
        self._values = [name for name in names if name not in keys and name != PARTITION]

    def rows(self, batch: pa.RecordBatch) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
        """Yield partition, key and value of each row."""
        cells = {name: plain(batch.column(name)) for name in batch.schema.names}
        for place, partition in enumerate(cells[PARTITION]):
            key = {name: cells[name][place] for name in self._keys}
            yield partition, key, {name: cells[name][place] for name in self._values}
