"""Orphans: objects that no other object names; a listing finds them, at most daily.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#deletion (orphans).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cairn.checkpoint.faults import FaultHook, FaultPoint, no_fault
from cairn.checkpoint.named_ssts import named_outside_chain
from cairn.checkpoint.pins import list_pins, young_reads
from cairn.checkpoint.retention import floor_of
from cairn.checkpoint.spark_logs import newest_batch
from cairn.checksum import crc32c
from cairn.errors import AccessError
from cairn.format.names import (
    CHANGELOG_PREFIX,
    SNAPSHOT_PREFIX,
    SST_PREFIX,
    ChangelogName,
    ManifestName,
    SstName,
    manifest_name,
    parse_name,
)
from cairn.format.spark_log import OFFSETS_PREFIX
from cairn.ids import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from cairn.checkpoint.pins import Pin
    from cairn.checkpoint.retention import KeptVersions
    from cairn.format.manifest import Manifest
    from cairn.ids import StoreId, Version
    from cairn.storage.base import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
SWEEP_INTERVAL_MS = 86_400_000


def next_sweep(swept_at_ms: int, store: StoreId, now: datetime | None) -> tuple[int, bool]:
    """Return what the next manifest says of the last sweep, and whether its writer sweeps.

    Sweeps are daily, by what the manifests say: a process may live for a minute. The first one
    comes within the first day. Partitions start together, and would send their LISTs together, so
    the time of the first one depends on the store.

    Args:
        swept_at_ms: what the manifest before says; 0 if it says nothing, or there is none.
        store: the store.
        now: the time, by the storage's clock; ``None`` if it is not known: then none is due.
    """
    if now is None:
        return swept_at_ms, False
    now_ms = int(now.timestamp() * 1000)
    if not swept_at_ms:
        return max(1, now_ms - crc32c(str(store).encode()) % SWEEP_INTERVAL_MS), False
    if now_ms - swept_at_ms >= SWEEP_INTERVAL_MS:
        return now_ms, True
    # Not a time in the future, which another clock has written.
    return min(swept_at_ms, now_ms), False


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """What is no orphan, whoever names it.

    Attributes:
        grace_ms: younger objects stay.
        now_ms: the time, by the storage's clock; ``None``: that of the youngest object listed.
        planned: the newest batch of Spark's log of offsets; ``None``: it is listed if need be.
        is_held: no writer runs, so the files of a manifest may be deleted with it. Otherwise a
            writer may be about to use them in a manifest of its own.
    """

    grace_ms: int
    now_ms: int | None = None
    planned: int | None = None
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Orphans:
    """The orphans of a store, in the order in which they are deleted.

    Attributes:
        pins: names of pins that nobody has renewed.
        manifests: deleted before the objects that they name.
        others: changelogs and SSTs.
    """

    pins: tuple[str, ...]
    manifests: tuple[ObjectInfo, ...]
    others: tuple[ObjectInfo, ...]

    def __len__(self) -> int:
        """Return how many there are, without pins: these are no part of the state."""
        return len(self.manifests) + len(self.others)


def sweep_orphans(
    objects: ObjectStore,
    manifest: Manifest,
    kept: KeptVersions,
    limits: SweepLimits,
    *,
    fault: FaultHook = no_fault,
) -> Orphans:
    """Delete orphans that are older than the grace period; return them.

    Other objects stay. Costs: four LISTs, a fifth if it deletes changelogs of format 1, and one GET
    per manifest that is not in the chain; one more of each kind if there is a pin that nobody
    renews, and one of Spark's log of offsets if there are old objects of versions above the newest.

    Args:
        objects: at the store's root.
        manifest: the newest one that this writer stored or loaded, with its chain.
        kept: the versions that must stay loadable.
        limits: what stays.
        fault: called at each fault point.
    """
    found = find_orphans(objects, manifest, kept, limits, ends_pins=True, fault=fault)
    fault(FaultPoint.SWEEP_BEFORE_DELETE)
    found = replace(found, others=_unchanged(objects, found.others))
    for infos in (found.manifests, found.others):
        if infos:
            objects.delete([info.key for info in infos])
    return found


def find_orphans(
    objects: ObjectStore,
    manifest: Manifest,
    kept: KeptVersions,
    limits: SweepLimits,
    *,
    ends_pins: bool = False,
    fault: FaultHook = no_fault,
) -> Orphans:
    """Return the orphans that are older than the grace period.

    Args:
        objects: see ``sweep_orphans``, as for the others.
        manifest: see there.
        kept: see there.
        limits: see there.
        ends_pins: whether to delete the pins that nobody has renewed, which must precede the
            deletion of what they protect.
        fault: called at each fault point.
    """
    # SSTs first: an object that is uploaded or named after this listing is not in it. Pins before
    # manifests: an upload whose pin is not found any more does not use its manifest.
    ssts = list(objects.list(SST_PREFIX))
    changelogs = list(objects.list(CHANGELOG_PREFIX))
    now_ms = limits.now_ms
    if now_ms is None:
        # Only of these: an SST that is old now was old when the pins were listed.
        now_ms = max((info.modified_ms for info in (*ssts, *changelogs)), default=0)
    old_ms = now_ms - limits.grace_ms
    pins, dead = _pins(objects, old_ms, ends_pins=ends_pins)
    if pins is None:
        return Orphans((), (), ())
    uploads = {pin.upload_id for pin in pins}
    reads = young_reads(pins, old_ms)
    fault(FaultPoint.SWEEP_AFTER_PINS)
    manifests = list(objects.list(SNAPSHOT_PREFIX))
    floor = floor_of(manifest, kept)
    newest = kept.newest_version
    old = [info for info in (*manifests, *changelogs) if info.modified_ms < old_ms]
    # The logs after the listings: what is listed was written by a batch that was planned before.
    last = _last_planned(objects, manifest, newest, limits) if any(_above(newest, old)) else None

    past_ms = _past_ms(manifest, manifests, floor)

    def is_needed(version: Version) -> bool:
        return last is None or version <= last

    def is_orphan(info: ObjectInfo) -> bool:
        if info.modified_ms >= old_ms:
            return False
        match parse_name(info.key):
            case ManifestName(version, _):
                is_left = version < floor or not is_needed(version)
                return is_left and not reads.need_manifest(version)
            case ChangelogName(version, checkpoint_id):
                # A batch that is planned meanwhile may commit under the plain name.
                is_former = checkpoint_id is not None and not is_needed(version)
                is_past = checkpoint_id is not None or info.modified_ms <= past_ms
                is_left = (version <= floor and is_past) or is_former
                return is_left and not reads.need_changelog(version)
            case SstName(upload_id, _):
                return named is not None and info.key not in named and upload_id not in uploads
        return False

    orphans = tuple(filter(is_orphan, manifests))
    gone = set(orphans) if limits.is_held else set()
    named = _named_ssts(objects, manifest, [info for info in manifests if info not in gone])
    return Orphans(dead, orphans, tuple(filter(is_orphan, (*changelogs, *ssts))))


def _past_ms(manifest: Manifest, listed: Iterable[ObjectInfo], floor: Version) -> int:
    """Return a time before which each changelog of this lineage up to ``floor`` was stored.

    That of the oldest manifest of the chain that is not below it; 0 if there is none. An attempt
    that has a plain name since then is of a run that has begun anew, and has to be kept.
    """
    refs = (manifest.ref, *(entry.ref for entry in manifest.retained))
    chain = {manifest_name(ref) for ref in refs if ref.version >= floor}
    return min((info.modified_ms for info in listed if info.key in chain), default=0)


def _unchanged(objects: ObjectStore, orphans: tuple[ObjectInfo, ...]) -> tuple[ObjectInfo, ...]:
    """Return the orphans without the plain names that have another object since the listing.

    The checkpoint may have been deleted and begun anew; all other names are never used again.
    """
    if not any(map(_is_plain, orphans)):
        return orphans
    present = {info.key: info for info in objects.list(CHANGELOG_PREFIX)}
    return tuple(info for info in orphans if not _is_plain(info) or present.get(info.key) == info)


def _above(newest: Version, infos: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    """Yield the objects of attempts at versions above ``newest``."""
    for info in infos:
        match parse_name(info.key):
            case ManifestName(version, _) | ChangelogName(version, CheckpointId()):
                if version > newest:
                    yield info


def _last_planned(
    objects: ObjectStore, manifest: Manifest, newest: Version, limits: SweepLimits
) -> Version | None:
    """Return the newest version that a planned batch makes; ``None`` if that is not known.

    Spark writes a batch into its log of offsets before the batch runs. So an object of a later
    version is of a run whose entries a person has removed, however far another executor is.
    """
    batch = limits.planned
    if batch is None:
        try:
            batch = newest_batch(objects, manifest.store, OFFSETS_PREFIX)
        except AccessError as failure:
            _LOG.info("versions above %d are not swept: %s", newest, failure)
            return None
    return None if batch is None else max(batch + 1, newest)


def _pins(
    objects: ObjectStore, old_ms: int, *, ends_pins: bool
) -> tuple[tuple[Pin, ...] | None, tuple[str, ...]]:
    """Return the pins, and the names of those that nobody has renewed.

    Args:
        objects: at the store's root.
        old_ms: pins from before this time were not renewed.
        ends_pins: whether these are deleted.

    Returns:
        ``None`` if there is a pin of an unknown kind: it may protect anything.
    """
    pins = list_pins(objects)
    if pins is None:
        return None, ()
    dead = tuple(name for pin in pins if not pin.is_young(old_ms) for name in pin.names)
    if not dead:
        return pins, ()
    if not ends_pins:
        return tuple(pin for pin in pins if pin.is_young(old_ms)), dead
    objects.delete(dead)
    # A writer that has renewed its pin meanwhile looks for the former object after that. If it
    # found that, the new object is in this listing.
    return list_pins(objects), dead


def _named_ssts(
    objects: ObjectStore, newest: Manifest, listed: list[ObjectInfo]
) -> set[str] | None:
    """Return the SSTs that manifests and their chains name; ``None`` if one cannot be read."""
    named = named_outside_chain(objects, newest, listed)
    if named is None:
        return None
    for entry in (*newest.retained, newest.as_retained()):
        named.update(entry.objects)
    named.update(entry.object_name for entry in newest.garbage)  # retention deletes these
    return named


def _is_plain(info: ObjectInfo) -> bool:
    name = parse_name(info.key)
    return isinstance(name, ChangelogName) and name.checkpoint_id is None
