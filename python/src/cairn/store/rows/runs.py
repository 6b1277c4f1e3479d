"""Runs: writes sorted by family and key, in memory or in a mapped file, which reads search.

Layer: store. Runs lie over RocksDB, oldest first: those of committed versions, and over them those
of the open session (its *spill*). The search for a key uses its *word*: the number in the 8 bytes
that follow the prefix which all keys of a family in this run share. A directory says where words of
about that size begin. If words are spread evenly, it leaves one or two rows to look at.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pyarrow as pa

from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.rocks.keys import successor
from cairn.store.rows.sorting import BinaryColumn, take

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from numpy.typing import NDArray

    from cairn.store.rows.sorting import Words

    RowNumbers = NDArray[np.int64]
    Hit = tuple[int, bytes | None]
    """Op and value of a write."""

_WORD = struct.Struct(">Q")
_WORD_BYTES = _WORD.size
# Fewer keys are found faster one by one.
_BULK_KEYS = 16
# To find a key alone in a mapped file takes as long as to read so many of its keys in a row.
READ_ROWS_PER_KEY = 256
# So many keys are found one by one in a step.
_STRIDE_KEYS = 64
# Fewer words are compared faster one by one.
_BISECTED_ROWS = 8
_ABSENT = -1


def first_to_merge(sizes: Sequence[int], limit: int) -> int:
    """Return the index of the oldest run that is merged with all newer ones.

    The newest run is merged with each older one that is not larger than the result so far. A row is
    merged only as often as its run doubles.

    Args:
        sizes: bytes of the runs, oldest first; at least one.
        limit: bytes of the largest merged run.
    """
    first = len(sizes) - 1
    size = sizes[first]
    while first and sizes[first - 1] <= size and size + sizes[first - 1] <= limit:
        first -= 1
        size += sizes[first]
    return first


class _Cells:
    """A binary column as a sequence of bytes; does not copy the column."""

    def __init__(self, column: pa.Array[Any]) -> None:
        _, offsets, data = column.buffers()
        # An empty column may have neither buffer.
        self.offsets = memoryview(offsets or b"\0\0\0\0").cast("i")[column.offset :]
        self._data = memoryview(data or b"")
        self._count = len(column)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._data[self.offsets[index] : self.offsets[index + 1]])


def _common_prefix(left: bytes, right: bytes) -> bytes:
    """Return the first bytes that two keys have in common."""
    # With numpy: keys may have megabytes.
    size = min(len(left), len(right))
    differs = np.ones(size + 1, np.bool_)
    cells, others = (np.frombuffer(key[:size], np.uint8) for key in (left, right))
    np.not_equal(cells, others, out=differs[:-1])
    return left[: int(differs.argmax())]


class SearchedKeys:
    """Keys that are searched for in several runs."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = keys
        self._words: dict[int, Words] = {}

    def words(self, skip: int) -> Words:
        """Return the word of each key after the first ``skip`` bytes."""
        found = self._words.get(skip)
        if found is None:
            found = self._words[skip] = self._column.words(skip)
        return found

    @cached_property
    def _column(self) -> BinaryColumn:
        return _column(self.keys)


