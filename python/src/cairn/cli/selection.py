"""The stores and keys that a command's options mean, and rows of different stores in one form.

Layer: cli. Imports pyarrow: commands import it when they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from cairn.cli.cells import plain
from cairn.cli.options import Stores
from cairn.errors import NotThereError
from cairn.reader.families import PARTITION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cairn.reader.checkpoint import Checkpoint, StoreInfo

types: Any = pa.types


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


def key_of(key: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Return a key of the command line with the values that ``State.get`` takes.

    Raises:
        UsageError: a value cannot be one of its column's type.
    """
    result = {}
    for name, value in key.items():
        try:
            result[name] = typed_value(value, schema.field(name).type)
        except (pa.ArrowException, ValueError, KeyError, TypeError) as problem:
            kind = schema.field(name).type
            raise click.UsageError(
                f"the value of the key's column {name!r} is not of type {kind}: {problem}"
            ) from problem
    return result


def typed_value(value: Any, kind: Any) -> Any:  # noqa: ANN401 - any value of JSON
    """Return a value of the command line as one of an Arrow type, as ``State.get`` takes it.

    Raises:
        ArrowException, ValueError, KeyError, TypeError: it is none.
    """
    if isinstance(value, dict | list):
        return _nested(value, kind)
    if isinstance(value, str) and types.is_large_binary(kind):
        return bytes.fromhex(value)
    if isinstance(value, str) and types.is_temporal(kind):
        # Arrow wants the zone in the text where the type has one, and nowhere else.
        return pa.scalar(value).cast(kind).as_py()
    return value


def _nested(value: dict[str, Any] | list[Any], kind: Any) -> Any:  # noqa: ANN401 - see above
    pairs = value.items() if isinstance(value, dict) else value
    if types.is_map(kind):
        return [
            (typed_value(key, kind.key_type), typed_value(part, kind.item_type))
            for key, part in pairs
        ]
    if types.is_struct(kind) and isinstance(value, dict):
        return {name: typed_value(part, kind.field(name).type) for name, part in value.items()}
    if types.is_large_list(kind) and isinstance(value, list):
        return [typed_value(part, kind.value_type) for part in value]
    return value


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
