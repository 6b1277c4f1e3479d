"""Which cells of Arrow arrays are equal: NaN is equal to itself, and so is null.

Layer: reader. To Arrow's own functions NaN is not even itself, null is neither equal nor unequal,
and structs, lists, maps and calendar intervals cannot be compared cell by cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute
types: Any = pa.types

_INTERVAL_BYTES = 16


def are_equal(column: Any, value: Any) -> Any:  # noqa: ANN401 - the stubs have a type per kind
    """Return which cells of a column are a value, a scalar of the column's type."""
    return pa.array(_equal_cells(column, pa.repeat(value, len(column))), pa.bool_())


def are_same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Return whether two tables have the same rows in the same order."""
    if one.schema != other.schema or one.num_rows != other.num_rows:
        return False
    columns = zip(one.columns, other.columns, strict=True)
    return all(_equal_cells(_whole(a), _whole(b)).all() for a, b in columns)


def _whole(column: pa.ChunkedArray[Any]) -> Any:  # noqa: ANN401 - the stubs have a type per kind
    # Of no chunks, it would be the table's own array of them.
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _equal_cells(one: Any, other: Any) -> Flags:  # noqa: ANN401 - as above
    """Return which cells are equal, of two arrays of one type and length."""
    is_valid, is_valid_there = (_flags(array.is_valid()) for array in (one, other))
    result: Flags = is_valid == is_valid_there
    if types.is_null(one.type) or not len(one):
        return result
    (places,) = np.nonzero(is_valid & is_valid_there)
    if len(places) < len(one):
        one, other = one.take(pa.array(places)), other.take(pa.array(places))
    result[places] = _equal_values(one, other)
    return result


def _equal_values(one: Any, other: Any) -> Flags:  # noqa: ANN401 - as above
    """Return which cells are equal; none is null."""
    if types.is_floating(one.type):
        are_nan = pc.and_(pc.is_nan(one), pc.is_nan(other))
        return _flags(pc.or_(are_nan, pc.equal(one, other)))
    if types.is_struct(one.type):
        return _all(map(_equal_cells, one.flatten(), other.flatten()), len(one))
    if types.is_interval(one.type):
        bytes_of = pa.binary(_INTERVAL_BYTES)
        return _flags(pc.equal(one.view(bytes_of), other.view(bytes_of)))
    if not types.is_nested(one.type):
        return _flags(pc.equal(one, other))
    starts, starts_there = (np.asarray(array.offsets, np.int64) for array in (one, other))
    lengths = np.diff(starts)
    result: Flags = lengths == np.diff(starts_there)
    (places,) = np.nonzero(result)
    lengths = lengths[places]
    ends = np.cumsum(lengths)
    # Which element belongs to the cells of equal length, as places in either array.
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    here = pa.array(np.repeat(starts[:-1][places], lengths) + within)
    there = pa.array(np.repeat(starts_there[:-1][places], lengths) + within)
    pairs = zip(_elements(one), _elements(other), strict=True)
    equal = _all((_equal_cells(a.take(here), b.take(there)) for a, b in pairs), len(within))
    unequal_before = np.concatenate([[0], np.cumsum(~equal)])
    result[places] = unequal_before[ends] == unequal_before[ends - lengths]
    return result


def _elements(array: Any) -> list[Any]:  # noqa: ANN401 - as above
    """Return the elements of lists, or the keys and the values of maps, as offsets count them."""
    return [array.keys, array.items] if types.is_map(array.type) else [array.values]


def _all(flags: Iterable[Flags], count: int) -> Flags:
    result = np.ones(count, np.bool_)
    for some in flags:
        result &= some
    return result


def _flags(array: Any) -> Flags:  # noqa: ANN401 - as above
    return cast("Flags", array.to_numpy(zero_copy_only=False))
