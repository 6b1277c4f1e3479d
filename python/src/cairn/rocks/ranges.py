"""RangeRows: the rows of many ranges of a database: sought, or read past where they are close.

Layer: rocks. In a database of eight files a seek takes 5 us, a row that an iterator over rows
returns 0.4 us, a deleted row on the way 0.3 us, and an iterator for one range 40 us.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, cast

from rocksdict import ReadOptions

from cairn.rocks.keys import ABOVE_ALL_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rocksdict import Rdict, RdictIter

    Row = tuple[int, bytes, bytes]

# The rows before a range are walked past, by at most so many steps, to learn how many there are.
_SAMPLE_STEPS = 14
_SAMPLE_RANGES = 16
# If there are at most so many per range, all rows are read.
_CLOSE_ROWS = 10
# Until there are more in one place.
_MAX_GAP_ROWS = 32

# Deleted rows that one seek or step may pass, unless the iterator is bounded by one range.
MAX_SKIPPED = 256
_SKIPPED_TOO_MANY = "Result incomplete"


class RangeRows:
    """Yields the index of the range, the key and the value of each row; iterated once.

    It sees the database as it was when the iteration began or a little later, and must not outlive
    it. Raises what rocksdict raises at a corrupt block.

    Where many deleted rows lie between two ranges, each range gets an iterator of its own, whose
    bound ends the walk over them: for one range, then for twice as many each time.

    Args:
        database: the database.
        ranges: the first RocksDB key of each, and the key above its last; fastest if they ascend
            and do not overlap.
        options: returns new options of reads.
        keys_only: values are empty, and not read.
    """

    def __init__(
        self,
        database: Rdict,
        ranges: Sequence[tuple[bytes, bytes]],
        options: Callable[[], ReadOptions] = ReadOptions,
        *,
        keys_only: bool = False,
    ) -> None:
        self._database = database
        self._ranges = ranges
        self._options = options
        self._reading = options()
        # A seek behind the last row would go on over all deleted rows that follow. `_ranges` holds
        # the bytes of the bound: rocksdict does not.
        self._reading.set_iterate_upper_bound(max((high for _, high in ranges), default=b""))
        self._reading.set_max_skippable_internal_keys(MAX_SKIPPED)
        self._keys_only = keys_only
        self._place = 0
        # All rows of the range at `_place` up to this key were yielded.
        self._through = b""

    def __iter__(self) -> Iterator[Row]:
        """See the class."""
        alone = 1
        while self._place < len(self._ranges):
            try:
                yield from self._sought()
                if self._place < len(self._ranges):
                    yield from self._read_past()
            except Exception as failure:
                if not is_skipped_too_many(failure):
                    raise
                yield from self._each_alone(self._place + alone)
                alone *= 2

    def _sought(self) -> Iterator[Row]:
        """Yield rows until the end, or until the rows between the ranges turn out to be few."""
        seeker = self._database.iter(self._reading)
        at = free_from = ABOVE_ALL_KEYS  # no row is from `free_from` to before `at`
        steps = 0
        is_sampling = True
        for sampled, place in enumerate(range(self._place, len(self._ranges)), start=1):
            low, high = self._begin(place)
            if not free_from <= low <= at:
                left = _SAMPLE_STEPS if is_sampling and free_from <= low else 0
                while left and at < low:
                    seeker.next()
                    at = key_of(seeker)
                    left -= 1
                    steps += 1
                if not free_from <= low <= at:
                    seeker.seek(low)
                    at = key_of(seeker)
            while at < high:
                yield place, at, b"" if self._keys_only else seeker.value()
                self._through = at
                seeker.next()
                at = key_of(seeker)
            self._through = b""
            free_from = max(low, high)
            if is_sampling:
                is_sampling = steps <= _CLOSE_ROWS * (sampled + 1)
                if is_sampling and sampled == _SAMPLE_RANGES:
                    self._place = place + 1
                    return
        self._place = len(self._ranges)

    def _begin(self, place: int) -> tuple[bytes, bytes]:
        """Return what is left of a range."""
        self._place = place
        low, high = self._ranges[place]
        return (self._through + b"\0" if self._through else low), high

    def _each_alone(self, end_place: int) -> Iterator[Row]:
        """Yield the rows of the ranges before one, each by an iterator that ends with its range."""
        for place in range(self._place, min(end_place, len(self._ranges))):
            low, high = self._begin(place)
            reading = self._options()
            reading.set_iterate_upper_bound(high)
            seeker = self._database.iter(reading)
            seeker.seek(low)
            while (at := key_of(seeker)) < high:
                yield place, at, b"" if self._keys_only else seeker.value()
                seeker.next()
            self._through = b""
            self._place = place + 1

    def _read_past(self) -> Iterator[Row]:
        """Yield rows until the end, or until there are many rows between two ranges."""
        place = self._place
        low, high = self._ranges[place]
        skipped = 0
        key = b""
        for key, value in self._rows(low):
            while key >= high:
                place += 1
                before = high
                self._place = place
                if place == len(self._ranges):
                    return
                low, high = self._ranges[place]
                if low < before:
                    return
                skipped = 0
            if key >= low:
                yield place, key, value
            else:
                skipped += 1
                if skipped > _MAX_GAP_ROWS:
                    return
        # The end of the database, many deleted rows, or a corrupt block: only a seek can tell.
        self._through = key if key >= low else b""

    def _rows(self, low: bytes) -> Iterator[tuple[bytes, bytes]]:
        database, reading = self._database, self._reading
        if self._keys_only:
            keys = cast("Iterator[bytes]", database.keys(from_key=low, read_opt=reading))
            return zip(keys, repeat(b""), strict=False)
        rows = database.items(from_key=low, read_opt=reading)
        return cast("Iterator[tuple[bytes, bytes]]", rows)


def key_of(seeker: RdictIter) -> bytes:
    """Return the key of an iterator, or ``ABOVE_ALL_KEYS`` at the end."""
    key: bytes | None = seeker.key()
    if key is None:
        # At the end, or at a block that it cannot read.
        seeker.status()
        return ABOVE_ALL_KEYS
    return key


def is_skipped_too_many(failure: Exception) -> bool:
    """Return whether a read met more deleted rows than its options allow."""
    return _SKIPPED_TOO_MANY in str(failure)
