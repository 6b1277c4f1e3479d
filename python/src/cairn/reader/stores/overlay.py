"""Changes above a base: the newest state of each key, and the rows that result.

Layer: reader.stores. The same for all providers: a store is a base (a snapshot, or nothing), whose
rows pass by once, and the changes of the versions after it, which are held in memory.

Changes are reduced to one per key while they are read. If they still need more than the limit, a
family is read in parts: a part has the keys whose hash has a certain remainder. When the changes of
a part are too large, the part is halved, what does not belong to its first half is dropped, and
the second half is read later, with all changes and the base from their start. So the memory is
bounded, and the price of twice the changes is twice the reads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from cairn.errors import RowTooLargeError
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.reader.rows.stored import StoredRows
from cairn.reader.stores.base import Changes
from cairn.reader.stores.columns import (
    BATCH_ROWS,
    EMPTY,
    byte_count,
    concatenated,
    cut,
    joined,
    pc,
)
from cairn.reader.stores.records import OP_DELETE_RANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from cairn.errors import CairnError
    from cairn.reader.stores.base import ReadLimits, StoredFamily
    from cairn.reader.stores.columns import Column, Flags

_MAX_PARTS = 1 << 20
_SETTLE_ROWS = 65_536
_RANGE_BYTES = 128
"""What Python needs for two keys beside their bytes."""
_NOTHING = pa.scalar(b"", pa.large_binary())
_NO_OPS = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class _Part:
    """The keys of a store whose hash has this remainder."""

    divisor: int = 1
    remainder: int = 0

    def halves(self) -> tuple[_Part, _Part]:
        double = self.divisor * 2
        return _Part(double, self.remainder), _Part(double, self.remainder + self.divisor)

    def has(self, keys: Column) -> Flags:
        if self.divisor == 1:
            return np.ones(len(keys), np.bool_)
        # Python's hash has a secret seed: no file can have keys that are all in one part.
        hashes = np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys))
        flags: Flags = hashes & (self.divisor - 1) == self.remainder
        return flags


class _Newest:
    """The newest state of each key of one family that has changes.

    Attributes:
        keys: each once.
        ops: ``OP_PUT``, ``OP_DELETE``, or ``OP_APPEND`` if the base may have more of the value.
        values: of the keys; empty for a delete.
        byte_count: memory of all changes that are held, reduced or not.
        hides_base: whether no row of the base is left.
    """

    def __init__(self) -> None:
        self.keys = self.values = EMPTY
        self.ops = _NO_OPS
        self.byte_count = 0
        self.hides_base = False
        # Ascending; they neither touch nor overlap.
        self._begins: list[bytes] = []
        self._ends: list[bytes] = []
        self._pending: list[Changes] = []
        self._pending_rows = 0

    @property
    def is_empty(self) -> bool:
        """Whether all rows of the base are as they were."""
        return not (len(self.keys) or self._begins or self.hides_base)

    def add(self, changes: Changes) -> None:
        """Add changes that are newer than all before."""
        start = 0
        for position in np.flatnonzero(changes.ops > OP_APPEND).tolist():
            self._append(changes.within(start, position))
            start = position + 1
            if changes.ops[position] == OP_DROP_CF:
                self._clear()
            elif changes.ops[position] == OP_DELETE_RANGE:
                self._hide(changes.keys[position].as_py(), changes.values[position].as_py())
        self._append(changes.within(start, len(changes.ops)))

    def settle(self) -> None:
        """Reduce what was added to one change per key."""
        if not self._pending:
            return
        parts = [Changes(0, self.ops, self.keys, self.values), *self._pending]
        self._pending, self._pending_rows = [], 0
        ops = np.concatenate([part.ops for part in parts])
        values = concatenated([part.values for part in parts])
        encoded: Any = concatenated([part.keys for part in parts]).dictionary_encode()
        del parts
        self.keys = encoded.dictionary
        self.ops, self.values = _reduced(ops, values, encoded.indices.to_numpy(), len(self.keys))
        self._measure()

    def keep(self, flags: Flags) -> None:
        """Drop the keys without a flag. REQUIRES: ``settle`` was called last."""
        kept = Changes(0, self.ops, self.keys, self.values).where(flags)
        self.ops, self.keys, self.values = kept.ops, kept.keys, kept.values
        self._measure()

    def hidden(self, keys: Column) -> Flags:
        """Return which keys were deleted with a range, so that the base has them no more."""
        flags = np.full(len(keys), self.hides_base)
        for begin, end in zip(self._begins, self._ends, strict=True):
            flags |= _inside(keys, begin, end)
        return flags

    def _append(self, changes: Changes) -> None:
        if not len(changes.ops):
            return
        self._pending.append(changes)
        self._pending_rows += len(changes.ops)
        self.byte_count += byte_count(changes.keys) + byte_count(changes.values)
        # The cost of reducing all again stays in proportion to what was read.
        if self._pending_rows > max(_SETTLE_ROWS, len(self.keys)):
            self.settle()

    def _hide(self, begin: bytes, end: bytes) -> None:
        self.settle()
        kept = ~_inside(self.keys, begin, end)
        if begin < end:
            joined_ranges = slice(bisect_left(self._ends, begin), bisect_right(self._begins, end))
            begin = min([begin, *self._begins[joined_ranges]])
            end = max([end, *self._ends[joined_ranges]])
            self._begins[joined_ranges], self._ends[joined_ranges] = [begin], [end]
        self.keep(kept)

    def _clear(self) -> None:
        self.keys = self.values = EMPTY
        self.ops = _NO_OPS
        self._begins, self._ends, self._pending, self._pending_rows = [], [], [], 0
        self.byte_count = 0
        self.hides_base = True

    def _measure(self) -> None:
        self.byte_count = byte_count(self.keys) + byte_count(self.values)
        for begin, end in zip(self._begins, self._ends, strict=True):
            self.byte_count += len(begin) + len(end) + _RANGE_BYTES


def _inside(keys: Column, begin: bytes, end: bytes) -> Flags:
    low, high = pa.scalar(begin, pa.large_binary()), pa.scalar(end, pa.large_binary())
    both = pc.and_(pc.greater_equal(keys, low), pc.less(keys, high))
    flags: Flags = both.to_numpy(zero_copy_only=False)
    return flags


def _reduced(
    ops: NDArray[np.uint8], values: Column, codes: NDArray[np.int32], key_count: int
) -> tuple[NDArray[np.uint8], Column]:
    """Return op and value of each key, by the key's code, from all its changes."""
    whole = np.flatnonzero(ops != OP_APPEND)
    newest_whole = np.full(key_count, -1, np.int64)
    np.maximum.at(newest_whole, codes[whole], whole)
    if len(whole) == len(ops):
        return ops[newest_whole], values.take(newest_whole)
    # Of each key: its newest put or delete, if there is one, and the appends after it.
    used = np.flatnonzero(np.arange(len(ops)) >= newest_whole[codes])
    used = used[np.argsort(codes[used], kind="stable")]
    starts = np.flatnonzero(np.diff(codes[used], prepend=-1))
    first_ops = ops[used[starts]]
    counts = np.diff(starts, append=len(used))
    first_ops[(first_ops == OP_DELETE) & (counts > 1)] = OP_PUT
    return first_ops, joined(values.take(used), starts)


