"""The list of savepoints, and what killed commands have left of some.

Layer: offline.  Spec: docs/checkpoint-format.md#savepoint.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from cairn.checkpoint.pins import list_pins
from cairn.errors import DataError, NotThereError
from cairn.format.names import PIN_PREFIX, SavepointPinName, parse_name
from cairn.offline.hold import list_unheld
from cairn.offline.parallel import in_parallel
from cairn.offline.savepoint import THREADS, pin_key
from cairn.offline.stores import cairn_stores
from cairn.reader.batch import BatchView
from cairn.reader.savepoints import read_savepoint, savepoint_names

if TYPE_CHECKING:
    from collections.abc import Collection

    from cairn.format.savepoint import Savepoint
    from cairn.ids import StoreId
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SavepointInfo:
    """A savepoint, or the pins that a killed process has left of one.

    Attributes:
        name: ``None``: it is unfinished; nobody can use it, and ``gc`` deletes it.
        savepoint_id: in the names of its pins; ``None``: its object is damaged.
        batch: the batch; ``None``: not known.
        created_at: when it was created; of an unfinished one when a pin was stored.
        stores: how many stores it pins.
        missing_pins: how many of the pins are missing.
        problem: why its object cannot be read; ``None``: it can.
    """

    name: str | None
    savepoint_id: str | None
    batch: int | None
    created_at: datetime | None
    stores: int
    missing_pins: int
    problem: str | None = None

    @property
    def status(self) -> str:
        """``whole``, ``broken`` or ``unfinished``."""
        if self.name is None:
            return "unfinished"
        return "broken" if self.missing_pins or self.problem is not None else "whole"


def overview(checkpoint: ObjectStore) -> list[SavepointInfo]:
    """Return the savepoints by batch, then what is left of unfinished ones.

    Costs a LIST per store of the newest batch and of the savepoints.

    Raises:
        NotThereError: there is neither a savepoint nor a query here.
    """
    found: list[Savepoint] = []
    damaged: list[SavepointInfo] = []
    names = savepoint_names(checkpoint)
    for name in names:
        try:
            found.append(read_savepoint(checkpoint, name))
        except NotThereError:
            continue  # deleted since the listing
        except DataError as failure:
            damaged.append(SavepointInfo(name, None, None, None, 0, 0, failure.message))
    pins: dict[str, dict[str, int]] = {}
    stores = {one.store for each in found for one in each.stores}
    with suppress(*([NotThereError] if names else [])):
        stores |= _newest_stores(checkpoint)
    for of_store in in_parallel(partial(_pins_of, checkpoint), sorted(stores), threads=THREADS):
        for id_, url, stored_ms in of_store:
            pins.setdefault(id_, {})[url] = stored_ms
    whole = [
        _info(one, pins.pop(one.savepoint_id, {}))
        for one in sorted(found, key=lambda one: (one.batch, one.created_at_ms))
    ]
    # If an object is damaged, these pins may be its own.
    left = [
        SavepointInfo(None, id_, None, _time(min(urls.values())), len(urls), 0)
        for id_, urls in sorted(pins.items())
        if not damaged
    ]
    return [*whole, *damaged, *left]


def savepoint_ids(checkpoint: ObjectStore) -> frozenset[str] | None:
    """Return the ids of all savepoints; ``None``: the object of one cannot be read."""
    try:
        return frozenset(
            read_savepoint(checkpoint, name).savepoint_id for name in savepoint_names(checkpoint)
        )
    except NotThereError:
        return None  # deleted since the listing
    except DataError as failure:
        _LOG.warning("no pin of a savepoint is deleted: %s", failure)
        return None


def dead_pins(root: ObjectStore, ids: Collection[str], old_ms: int) -> list[str]:
    """Return the names of a store's pins that belong to no savepoint; one LIST.

    Args:
        root: at the store's root.
        ids: of the savepoints, listed after ``old_ms`` was computed.
        old_ms: younger pins may be of a savepoint that is being created; at most the present time
            minus ``DEAD_MS``, by the storage's clock.
    """
    return [
        name
        for found in list_pins(root) or ()
        if found.savepoint_id is not None
        and found.savepoint_id not in ids
        and found.stored_ms < old_ms
        for name in found.names
    ]


def _newest_stores(checkpoint: ObjectStore) -> set[StoreId]:
    """Return the stores of the newest batch, where unfinished pins may be."""
    committed = list_unheld(checkpoint)[0].committed
    with suppress(DataError):
        if committed:
            return {one.id for one in cairn_stores(BatchView(checkpoint, committed[-1]))}
    return set()


def _pins_of(checkpoint: ObjectStore, store: StoreId) -> list[tuple[str, str, int]]:
    """Return the pins of savepoints in a store: their ids, keys, and when they were stored."""
    with checkpoint.at(checkpoint.object_url(store.folder)) as root:
        return [
            (name.savepoint_id, f"{store.folder}/{info.key}", info.modified_ms)
            for info in root.list(PIN_PREFIX)
            if isinstance(name := parse_name(info.key), SavepointPinName)
        ]


def _info(one: Savepoint, pins: Collection[str]) -> SavepointInfo:
    missing = sum(pin_key(one, store) not in pins for store in one.stores)
    return SavepointInfo(
        one.name,
        one.savepoint_id,
        one.batch,
        _time(one.created_at_ms),
        len(one.stores),
        missing,
    )


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
