"""A store whose process is killed at one of its writes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cairn.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable


class Killed(BaseException):
    """The process ends here: nothing more is written."""


class DyingStore(LocalStore):
    """Ends the process before, or behind, one of the calls that write.

    Args:
        url: of the root.
        last: the number of that call, from 1 on.
        is_behind: whether the call is done.
    """

    def __init__(self, url: str, last: int, *, is_behind: bool) -> None:
        super().__init__(url)
        self._left = last
        self._is_behind = is_behind
        self._order = threading.Lock()

    def put(self, key: str, data: Any) -> None:  # noqa: ANN401
        """Create or replace an object, or die."""
        self._dying(lambda: super(DyingStore, self).put(key, data))

    def put_if_absent(self, key: str, data: Any) -> None:  # noqa: ANN401
        """Create an object, or die."""
        self._dying(lambda: super(DyingStore, self).put_if_absent(key, data))

    def put_if_match(self, key: str, data: Any, etag: str) -> None:  # noqa: ANN401
        """Replace an object, or die."""
        self._dying(lambda: super(DyingStore, self).put_if_match(key, data, etag))

    def copy_within(self, source: Any, source_key: str, key: str, *, size_bytes: int) -> bool:  # noqa: ANN401
        """Copy an object, or die."""

        def copy() -> None:
            copied = super(DyingStore, self).copy_within(
                source, source_key, key, size_bytes=size_bytes
            )
            assert copied

        self._dying(copy)
        return True

    def delete(self, keys: Any) -> None:  # noqa: ANN401
        """Delete objects, or die."""
        if not keys or "probe" in keys[0]:
            super().delete(keys)
        else:
            self._dying(lambda: super(DyingStore, self).delete(keys))

    def _dying(self, write: Callable[[], None]) -> None:
        with self._order:
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._is_behind):
                self._left = -1
                raise Killed
            write()
            if self._left == 0:
                self._left = -1
                raise Killed
