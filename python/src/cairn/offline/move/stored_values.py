"""Values as Spark's RocksDB stores them: behind row checksums, lists with delimiters.

Layer: offline.move.  Grammar: ``cairn.reader.stores.values``, which reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.offline.move.row_checksums import joined, lengths, numbers, row_checksums
from cairn.reader.rows.lists import elements
from cairn.reader.rows.spans import Spans
from cairn.reader.stores.columns import cells, column, segments

if TYPE_CHECKING:
    from cairn.reader.stores.columns import Column
    from cairn.reader.stores.values import ValueForm

# Arrow's type hints do not cover choices between columns.
pc: Any = pyarrow.compute

_LENGTH_BYTES = 4


def stored_values(keys: Column, values: Column, form: ValueForm) -> Column:
    """Return the values as they are stored; ``values.plain_values`` is the reverse.

    Args:
        keys: as they are stored: the checksums cover them.
        values: as a reader gives them.
        form: of the family.

    Raises:
        CorruptError: a list ends within an element.
    """
    if form.is_plain or not len(values):
        return values
    if not form.is_list:
        return _behind_checksums(keys, values)
    rows, owners = elements(Spans.of(values), "a list")
    of_list: Any = pa.array(owners)
    whole = segments(cells(values)[0], rows.starts - _LENGTH_BYTES, rows.ends)
    if form.has_checksums:
        whole = _behind_checksums(keys.take(of_list), whole)
    if form.delimiter and len(whole):
        is_first = np.diff(owners, prepend=-1) != 0
        delimiter = pa.scalar(form.delimiter, pa.large_binary())
        nothing = pa.scalar(b"", pa.large_binary())
        whole = joined(pc.if_else(pa.array(is_first), nothing, delimiter), whole)
    data, ends = cells(whole)
    firsts = np.searchsorted(owners, np.arange(len(values) + 1))
    return column(ends[firsts], data)


def _behind_checksums(keys: Column, values: Column) -> Column:
    return joined(row_checksums(keys, values), numbers(lengths(values), "<i4"), values)
