"""A store whose process is killed at one of its writes."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cairn.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Killed(BaseException):
    """The process ends here: nothing more is written."""


class Life:
    """How many writes a process has left; after the last one it has ended.

    Args:
        writes: the number of the last one, from 1 on.
        is_behind: whether the last one is done.
    """

    def __init__(self, writes: int, *, is_behind: bool) -> None:
        self._left = writes
        self._is_behind = is_behind
        self._order = threading.Lock()

    @property
    def has_ended(self) -> bool:
        """Whether the process was killed."""
        return self._left <= 0

    def write(self, write: Callable[[], None]) -> None:
        """Write, or die before or behind it."""
        with self._order:
            if self._left > 1:
                self._left -= 1
                write()
                return
            is_last, self._left = self._left == 1, 0
            if is_last and self._is_behind:
                write()
            raise Killed


class DyingStore(LocalStore):
    """A store at ``url``, and those opened at others from it, of a process with one ``life``."""

    def __init__(self, url: str, life: Life) -> None:
        super().__init__(url)
        self._life = life

    def at(self, url: str) -> DyingStore:
        """Return the store at another URL, of the same process."""
        return DyingStore(url, self._life)

    def put(self, key: str, data: Any) -> None:  # noqa: ANN401
        """Create or replace an object, or die."""
        self._life.write(lambda: super(DyingStore, self).put(key, data))

    def put_if_absent(self, key: str, data: Any) -> None:  # noqa: ANN401
        """Create an object, or die."""
        self._life.write(lambda: super(DyingStore, self).put_if_absent(key, data))

    def put_if_match(self, key: str, data: Any, etag: str) -> None:  # noqa: ANN401
        """Replace an object, or die."""
        self._life.write(lambda: super(DyingStore, self).put_if_match(key, data, etag))

    def copy_within(self, source: Any, source_key: str, key: str, *, size_bytes: int) -> bool:  # noqa: ANN401
        """Copy an object, or die."""

        def copy() -> None:
            copied = super(DyingStore, self).copy_within(
                source, source_key, key, size_bytes=size_bytes
            )
            assert copied

        self._life.write(copy)
        return True

    def delete(self, keys: Any) -> None:  # noqa: ANN401
        """Delete objects one after the other, or die."""
        delete = super().delete
        for key in keys:
            if "probe" in key:
                delete([key])
            else:
                self._life.write(partial(delete, [key]))


def opener(life: Life) -> Callable[[str, object], DyingStore]:
    """Return what takes the place of ``open_store`` in a process with this life."""
    return lambda url, _: DyingStore(url, life)


@contextmanager
def killed_behind_the_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the command of the block die where it would end its record, which is its last step."""

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("cairn.offline.record.Record.end", dies)
        with pytest.raises(Killed):
            yield