class _Family:
    """The rows of one family in a run: ``start`` to before ``end``."""

    def __init__(
        self, keys: pa.Array[Any], cells: _Cells, rows: tuple[int, int], stride: int
    ) -> None:
        self.start, self.end = rows
        self._cells = cells
        self._stride = stride
        self.prefix = _common_prefix(cells[self.start], cells[self.end - 1])
        common = len(self.prefix)
        self._word_end = common + _WORD_BYTES
        sampled = self._column = keys.slice(self.start, self.end - self.start)
        self._width = BinaryColumn(sampled).width
        if stride > 1:
            indices: Any = pa.array(np.arange(0, len(sampled), stride))
            sampled = sampled.take(indices)
        # Ascending, like the keys; keys with equal words may differ behind them.
        self.words = BinaryColumn(sampled).words(common)
        self._words = self.words.data
        # Parts of equal size of the range of words, not more than there are words. INVARIANT: the
        # words of part i are those from _part_starts[i] to before _part_starts[i + 1].
        self._lowest, highest = int(self.words[0]), int(self.words[-1])
        span = highest - self._lowest
        self._part_bits = max(0, span.bit_length() - len(self.words).bit_length() + 1)
        self._part_count = (span >> self._part_bits) + 1
        parts = (self.words - self.words[0]) >> np.uint64(self._part_bits)
        sizes = np.bincount(parts.astype(np.int64), minlength=self._part_count)
        self._part_starts = np.concatenate(([0], sizes.cumsum())).astype(np.int32).data

    def _word_of(self, key: bytes) -> int:
        """Return the word of a key. REQUIRES: it begins with the prefix."""
        if len(key) >= self._word_end:
            word: int = _WORD.unpack_from(key, self._word_end - _WORD_BYTES)[0]
            return word
        return int.from_bytes(key[len(self.prefix) :].ljust(_WORD_BYTES, b"\0"), "big")

    def find(self, key: bytes) -> int:
        """Return the row of a key, or ``_ABSENT``."""
        if not key.startswith(self.prefix):
            return _ABSENT
        if self._stride > 1:
            return self._checked(self.row_of(key), self.end, key)
        word = self._word_of(key)
        part = (word - self._lowest) >> self._part_bits
        if part < 0 or part >= self._part_count:
            return _ABSENT
        words, at, end = self._words, self._part_starts[part], self._part_starts[part + 1]
        if end - at > _BISECTED_ROWS:
            at = bisect_left(words, word, at, end)
        while at < end and words[at] < word:
            at += 1
        if at == end or words[at] != word:
            return _ABSENT
        row = self.start + at
        if self._cells[row] == key:
            return row
        # Several keys have this word.
        last = self.start + bisect_right(words, word, at, end)
        return self._checked(bisect_left(self._cells, key, row, last), last, key)

    def _checked(self, row: int, end: int, key: bytes) -> int:
        """Return the row if it is before ``end`` and has the key, else ``_ABSENT``."""
        return row if row < end and self._cells[row] == key else _ABSENT

    def row_of(self, key: bytes) -> int:
        """Return the first row whose key is not below ``key``, or ``end``."""
        prefix = self.prefix
        size = len(prefix)
        head = key[:size]
        if head != prefix:
            return self.start if head < prefix else self.end
        word = self._word_of(key)
        part = (word - self._lowest) >> self._part_bits
        if part < 0:
            return self.start
        if part >= self._part_count:
            low = high = len(self._words)
        else:
            low, high = self._part_starts[part], self._part_starts[part + 1]
            low = bisect_left(self._words, word, low, high)
            high = bisect_right(self._words, word, low, high)
        # Sampled rows before `low` are below the key, those from `high` on are above it.
        first = self.start + ((low - 1) * self._stride + 1 if low else 0)
        last = min(self.start + high * self._stride, self.end)
        return bisect_left(self._cells, key, first, last) if first < last else first

    def _all_words(self) -> Words:
        """Return the word of each row. If not every row is sampled, this reads all keys."""
        if self._stride == 1:
            return self.words
        return BinaryColumn(self._column).words(len(self.prefix))

    def rows_of_ranges(
        self, starts: Sequence[bytes], ends: Sequence[bytes | None]
    ) -> tuple[RowNumbers, RowNumbers]:
        """Return the first row of each range, and the row after its last; see ``_all_words``.

        REQUIRES: starts ascend, and so do ends; only the last end may be ``None``.
        """
        words = self._all_words()
        bounded = cast("Sequence[bytes]", ends if ends[-1] is not None else ends[:-1])
        starts_column, ends_column = _column(starts), _column(bounded)
        longest = max(starts_column.longest, ends_column.longest)
        is_exact = longest <= min(self._width or 0, self._word_end)
        first = self._places(words, starts, starts_column, "left")
        last = np.full(len(ends), len(words))
        side: Literal["left", "right"] = "left" if is_exact else "right"
        last[: len(bounded)] = self._places(words, bounded, ends_column, side)
        first += self.start
        last += self.start
        if not is_exact:
            # Keys whose words equal that of a bound may be on either side of it.
            for place in np.flatnonzero(first < last).tolist():
                first[place] = self.row_of(starts[place])
                end = ends[place]
                last[place] = self.end if end is None else self.row_of(end)
        return first, np.maximum(first, last)

    def _places(
        self,
        words: Words,
        bounds: Sequence[bytes],
        column: BinaryColumn,
        side: Literal["left", "right"],
    ) -> RowNumbers:
        """Return for each of ascending bounds the place of its word among those of the rows."""
        result = np.searchsorted(words, column.words(len(self.prefix)), side)
        above = successor(self.prefix)
        first = bisect_left(bounds, self.prefix)
        last = len(bounds) if above is None else bisect_left(bounds, above)
        result[:first] = 0
        result[last:] = len(words)
        return result

    def possible_rows(self, keys: SearchedKeys, places: RowNumbers) -> list[tuple[int, int]]:
        """Return which of some keys may be here: the place of each, and the row to look at first.

        If not every row is sampled, this reads all keys of the family.
        """
        words = keys.words(len(self.prefix))[places]
        of_rows = self._all_words()
        at = np.searchsorted(of_rows, words)
        at[at == len(of_rows)] = 0
        found = np.flatnonzero(of_rows[at] == words)
        rows = at[found] + self.start
        return list(zip(places[found].tolist(), rows.tolist(), strict=True))


