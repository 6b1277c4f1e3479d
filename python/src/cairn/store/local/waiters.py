"""Waiters: calls that wait until a store has reached a version.

Layer: store.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.errors import CairnError
    from cairn.ids import Version

    Waiter = Callable[[CairnError | None], None]
    """Called with the error that prevents the version, or with ``None``."""

_LOG = logging.getLogger(__name__)


class Waiters:
    """See the module. On the event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Version, Waiter]] = []

    def add(self, version: Version, waiter: Waiter) -> None:
        """Wait for a version."""
        self._waiting.append((version, waiter))

    def call(self, is_reached: Callable[[Version], bool]) -> None:
        """Call those whose version is reached."""
        if self._waiting:
            due = [(version, waiter) for version, waiter in self._waiting if is_reached(version)]
            self._waiting = [entry for entry in self._waiting if entry not in due]
            _call(due, None)

    def fail(self, failure: CairnError) -> None:
        """Call all with an error."""
        due, self._waiting = self._waiting, []
        _call(due, failure)


def _call(due: list[tuple[Version, Waiter]], failure: CairnError | None) -> None:
    for version, waiter in due:
        try:
            waiter(failure)
        except Exception:  # noqa: BLE001 - the other waiters must be called
            _LOG.exception("a read that waited for version %d failed", version)
