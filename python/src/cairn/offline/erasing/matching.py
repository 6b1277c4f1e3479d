"""KeyMatcher: which rows of a family are those of a key, also where it is inside of another one.

Layer: offline.erasing. A key names columns. A family has it if all of them are among its key's
columns: those that ``State`` shows, and the fields of the keys that an index by time has. Columns
that Spark adds to the keys of joins and sessions, and times of expiry, do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.reader.equality import are_equal
from cairn.reader.key_values import scalar_of
from cairn.reader.rows.partition_hash import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from cairn.reader.families import Column, Family
    from cairn.reader.rows.stored import StoredRows

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_WITH_OWN_COLUMNS = ("symmetricHashJoin", "sessionWindow")


@dataclass(frozen=True, slots=True)
class _Part:
    """A column of a key, or a field in one.

    Attributes:
        column: as users see it; for a field with the field's name and type.
        of: the column that has it.
        field: its name in that one; ``None``: it is the column.
    """

    column: Column
    of: Column
    field: str | None = None

    def values(self, decoded: pa.RecordBatch) -> Any:  # noqa: ANN401 - the stubs have many types
        found = self.of.of(decoded)
        return found if self.field is None else pc.struct_field(found, self.field)


def _parts(family: Family) -> Iterator[_Part]:
    """Yield what a key may name, columns before fields."""
    name = family.operator.name or ""
    columns = [
        one
        for one in family.columns
        if one.is_key
        and not one.is_expiry
        and (one.is_hashed or not name.startswith(_WITH_OWN_COLUMNS))
    ]
    yield from (_Part(one, one) for one in columns)
    for one in columns:
        kind: Any = one.type
        if family.family.startswith("$") and pa.types.is_struct(kind):
            yield from (
                _Part(replace(one, name=part.name, type=part.type), one, part.name) for part in kind
            )


def has_key(family: Family, names: Sequence[str]) -> bool:
    """Return whether a key of these columns can be one of a family's."""
    return {*names} <= {part.column.name for part in _parts(family)}


class KeyMatcher:
    """See the module. REQUIRES: ``has_key``.

    Args:
        family: of the rows.
        key: values by the names of columns.
        convert: makes a value from that of a command line.

    Attributes:
        key: the values, each as an array of one: a scalar that goes to another process becomes a
            value of Python, which has not all times.

    Raises:
        ConfigError: a value is not of its column's type.
    """

    def __init__(
        self,
        family: Family,
        key: Mapping[str, Any],
        convert: Callable[[Any, pa.DataType], Any] | None = None,
    ) -> None:
        self._family = family
        self._decoder = family.decoder()
        by_name: dict[str, _Part] = {}
        for part in _parts(family):
            by_name.setdefault(part.column.name, part)
        self._parts = [(by_name[name], self._value(by_name[name], key, convert)) for name in key]
        self.key = {part.column.name: pa.repeat(value, 1) for part, value in self._parts}

    @staticmethod
    def _value(
        part: _Part,
        key: Mapping[str, Any],
        convert: Callable[[Any, pa.DataType], Any] | None,
    ) -> Any:  # noqa: ANN401 - the stubs have a type per kind
        value = key[part.column.name]
        if convert is not None:
            value = convert(value, part.column.type)
        return scalar_of(value, part.column)

    def of(self, keys: pa.Array[Any]) -> NDArray[np.bool_]:
        """Return which of some stored keys are meant.

        Raises:
            CorruptError: a key does not have the form that its schema demands.
        """
        assert self._decoder is not None  # noqa: S101 - without a schema no column has a name
        decoded = self._decoder.decode_keys(keys)
        found = np.ones(len(keys), np.bool_)
        for part, value in self._parts:
            same = are_equal(part.values(decoded), value)
            found &= np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)
        return found

    def partition(self) -> int | None:
        """Return the partition that has the rows by their hash; ``None``: any of them."""
        hashed = [one for one in self._family.columns if one.is_hashed]
        by_name = {part.column.name: value for part, value in self._parts if part.field is None}
        if not hashed or any(one.name not in by_name for one in hashed):
            return None
        columns = [pa.repeat(by_name[one.name], 1) for one in hashed]
        return int(partition_of(columns, self._family.operator.partitions)[0])


@dataclass(frozen=True, slots=True)
class WithoutKey:
    """Leaves out the rows of a key: an ``Edit``.

    Attributes:
        keys: the values, as ``KeyMatcher.key`` has them, by operator and family.
    """

    keys: Mapping[tuple[int, str, str], Mapping[str, pa.Array[Any]]]

    def rows(
        self,
        family: Family,
        partition: int,  # noqa: ARG002 - see Edit
        rows: Iterator[StoredRows],
    ) -> Iterator[StoredRows]:
        """See ``Edit``."""
        key = self.keys.get(name_of(family))
        if key is None:
            yield from rows
            return
        matcher = KeyMatcher(family, {name: value[0] for name, value in key.items()})
        for some in rows:
            yield without(some, matcher.of(some.keys))


def name_of(family: Family) -> tuple[int, str, str]:
    """Return operator, store and family."""
    return family.operator.id, family.store.name, family.family


def without(rows: StoredRows, flags: NDArray[np.bool_]) -> StoredRows:
    """Return the rows whose flag is not set."""
    if not flags.any():
        return rows
    return rows.take(np.flatnonzero(~flags).tolist())