class Run:
    """Coalesced, sorted writes. Immutable, thread-safe.

    Args:
        rows: as ``writes.coalesce`` returns them.
        stride: every such row is sampled for the search, in 8 bytes of memory: 1 for rows in
            memory; more for rows in a mapped file, which may be much larger than memory.
    """

    def __init__(self, rows: pa.RecordBatch, stride: int = 1) -> None:
        self.rows = rows
        self._stride = stride
        self._changes = rows.select(["op", "key", "value"])
        self._keys = _Cells(rows.column("key"))
        self._values = _Cells(rows.column("value"))
        self._ops = rows.column("op").to_numpy().data
        cfs = rows.column("cf").to_numpy()
        ends = [*(np.flatnonzero(np.diff(cfs)) + 1).tolist(), rows.num_rows]
        self._families: dict[int, _Family] = {}
        dropped = set()
        start = 0
        for end in ends if rows.num_rows else ():
            cf = int(cfs[start])
            if self._ops[start] == OP_DROP_CF:
                dropped.add(cf)  # the only write of its family
            else:
                self._families[cf] = _Family(rows.column("key"), self._keys, (start, end), stride)
            start = end
        self.dropped = frozenset(dropped)

    def concerns(self, cf: int) -> bool:
        """Return whether there are writes of a family."""
        return cf in self._families or cf in self.dropped

    def rows_of_ranges(
        self, cf: int, starts: Sequence[bytes], ends: Sequence[bytes | None]
    ) -> tuple[RowNumbers, RowNumbers]:
        """Return ``rows_of_range`` of each range; faster for many.

        REQUIRES: starts ascend, and so do ends; only the last end may be ``None``.
        """
        family = self._families.get(cf)
        if family is not None and self.suits_bulk(len(starts)):
            return family.rows_of_ranges(starts, ends)
        pairs = [
            self.rows_of_range(cf, start, end) for start, end in zip(starts, ends, strict=True)
        ]
        firsts, lasts = zip(*pairs, strict=True)
        return np.array(firsts), np.array(lasts)

    def find(self, cf: int, key: bytes) -> Hit | None:
        """Return op and value of a key's write, or ``None``."""
        family = self._families.get(cf)
        if family is None:
            return (OP_DELETE, None) if cf in self.dropped else None
        row = family.find(key)
        return None if row == _ABSENT else self._hit(row)

    def _hit(self, row: int) -> Hit:
        op = self._ops[row]
        return op, None if op == OP_DELETE else self._values[row]

    def find_many(
        self, cf: int, keys: SearchedKeys, places: RowNumbers
    ) -> Iterator[tuple[int, Hit]]:
        """Yield the place and ``find`` of those of some keys that are here; faster for many."""
        family = self._families.get(cf)
        if family is None or len(places) < _BULK_KEYS or not self.suits_bulk(len(places)):
            hits = ((place, self.find(cf, keys.keys[place])) for place in places.tolist())
        else:
            hits = (
                (place, self._hit(row) if self._keys[row] == key else self.find(cf, key))
                for place, row in family.possible_rows(keys, places)
                for key in (keys.keys[place],)
            )
        return ((place, hit) for place, hit in hits if hit is not None)

    def suits_bulk(self, key_count: int) -> bool:
        """Return whether so many keys are found faster together than one by one."""
        return self._stride == 1 or self.rows.num_rows <= key_count * READ_ROWS_PER_KEY

    def first_rows(
        self,
        cf: int,
        start: bytes | None,
        end: bytes | None,
        *,
        limit_rows: int,
        limit_bytes: int,
    ) -> tuple[int, int, bool]:
        """Return the first row of a range, the one after the last, and whether more follow.

        Ends after the row at which the keys or the values reach ``limit_bytes``.
        """
        first, last = self.rows_of_range(cf, start, end)
        stop = min(last, first + limit_rows)
        for offsets in (self._keys.offsets, self._values.offsets):
            limit = int(offsets[first]) + limit_bytes
            stop = min(stop, bisect_left(offsets, limit, first + 1, stop + 1))
        return first, stop, stop < last

    def key(self, row: int) -> bytes:
        """Return the key of a row."""
        return self._keys[row]

    def rows_up_to(self, cf: int, key: bytes, stop: int) -> int:
        """Return ``stop``, or the first row of a family whose key is above ``key`` if before it.

        REQUIRES: the family has rows.
        """
        return min(stop, self._families[cf].row_of(key + b"\0"))

    def rows_at(self, numbers: RowNumbers, through: bytes | None) -> pa.RecordBatch:
        """Return op, key and value of rows of one family, as far as their keys are not above one.

        Args:
            numbers: ascending.
            through: the key; ``None``: all of them.
        """
        if through is not None:
            numbers = numbers[: bisect_right(numbers, through, key=lambda row: self._keys[row])]
        return take([self._changes], numbers)

    def page_bytes(self, firsts: RowNumbers, lasts: RowNumbers) -> int:
        """Return the bytes of the keys or of the values of some rows, whichever are more."""
        columns = (np.asarray(column.offsets) for column in (self._keys, self._values))
        return max(int((offsets[lasts] - offsets[firsts]).sum()) for offsets in columns)

    def rows_of_range(self, cf: int, start: bytes | None, end: bytes | None) -> tuple[int, int]:
        """Return the first row of a range of keys, and the row after its last."""
        family = self._families.get(cf)
        if family is None:
            return 0, 0
        first = family.start if start is None else family.row_of(start)
        last = family.end if end is None else max(first, family.row_of(end))
        return first, last


