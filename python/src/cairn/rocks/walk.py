"""Walk: goes to one key of a database after the other, by steps where they are close together.

Layer: rocks. In a database of eight files a seek takes as long as 14 steps from key to key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.rocks.keys import ABOVE_ALL_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocksdict import RdictIter

# The first keys are walked to by at most so many steps each, before a seek.
_SAMPLE_KEYS = 16
_SAMPLE_STEPS = 8
# If these steps led there, the later keys are walked to as well.
_MAX_STEPS = 32


class Walk:
    """See the module. The database is as it was when the iterator was created.

    Args:
        seeker: a new iterator, which must not outlive the database.

    Attributes:
        key: where the walk is: ``b""`` before the first ``to``, ``ABOVE_ALL_KEYS`` at the end.
        value: returns the value there. REQUIRES: not at the end.
    """

    def __init__(self, seeker: RdictIter) -> None:
        self.key = b""
        self.value = seeker.value
        self._seek, self._next, self._key = seeker.seek, seeker.next, seeker.key
        self._check = seeker.status
        # There is no key between this one and `key`.
        self._after = b""
        self._max_steps = 0  # the first key is sought
        self._sampled = 0
        self._steps = 0

    def step(self) -> bytes:
        """Go to the next key, and return it. REQUIRES: not at the end.

        Raises:
            Exception: rocksdict raises it at a corrupt block.
        """
        self._after = self.key
        self._next()
        return self._arrive()

    def _arrive(self) -> bytes:
        key: bytes | None = self._key()
        if key is None:
            # The iterator is at the end, or at a block that it cannot read.
            self._check()
            key = ABOVE_ALL_KEYS
        self.key = key
        return key

    def to(self, start: bytes) -> bytes:
        """Go to the first key that is not below ``start``, and return it.

        Raises:
            Exception: rocksdict raises it at a corrupt block.
        """
        left = self._max_steps
        if start <= self._after:
            self.key, left = b"", 0
        while left and self.key < start:
            self.step()
            left -= 1
        if self.key < start:
            self._seek(start)
            self._arrive()
        self._after = start
        if self._sampled <= _SAMPLE_KEYS:
            self._sample(self._max_steps - left)
        return self.key

    def _sample(self, steps: int) -> None:
        self._steps += steps
        self._sampled += 1
        self._max_steps = _SAMPLE_STEPS
        if self._sampled > _SAMPLE_KEYS:
            is_dense = self._steps <= _SAMPLE_KEYS * _SAMPLE_STEPS * 3 // 4
            self._max_steps = _MAX_STEPS if is_dense else 0

    def chunks(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the chunks, key and value, of the list whose chunk keys begin with ``start``.

        Raises:
            Exception: rocksdict raises it at a corrupt block.
        """
        self.to(start)
        while self.key.startswith(start):
            yield self.key, self.value()
            self.step()
