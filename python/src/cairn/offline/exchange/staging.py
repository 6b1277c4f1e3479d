"""Staging: the rows of files, by partition, on the local disk, until their stores are written.

Layer: offline.exchange. A partition is sorted in memory, so that memory is its largest one.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.offline.exchange.reading import MOST_PROBLEMS, Problem
from cairn.offline.move.digest import Digest
from cairn.offline.move.row_checksums import joined, lengths, numbers
from cairn.reader.rows.stored import StoredRows
from cairn.reader.stores.columns import cut
from cairn.reader.stores.columns import joined as grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cairn.offline.exchange.reading import EncodedRows
    from cairn.reader.families import Family

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_BINARY: Any = pa.large_binary()
_RAW = pa.schema(
    [
        ("key", _BINARY),
        ("value", _BINARY),
        ("place", pa.int64()),
        ("file", pa.int32()),
        ("row", pa.int64()),
    ]
)
_STAGED = pa.schema([("key", _BINARY), ("value", _BINARY)])


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows of families that take the place of others: an ``Edit``.

    Attributes:
        folders: with the rows of each family, by its name.
        operator: whose families they are.
        store: in which they are.
        merges: rows with other keys stay.
    """

    folders: Mapping[str, str]
    operator: int
    store: str
    merges: bool

    def rows(
        self, family: Family, partition: int, rows: Iterator[StoredRows]
    ) -> Iterator[StoredRows]:
        """See ``Edit``."""
        if (family.operator.id, family.store.name) != (self.operator, self.store) or (
            family.family not in self.folders
        ):
            yield from rows
            return
        path = Path(self.folders[family.family], str(partition))
        staged = _read(path) if path.exists() else None
        if self.merges:
            for some in rows:
                yield some if staged is None else _without(some, staged.keys)
        if staged is not None:
            for part in cut(staged.keys, staged.values):
                yield StoredRows(staged.keys[part], staged.values[part])


def _read(path: Path) -> StoredRows:
    with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        table = reader.read_all().combine_chunks()
    if not table.num_rows:
        return StoredRows(pa.array([], _BINARY), pa.array([], _BINARY))
    (batch,) = table.to_batches()
    return StoredRows(batch.column("key"), batch.column("value"))


def _without(rows: StoredRows, keys: pa.Array[Any]) -> StoredRows:
    stays = pc.invert(pc.is_in(rows.keys, value_set=keys))
    return StoredRows(rows.keys.filter(stays), rows.values.filter(stays))


class Staging:
    """See the module.

    Args:
        folder: an empty one on the local disk.
        is_list: whether a key has several rows.

    Attributes:
        problems: keys and places that are there twice, at most ``MOST_PROBLEMS``.
        partitions: those that have rows.
        keys: their number.
        digest: of the rows, as they are stored.
    """

    def __init__(self, folder: Path, *, is_list: bool) -> None:
        self.problems: list[Problem] = []
        self.partitions: tuple[int, ...] = ()
        self.keys = 0
        self.digest = Digest()
        self._folder = folder
        self._is_list = is_list
        self._files: list[str] = []
        self._writers: dict[int, Any] = {}
        self._opened = ExitStack()

    def begin_file(self, name: str) -> None:
        """Let the rows of the next file come."""
        self._files.append(name)

    def add(self, encoded: EncodedRows) -> None:
        """Take rows of the file."""
        count = len(encoded.keys)
        places = encoded.places if self._is_list else np.zeros(count, np.int64)
        rows = np.arange(encoded.first, encoded.first + count)
        columns: list[Any] = [
            encoded.keys,
            encoded.values,
            pa.array(places),
            pa.array(np.full(count, len(self._files) - 1, np.int32)),
            pa.array(rows),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=_RAW)
        for partition in np.unique(encoded.partitions).tolist():
            self._writer(partition).write_batch(
                batch.filter(pa.array(encoded.partitions == partition))
            )

    def _writer(self, partition: int) -> Any:  # noqa: ANN401 - the stubs lack its methods
        if partition not in self._writers:
            make: Any = pa.ipc.new_file
            path = self._folder / f"{partition}.raw"
            self._writers[partition] = self._opened.enter_context(make(str(path), _RAW))
        return self._writers[partition]

    def finish(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Sort the rows of each partition, and look for keys that are there twice."""
        self._opened.close()
        self.partitions = tuple(sorted(self._writers))
        for place, partition in enumerate(self.partitions):
            path = self._folder / f"{partition}.raw"
            with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
                table = reader.read_all()
            in_order = table.sort_by([(name, "ascending") for name in ("key", "place", "file")])
            (batch,) = in_order.combine_chunks().to_batches()
            path.unlink()
            self._look_for_repeats(batch)
            rows = self._as_lists(batch) if self._is_list else batch.select(["key", "value"])
            make: Any = pa.ipc.new_file
            with make(str(self._folder / str(partition)), _STAGED) as writer:
                writer.write_batch(rows)
            self.keys += rows.num_rows
            self.digest.add(StoredRows(rows.column("key"), rows.column("value")))
            if progress is not None:
                progress(place + 1, len(self.partitions))

    def rows(self, partition: int) -> StoredRows:
        """Return the rows of a partition, sorted by key."""
        return _read(self._folder / str(partition))

    def _look_for_repeats(self, batch: pa.RecordBatch) -> None:
        names = ["key", "place"] if self._is_list else ["key"]
        count = batch.num_rows
        same = np.ones(max(count - 1, 0), np.bool_)
        for name in names:
            column: Any = batch.column(name)
            equal = pc.equal(column.slice(1), column.slice(0, max(count - 1, 0)))
            same &= np.asarray(equal.to_numpy(zero_copy_only=False), np.bool_)
        files, rows = batch.column("file"), batch.column("row")
        for place in np.flatnonzero(same).tolist():
            if len(self.problems) == MOST_PROBLEMS:
                return
            first = f"row {rows[place].as_py()} of {self._files[files[place].as_py()]}"
            what = "the place in the list" if self._is_list else "the key"
            self.problems.append(
                Problem(
                    self._files[files[place + 1].as_py()],
                    rows[place + 1].as_py(),
                    "list_place" if self._is_list else None,
                    f"{what} is that of {first}, too",
                )
            )

    def _as_lists(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys: Any = batch.column("key")
        values: Any = batch.column("value")
        differs = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
        starts = np.flatnonzero(np.concatenate([[True], differs.to_numpy(zero_copy_only=False)]))
        elements = joined(numbers(lengths(values), "<i4"), values)
        columns: list[Any] = [keys.take(pa.array(starts)), grouped(elements, starts)]
        return pa.RecordBatch.from_arrays(columns, schema=_STAGED)
