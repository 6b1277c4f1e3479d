"""Pins: the objects that protect others from purges and sweeps.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#pin.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cairn.errors import AlreadyExistsError, CairnError
from cairn.format.names import (
    PIN_PREFIX,
    PinnedRange,
    ReaderPinName,
    SavepointPinName,
    UploadPinName,
    parse_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cairn.ids import Version
    from cairn.storage.base import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
_PinName: TypeAlias = UploadPinName | ReaderPinName | SavepointPinName


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin, young or not.

    Attributes:
        names: its objects.
        stored_ms: when the newest of them was stored, by the storage's clock.
        upload_id: of the upload whose SSTs it protects; ``None``: it pins a version.
        reads: what the pin of a version protects.
        savepoint_id: of the savepoint that it belongs to; ``None``: an upload or a reader has it.
    """

    names: tuple[str, ...]
    stored_ms: int
    upload_id: str | None = None
    reads: tuple[PinnedRange, ...] = ()
    savepoint_id: str | None = None

    def is_young(self, old_ms: int) -> bool:
        """Return whether it protects what it names; that of a savepoint always does.

        Args:
            old_ms: what was stored before this time is not young.
        """
        return self.savepoint_id is not None or self.stored_ms >= old_ms


def list_pins(objects: ObjectStore) -> tuple[Pin, ...] | None:
    """Return all pins; one LIST.

    Returns:
        ``None`` if there is a pin of an unknown kind, which may protect anything.
    """
    found: dict[tuple[type, str], list[tuple[ObjectInfo, _PinName]]] = {}
    for info in objects.list(PIN_PREFIX):
        name = parse_name(info.key)
        match name:
            case (
                UploadPinName(upload_id=owner)
                | ReaderPinName(reader_id=owner)
                | SavepointPinName(savepoint_id=owner)
            ):
                found.setdefault((type(name), owner), []).append((info, name))
            case _:
                _LOG.warning(
                    "nothing is deleted, because of a pin that this release does not know: %s",
                    objects.object_url(info.key),
                )
                return None
    return tuple(
        Pin(
            names=tuple(info.key for info, _ in of_pin),
            stored_ms=max(info.modified_ms for info, _ in of_pin),
            upload_id=owner if kind is UploadPinName else None,
            reads=tuple(name for _, name in of_pin if isinstance(name, PinnedRange)),
            savepoint_id=owner if kind is SavepointPinName else None,
        )
        for (kind, owner), of_pin in found.items()
    )


@dataclass(frozen=True, slots=True)
class PinnedReads:
    """What the pins of readers and savepoints protect."""

    reads: tuple[PinnedRange, ...] = ()

    def need_manifest(self, version: Version) -> bool:
        """Return whether a manifest of a version must stay."""
        return any(read.protects_manifest(version) for read in self.reads)

    def need_changelog(self, version: Version) -> bool:
        """Return whether a changelog of a version must stay."""
        return any(read.protects_changelog(version) for read in self.reads)


NO_READS = PinnedReads()


def young_reads(pins: Sequence[Pin], old_ms: int) -> PinnedReads:
    """Return what the young pins of versions protect; ``old_ms``: see ``Pin.is_young``."""
    return PinnedReads(tuple(read for pin in pins if pin.is_young(old_ms) for read in pin.reads))


class PinObjects:
    """The objects of one pin that its owner has stored. One thread at a time.

    Attributes:
        names: those that may exist.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._renewal = 0

    def store_next(
        self, objects: ObjectStore, name_of: Callable[[int], str], content: bytes
    ) -> str:
        """Store the next object and return its name; the former ones stay.

        Raises:
            UnavailableError and other storage errors: call it again.
        """
        while True:
            self._renewal += 1
            name = name_of(self._renewal)
            self.names.append(name)
            try:
                objects.put_if_absent(name, content)
            except AlreadyExistsError:
                continue  # stored by a request whose answer was lost: it may be old
            return name

    def delete_former(self, objects: ObjectStore, name: str) -> None:
        """Delete all but one; after a failure a sweep deletes them. Never raises."""
        former = [other for other in self.names if other != name]
        self.names = [name]
        _delete(objects, former)

    def delete(self, objects: ObjectStore) -> None:
        """Delete all; after a failure a sweep deletes them. Never raises."""
        names, self.names = self.names, []
        _delete(objects, names)


def _delete(objects: ObjectStore, names: Sequence[str]) -> None:
    if not names:
        return
    try:
        objects.delete(names)
    except CairnError as failure:
        _LOG.info("a pin is left for the sweep: %s", failure)