def _column(cells: Sequence[bytes]) -> BinaryColumn:
    return BinaryColumn(pa.array(cells, pa.binary()))


def _strides(run: Run, count: int) -> Iterator[slice]:
    """Yield which of so many keys or ranges one step looks for in a run.

    In a large run few of them are looked for one by one. Many are looked for together: to read the
    keys of the run takes as long for all of them as for some.
    """
    most = max(1, count) if run.suits_bulk(count) else _STRIDE_KEYS
    for start in range(0, count, most):
        yield slice(start, start + most)


class Runs:
    """Runs in their order; the newest write of a key wins. Immutable, thread-safe.

    Args:
        runs: from the oldest to the newest.
    """

    def __init__(self, runs: tuple[Run, ...] = ()) -> None:
        self.runs = runs
        self._newest_first = runs[::-1]

    def __bool__(self) -> bool:
        """Whether there is any run."""
        return bool(self.runs)

    def batches(self) -> list[pa.RecordBatch]:
        """Return the rows of all runs, in the order of the writes."""
        return [run.rows for run in self.runs]

    def of_family(self, cf: int) -> list[Run]:
        """Return the runs with writes of a family, oldest first."""
        return [run for run in self.runs if run.concerns(cf)]

    def concerns(self, cf: int) -> bool:
        """Return whether any run has writes of a family."""
        return any(run.concerns(cf) for run in self.runs)

    def rows_of_ranges(
        self, cf: int, starts: Sequence[bytes], ends: Sequence[bytes | None]
    ) -> Generator[None, None, list[tuple[Run, RowNumbers, RowNumbers]]]:
        """Steps that return ``Run.rows_of_ranges`` of each run with writes of the family."""
        result = []
        for run in self.of_family(cf):
            firsts, lasts = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
            for part in _strides(run, len(starts)):
                firsts[part], lasts[part] = run.rows_of_ranges(cf, starts[part], ends[part])
                yield
            result.append((run, firsts, lasts))
        return result

    def find(self, cf: int, key: bytes) -> Hit | None:
        """Return the net op and value of all writes of a key; ``None`` if there are none."""
        parts: list[bytes] = []
        for run in self._newest_first:
            hit = run.find(cf, key)
            if hit is None:
                continue
            op, value = hit
            if op == OP_APPEND:
                parts.append(value or b"")
            elif not parts:
                return hit
            else:
                return OP_PUT, b"".join((value or b"", *reversed(parts)))
        return (OP_APPEND, b"".join(reversed(parts))) if parts else None

    def find_many(self, cf: int, keys: Sequence[bytes]) -> Generator[None, None, dict[int, Hit]]:
        """Steps that return ``find`` of the keys that have writes, by place; faster for many."""
        if len(keys) < _BULK_KEYS:
            hits = ((place, self.find(cf, key)) for place, key in enumerate(keys))
            return {place: hit for place, hit in hits if hit is not None}
        found: dict[int, Hit] = {}
        searched = SearchedKeys(keys)
        is_left = np.ones(len(keys), np.bool_)
        for run in reversed(self.of_family(cf)):
            left = np.flatnonzero(is_left)
            for part in _strides(run, len(left)):
                for place, hit in run.find_many(cf, searched, left[part]):
                    # An older write may begin the list: few keys have several.
                    is_list = hit[0] == OP_APPEND
                    found[place] = cast("Hit", self.find(cf, keys[place])) if is_list else hit
                    is_left[place] = False
                yield
        return found

    def find_now(self, cf: int, keys: Sequence[bytes]) -> dict[int, Hit]:
        """Return ``find_many`` in one step."""
        steps = self.find_many(cf, keys)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("dict[int, Hit]", end.value)


NO_RUNS = Runs()