class LayeredRows:
    """The rows of a base with changes above it. Not thread-safe.

    Args:
        base_rows: yields the rows that the base has of a family, each key once.
        base_get: returns the value that the base has of a key of a family.
        changes: yields the changes above the base from their start, at each call.
        limits: of memory.
    """

    def __init__(
        self,
        base_rows: Callable[[int], Iterator[StoredRows]],
        base_get: Callable[[int, bytes], bytes | None],
        changes: Callable[[], Iterator[Changes]],
        limits: ReadLimits,
    ) -> None:
        self._base_rows = base_rows
        self._base_get = base_get
        self._changes = changes
        # Reduced changes may have half of it: then to reduce them again pays for itself.
        self._max_bytes = 2 * limits.row_bytes
        self._held: dict[int, _Newest] | None = None
        self._are_too_large = False

    def rows(self, family: int) -> Iterator[StoredRows]:
        """Yield the rows of a family: each key once.

        Raises:
            RowTooLargeError: the changes of a single key need more memory than the limit.
        """
        held = self._hold()
        if held is not None:
            yield from self._merged(family, held.get(family) or _Newest(), _Part())
            return
        parts = [_Part()]
        while parts:
            part = parts.pop()
            newest = _Newest()
            for changes in self._changes():
                if changes.family != family:
                    continue
                newest.add(_of_part(changes, part))
                while self._is_too_large(newest):
                    part, other = part.halves()
                    if part.divisor > _MAX_PARTS:
                        raise _too_large(self._max_bytes // 2)
                    parts.append(other)
                    newest.keep(part.has(newest.keys))
            newest.settle()
            yield from self._merged(family, newest, part)

    def get(self, family: int, key: bytes) -> bytes | None:
        """Return the value of one key, or ``None``.

        Raises:
            RowTooLargeError: its changes need more memory than the limit.
        """
        held = self._hold()
        if held is not None:
            newest = held.get(family) or _Newest()
        else:
            newest = _Newest()
            for changes in self._changes():
                if changes.family == family:
                    newest.add(_of_key(changes, key))
                    if self._is_too_large(newest):
                        raise _too_large(self._max_bytes // 2)
            newest.settle()
        position = pc.index(newest.keys, pa.scalar(key, pa.large_binary())).as_py()
        op = None if position < 0 else newest.ops[position]
        if op == OP_DELETE:
            return None
        value: bytes = b"" if op is None else newest.values[position].as_py()
        if op == OP_PUT:
            return value
        is_hidden = newest.hidden(pa.array([key], pa.large_binary()))[0]
        below = None if is_hidden else self._base_get(family, key)
        if op is None:
            return below
        return (below or b"") + value

    def close(self) -> None:
        """Release the changes that are held; a later call reads them again."""
        self._held = None

    def _hold(self) -> dict[int, _Newest] | None:
        """Return the changes of all families, or ``None`` if they are too large together."""
        if self._held is None and not self._are_too_large:
            held: dict[int, _Newest] = defaultdict(_Newest)
            for changes in self._changes():
                held[changes.family].add(changes)
                if self._is_too_large(*held.values()):
                    self._are_too_large = True
                    return None
            for one in held.values():
                one.settle()
            self._held = held
        return self._held

    def _is_too_large(self, *held: _Newest) -> bool:
        if sum(one.byte_count for one in held) <= self._max_bytes:
            return False
        for one in held:
            one.settle()
        return sum(one.byte_count for one in held) > self._max_bytes // 2

    def _merged(self, family: int, newest: _Newest, part: _Part) -> Iterator[StoredRows]:
        is_used = np.zeros(len(newest.keys), np.bool_)
        base = iter(()) if newest.hides_base else self._base_rows(family)
        # Arrow builds a table of the changed keys for each batch: as many rows pay for it.
        for rows in _with_rows(base, len(newest.keys), self._max_bytes):
            yield from _changed(_of_part_rows(rows, part), newest, is_used)
        new = newest.ops == OP_PUT
        new |= (newest.ops == OP_APPEND) & ~is_used
        added = Changes(0, newest.ops, newest.keys, newest.values).where(new)
        yield from _batches(added.keys, added.values)


def find(rows: Iterator[StoredRows], key: bytes) -> bytes | None:
    """Return the value of a key among rows, or ``None``."""
    wanted = pa.scalar(key, pa.large_binary())
    for batch in rows:
        position = pc.index(batch.keys, wanted).as_py()
        if position >= 0:
            value: bytes = batch.values[position].as_py()
            return value
    return None


def _changed(rows: StoredRows, newest: _Newest, is_used: Flags) -> Iterator[StoredRows]:
    """Yield the rows of the base that have no change, and those whose value goes on.

    Sets ``is_used`` for the appends that found their row.
    """
    if newest.is_empty:
        yield from _batches(rows.keys, rows.values)
        return
    found = pc.index_in(rows.keys, value_set=newest.keys)
    change = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    hidden = newest.hidden(rows.keys)
    kept = pa.array((change < 0) & ~hidden)
    yield from _batches(rows.keys.filter(kept), rows.values.filter(kept))
    goes_on = (change >= 0) & ~hidden
    goes_on[goes_on] = newest.ops[change[goes_on]] == OP_APPEND
    if goes_on.any():
        mask, appended = pa.array(goes_on), change[goes_on]
        is_used[appended] = True
        more = newest.values.take(appended)
        values = pc.binary_join_element_wise(rows.values.filter(mask), more, _NOTHING)
        yield from _batches(rows.keys.filter(mask), values)


def _of_part(changes: Changes, part: _Part) -> Changes:
    return changes.where(part.has(changes.keys) | (changes.ops > OP_APPEND))


def _of_part_rows(rows: StoredRows, part: _Part) -> StoredRows:
    if part.divisor == 1:
        return rows
    mask = pa.array(part.has(rows.keys))
    return StoredRows(rows.keys.filter(mask), rows.values.filter(mask))


def _of_key(changes: Changes, key: bytes) -> Changes:
    same = pc.equal(changes.keys, pa.scalar(key, pa.large_binary()))
    return changes.where(same.to_numpy(zero_copy_only=False) | (changes.ops > OP_APPEND))


def _with_rows(
    batches: Iterator[StoredRows], row_count: int, max_bytes: int
) -> Iterator[StoredRows]:
    """Yield the rows in batches of at least ``row_count``, unless those are too large."""
    held: list[StoredRows] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += len(batch.keys)
        size += byte_count(batch.keys) + byte_count(batch.values)
        if rows >= row_count or size >= max_bytes:
            yield _concatenated(held)
            held, rows, size = [], 0, 0
    if held:
        yield _concatenated(held)


def _concatenated(batches: list[StoredRows]) -> StoredRows:
    return StoredRows(
        concatenated([batch.keys for batch in batches]),
        concatenated([batch.values for batch in batches]),
    )


def _batches(keys: Column, values: Column) -> Iterator[StoredRows]:
    if len(keys) <= BATCH_ROWS:
        if len(keys):
            yield StoredRows(keys, values)
        return
    for rows in cut(keys, values):
        yield StoredRows(keys[rows], values[rows])


def _too_large(max_bytes: int) -> RowTooLargeError:
    return RowTooLargeError(
        f"the changes of one key have more than {max_bytes} bytes",
        next_step="read with a larger memory_bytes",
    )


class LayeredStore:
    """What the stores of Spark's providers have in common; see ``StoreRows``.

    Attributes:
        families: the column families by name.
        layers: their rows.
    """

    families: Mapping[str, StoredFamily]
    layers: LayeredRows

    @property
    def gone_around(self) -> tuple[CairnError, ...]:
        """Nothing: there is one way to a version; see ``StoreRows``."""
        return ()

    def stored_count(self, family: str) -> int | None:  # noqa: ARG002 - see ``StoreRows``
        """Return ``None``: Spark's changelogs do not have it."""
        return None

    def rows(self, family: str) -> Iterator[StoredRows]:
        """Yield the rows of a family; see ``StoreRows``."""
        return self.layers.rows(self.families[family].family_id)

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of one key, or ``None``."""
        return self.layers.get(self.families[family].family_id, key)

    def rest(self) -> None:
        """Release the changes that are held; see ``StoreRows``."""
        self.layers.close()

    def close(self) -> None:
        """Release the changes that are held."""
        self.layers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
