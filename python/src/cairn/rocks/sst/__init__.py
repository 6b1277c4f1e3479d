"""SST files of RocksDB, written with numpy from rows of fixed widths and short keys.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst, docs/adr/0020-sst-files-written-by-numpy.md.

    FixedRows -> entries and restarts of data blocks -> compressed blocks -> file
    rows.py      entries.py                              table.py, with the filter of bloom.py

RocksDB's own writer needs one call per row, with the GIL held. These modules work on whole columns,
and most of their time is spent in calls that release the GIL.
"""

from __future__ import annotations

from cairn.rocks.sst.rows import FixedRows, fixed_rows
from cairn.rocks.sst.table import TableWriter

__all__ = ["FixedRows", "TableWriter", "fixed_rows"]
