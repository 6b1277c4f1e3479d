"""Figures of the rows of families: sizes, lists, times; taken while ``verify`` checks the rows.

Layer: reader. Threads read partitions; the figures of a partition count when all of it was read.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.reader.distributions import Sizes, Times
from cairn.reader.rows.lists import elements
from cairn.reader.rows.spans import Spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cairn.reader.distributions import SizeFigures, TimeFigures
    from cairn.reader.families import Family
    from cairn.reader.rows.stored import StoredRows
    from cairn.reader.state import State

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute
types: Any = pa.types

LARGEST = 10
"""Keys of a family that are named."""
_TIME_COLUMNS_MAX = 6
_END = "end"
_UNITS_PER_MS = {"ms": 1, "us": 1_000}


@dataclass(frozen=True, slots=True)
class LargeKey:
    """A key with a long list, or with a large row.

    Attributes:
        key: a row with its columns, and ``partition``.
        elements: of its list; ``None`` if the value is none.
        key_bytes: size of the stored key.
        value_bytes: size of its stored value.
    """

    key: pa.Table
    elements: int | None
    key_bytes: int
    value_bytes: int


@dataclass(frozen=True, slots=True)
class FamilyFigures:
    """The rows of a family. All but ``keys`` are ``None`` or empty if no rows were read.

    Attributes:
        operator: its operator's number.
        store: Spark's name of its store.
        family: Spark's name of it.
        name: a short name, unique within the operator.
        is_list: whether a key has several rows.
        is_internal: whether the operator has it for itself.
        keys: their number; ``None``: not known.
        rows: of a list one per element.
        key_sizes: in bytes, as stored.
        value_sizes: in bytes, as stored; without the checksums of rows.
        list_lengths: elements per key; ``None`` also if the values are no lists.
        largest: the keys with the longest lists or else the largest rows, descending.
        times: of its columns with a time, times of expiry first.
    """

    operator: int
    store: str
    family: str
    name: str
    is_list: bool
    is_internal: bool
    keys: int | None
    rows: int | None = None
    key_sizes: SizeFigures | None = None
    value_sizes: SizeFigures | None = None
    list_lengths: SizeFigures | None = None
    largest: tuple[LargeKey, ...] = ()
    times: tuple[TimeFigures, ...] = ()

    @property
    def row_bytes(self) -> int | None:
        """Bytes of all keys and values; ``None``: they were not read."""
        if self.rows is None:
            return None
        sizes = (self.key_sizes, self.value_sizes)
        return sum(one.total for one in sizes if one is not None)


@dataclass(frozen=True, slots=True)
class PartitionRowFigures:
    """The rows of one partition of a store.

    Attributes:
        keys: of the families that are not internal.
        row_bytes: keys and values of all families.
    """

    keys: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class Marks:
    """Times with which those of rows are compared, in milliseconds since 1970; 0: none.

    Attributes:
        watermark_ms: that of the batch.
        batch_ms: when Spark planned the batch.
    """

    watermark_ms: int
    batch_ms: int


class StoresScan:
    """Collects the figures of rows of stores. Thread-safe.

    Args:
        families: all whose rows come.
        marks: of the batch.

    Attributes:
        partitions: the figures of each partition that was read whole, by operator, store, number.
    """

    def __init__(self, families: Sequence[Family], marks: Marks) -> None:
        self.partitions: dict[tuple[int, str, int], PartitionRowFigures] = {}
        self._marks = marks
        self._families = families
        self._totals = {_name(one): _FamilyScan(one, marks) for one in families}
        self._lock = threading.Lock()

    def begin(self, families: Sequence[Family], partition: int) -> _PartitionScan:
        """Return what gets the rows of a partition of a store."""
        scans = {one.name: _FamilyScan(one, self._marks) for one in families}
        return _PartitionScan(self, families[0], partition, scans)

    def add(self, one: Family, partition: int, scans: dict[str, _FamilyScan]) -> None:
        """Count the rows of a partition of a store."""
        figures = PartitionRowFigures(
            sum(scan.keys for scan in scans.values() if not scan.is_internal),
            sum(scan.row_bytes for scan in scans.values()),
        )
        with self._lock:
            self.partitions[one.operator.id, one.store.name, partition] = figures
            for name, scan in scans.items():
                self._totals[one.operator.id, one.store.name, name].merge(scan)

    def figures(self) -> Iterator[FamilyFigures]:
        """Yield the figures of each family."""
        for family in self._families:
            yield self._totals[_name(family)].figures(family)


def _name(family: Family) -> tuple[int, str, str]:
    return family.operator.id, family.store.name, family.name


class _PartitionScan:
    """See ``verify.PartitionRows``."""

    def __init__(
        self, owner: StoresScan, store: Family, partition: int, scans: dict[str, _FamilyScan]
    ) -> None:
        self._owner = owner
        self._store = store
        self._partition = partition
        self._scans = scans

    def add(self, state: State, rows: StoredRows, decoded: pa.RecordBatch) -> None:
        if len(rows.keys):
            self._scans[state.name].add(state, rows, decoded, self._partition)

    def end(self) -> None:
        self._owner.add(self._store, self._partition, self._scans)


class _FamilyScan:
    """Figures of a family that grow. Not thread-safe."""

    def __init__(self, family: Family, marks: Marks) -> None:
        self.is_internal = family.is_internal
        self.keys = 0
        self.row_bytes = 0
        self._rows = 0
        self._is_list = family.is_list
        self._key_sizes, self._value_sizes, self._lengths = Sizes(), Sizes(), Sizes()
        self._largest: list[LargeKey] = []
        self._marks = marks
        self._times = {
            path: Times(".".join(path), marks.watermark_ms, marks.batch_ms, is_expiry=is_expiry)
            for path, is_expiry in _time_columns(family)
        }

    def add(self, state: State, rows: StoredRows, decoded: pa.RecordBatch, partition: int) -> None:
        self.keys += len(rows.keys)
        self._rows += decoded.num_rows
        key_sizes, value_sizes = _lengths_of(rows.keys), _lengths_of(rows.values)
        self.row_bytes += int(key_sizes.sum() + value_sizes.sum())
        self._key_sizes.add(key_sizes)
        self._value_sizes.add(value_sizes)
        lengths = None
        if self._is_list:
            _, owners = elements(Spans.of(rows.values), state.name)
            lengths = np.bincount(owners, minlength=len(rows.values)).astype(np.int64)
            self._lengths.add(lengths)
        if not self.is_internal:
            self._keep_largest(
                _largest_of(
                    state, rows, partition, (key_sizes, value_sizes), lengths, self._floor()
                )
            )
        for path, times in self._times.items():
            if path[0] in decoded.schema.names:
                column: Any = decoded.column(path[0])
                for name in path[1:]:
                    column = pc.struct_field(column, name)
                times.add(_millis(column), column.null_count)

    def merge(self, other: _FamilyScan) -> None:
        self.keys += other.keys
        self.row_bytes += other.row_bytes
        self._rows += other._rows
        self._key_sizes.merge(other._key_sizes)
        self._value_sizes.merge(other._value_sizes)
        self._lengths.merge(other._lengths)
        self._keep_largest(other._largest)
        for path, times in self._times.items():
            times.merge(other._times[path])

    def figures(self, family: Family) -> FamilyFigures:
        times = (one.figures() for one in self._times.values())
        return FamilyFigures(
            operator=family.operator.id,
            store=family.store.name,
            family=family.family,
            name=family.name,
            is_list=family.is_list,
            is_internal=family.is_internal,
            keys=self.keys,
            rows=self._rows,
            key_sizes=self._key_sizes.figures(),
            value_sizes=self._value_sizes.figures(),
            list_lengths=self._lengths.figures(),
            largest=tuple(self._largest),
            times=tuple(one for one in times if one is not None),
        )

    def _floor(self) -> int:
        """Return the measure that a key must exceed to be one of the largest."""
        return _measure(self._largest[-1]) if len(self._largest) == LARGEST else -1

    def _keep_largest(self, others: Sequence[LargeKey]) -> None:
        # sorted() is stable: of equal ones the first remain.
        self._largest = sorted([*self._largest, *others], key=_measure, reverse=True)[:LARGEST]


def _measure(one: LargeKey) -> int:
    return one.key_bytes + one.value_bytes if one.elements is None else one.elements


def _largest_of(
    state: State,
    rows: StoredRows,
    partition: int,
    sizes: tuple[NDArray[np.int64], NDArray[np.int64]],
    lengths: NDArray[np.int64] | None,
    floor: int,
) -> list[LargeKey]:
    measures = sizes[0] + sizes[1] if lengths is None else lengths
    places = np.nonzero(measures > floor)[0]
    if len(places) > LARGEST:
        places = places[np.argpartition(measures[places], -LARGEST)[-LARGEST:]]
    if not len(places):
        return []
    keys: Any = rows.keys
    decoded = state.decode_keys(keys.take(pa.array(places)), partition)
    return [
        LargeKey(
            pa.Table.from_batches([decoded.slice(number, 1)]),
            None if lengths is None else int(lengths[place]),
            *(int(one[place]) for one in sizes),
        )
        for number, place in enumerate(places.tolist())
    ]


def _lengths_of(array: Any) -> NDArray[np.int64]:  # noqa: ANN401 - the stubs lack a common base
    lengths: NDArray[np.int64] = pc.binary_length(array).to_numpy().astype(np.int64)
    return lengths


def _time_columns(family: Family) -> list[tuple[tuple[str, ...], bool]]:
    """Return the columns with times in UTC, and whether rows expire at them, these first.

    Of a window it is the end.
    """
    found: list[tuple[tuple[str, ...], bool]] = []
    for column in family.columns:
        kind: Any = column.type
        if _is_time(kind):
            found.append(((column.name,), column.is_expiry))
        elif types.is_struct(kind):
            end = kind.get_field_index(_END)
            if end >= 0 and _is_time(kind.field(end).type):
                found.append(((column.name, _END), False))
    found.sort(key=lambda one: not one[1])
    return found[:_TIME_COLUMNS_MAX]


def _is_time(kind: Any) -> bool:  # noqa: ANN401 - any type of Arrow
    return bool(types.is_timestamp(kind)) and kind.tz is not None


def _millis(column: Any) -> NDArray[np.int64]:  # noqa: ANN401 - the stubs lack a common base
    units = _UNITS_PER_MS[column.type.unit]
    values: NDArray[np.int64] = column.drop_null().cast(pa.int64()).to_numpy()
    return values // units
