"""MemtableBound: flushes the largest memtable when all of a worker's together are too large.

Layer: store. RocksDB flushes one that is full; it leaves a hundred half-full ones alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cairn.errors import CairnError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.store.instance import ProviderInstance
    from cairn.store.resources import WorkerResources

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_BYTES = 1 << 20


class MemtableBound:
    """See the module. On the owner thread; the flush itself runs in another.

    Args:
        services: of the worker.
    """

    def __init__(self, services: WorkerResources) -> None:
        self._services = services
        self._since_look = 0
        self._is_flushing = False

    def after_apply(self, applied_bytes: int, instances: Mapping[int, ProviderInstance]) -> None:
        """Look, now and then, whether the bound still holds, and flush if not."""
        self._since_look += applied_bytes
        if self._since_look < _LOOK_EVERY_BYTES or self._is_flushing:
            return
        self._since_look = 0
        sizes = [
            (one.local.db.memtable_bytes(), one.local)
            for one in list(instances.values())
            if one.local.is_open
        ]
        if sum(size for size, _ in sizes) <= self._services.memory.memtable_bytes:
            return
        _, largest = max(sizes, key=lambda entry: entry[0])
        self._is_flushing = True
        self._services.metrics.add("flushes_count")
        database = largest.db

        def flush() -> None:
            try:
                database.flush()
            except CairnError as failure:
                _LOG.warning("a flush failed: %s", failure)
            finally:
                self._is_flushing = False

        self._services.in_background(flush)
