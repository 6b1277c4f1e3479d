"""What is left in a checkpoint after a chaos run: every object is needed, or a sweep finds it.

First the retention and the sweep of Cairn run as if the grace period of all objects were over: what
a retained version needs must still be there. Then they run once more, as if the query had gone on
until the newest snapshot is the oldest retained version: then nothing older may be left, and no SST
without a manifest that names it. That snapshot may be of the newest version itself, which has an
older base.

What is needed is read here by pyarrow and json from the objects, without Cairn's code.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cairn.checkpoint.orphans import SweepLimits, sweep_orphans
from cairn.checkpoint.purge import Purger
from cairn.checkpoint.retention import KeptVersions
from cairn.format import manifest as manifest_format
from cairn.format.header import Base
from cairn.format.manifest import ChangelogRef
from cairn.ids import CheckpointId, VersionRef
from cairn.storage.open import open_store
from chaos.ways import Version, base_of, header_of, manifest_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cairn.storage.base import ObjectStore

# Everything is older than the grace period an hour before it began.
OVER_MS = -3_600_000
EXAMPLES = 5
# Of Spark's own; in partition 0 of an operator.
_METADATA = "_metadata/"
_ANY_ID = CheckpointId(f"u{'0' * 32}")
_STORE = re.compile(r"(state/\d+/\d+(?:/(?!(?:changelog|snapshot|sst|pin|_metadata)/)[^/]+)?)/(.+)")
_CHANGELOG = re.compile(r"changelog/(\d+)(_u[0-9a-f]{32})?\.arrow")
_MANIFEST = re.compile(r"snapshot/(\d+)_u[0-9a-f]{32}\.json")


@dataclass
class Kept:
    """What the retained versions of one store need.

    Attributes:
        names: the objects, relative to the store's root.
        base: the base of the newest version; the id is empty for the empty state.
        lineage: the changelogs from there to the newest version.
        newest: the newest version, perhaps without an object.
        next_base: the base of the version after the newest one.
    """

    names: set[str] = field(default_factory=set)
    base: Version = (0, "")
    lineage: list[Version] = field(default_factory=list)
    newest: int = 0
    next_base: Version = (0, "")


@dataclass
class Leftovers:
    """Checks the stores of one checkpoint, and deletes what need not be there.

    Args:
        url: the checkpoint location; nothing runs on it.
        settings: of the storage.
        retained: how many versions must stay loadable.
        checkpoint_format: Spark's, 1 or 2.

    Attributes:
        deleted: how many objects were deleted.
        stores: how many stores have a snapshot; the others have nothing to sweep by.
    """

    url: str
    settings: Mapping[str, str]
    retained: int
    checkpoint_format: int = 2
    deleted: int = 0
    stores: int = 0

    def findings(self) -> list[str]:
        """Return what is missing, and what is left that nothing will delete."""
        checkpoint = open_store(self.url, self.settings)
        names = [info.key for info in checkpoint.list("state/")]
        stores: dict[str, set[str]] = {}
        for name in names:
            match = _STORE.fullmatch(name)
            if match and not match[2].startswith(_METADATA):
                stores.setdefault(match[1], set()).add(match[2])
        ids = _ids_by_version(checkpoint)
        checkpoint.close()
        found = []
        for store, present in sorted(stores.items()):
            objects = open_store(f"{self.url}/{store}", self.settings)
            found += [f"{self.url}/{store}: {text}" for text in self._check(objects, present, ids)]
            objects.close()
        return found if stores else [f"{self.url} has no state"]

    def _check(
        self, objects: ObjectStore, present: set[str], ids: dict[int, set[str]]
    ) -> list[str]:
        wanted = sorted(ids)[-self.retained :]
        if self.checkpoint_format == 1:
            named = {version: _plain_id(objects, version, present) for version in wanted}
        else:
            named = {version: _own_id(version, ids[version], present) for version in wanted}
        absent = [version for version in wanted if named[version] is None]
        if absent:
            return [f"no changelog of the retained versions {absent}"]
        kept = _kept(objects, present, [ref for ref in named.values() if ref])
        kept.newest = wanted[-1]
        if missing := sorted(kept.names - present):
            return [f"retained versions need {_some(missing)}, which are gone"]
        if not kept.base[1]:
            return []
        self.stores += 1
        self._delete_as_if_late(objects, kept, goes_on=False)
        if missing := sorted(kept.names - _names(objects)):
            return [f"clean-up deleted {_some(missing)}, which retained versions need"]
        self._delete_as_if_late(objects, kept, goes_on=True)
        left = sorted(_unneeded(objects, kept.next_base[0]))
        return [f"nothing deletes {_some(left)}"] if left else []

    def _delete_as_if_late(self, objects: ObjectStore, kept: Kept, *, goes_on: bool) -> None:
        """Let Cairn delete what the newest writer knows of, and orphans."""
        name = manifest_name(kept.next_base if goes_on else kept.base)
        newest = manifest_format.decode(objects.get(name).data, object_name=name)
        present = _names(objects)
        bases = [base_of(_header(objects, ref, present)) for ref in kept.lineage]
        recent = [
            ChangelogRef(_ref(ref), _base(base))
            for ref, base in zip(kept.lineage, bases, strict=True)
        ]
        last, count = kept.newest, self.retained
        if goes_on:
            last, count = last + 2, 2
            base = Base(newest.ref.version, newest.ref.checkpoint_id)
            recent += [ChangelogRef(VersionRef(n, _ANY_ID), base) for n in (last - 1, last)]
        versions = KeptVersions(last, count, tuple(recent))
        purger = Purger(objects, self.checkpoint_format, grace_ms=OVER_MS)
        purged = purger.purge(newest, versions, _now(objects))
        remaining = newest if purged is None else purged.manifest
        # The SSTs of a manifest that one sweep deletes are orphans of the next one.
        for _ in range(2):
            sweep_orphans(objects, remaining, versions, SweepLimits(OVER_MS))
        self.deleted += len(present) - len(_names(objects))


def _ids_by_version(checkpoint: ObjectStore) -> dict[int, set[str]]:
    """Return the ids of all stores by version, from Spark's commit log; format 1 has none."""
    found: dict[int, set[str]] = {}
    for info in checkpoint.list("commits/"):
        batch = info.key.removeprefix("commits/")
        if batch.isdigit():
            _, _, text = checkpoint.get(info.key).data.decode().partition("\n")
            operators = (json.loads(text).get("stateUniqueIds") or {}).values()
            ids = {one for partitions in operators for stores in partitions for one in stores}
            found[int(batch) + 1] = ids
    return found


def _own_id(version: int, ids: set[str], present: set[str]) -> Version | None:
    """Return the version whose object this store has for a version; an empty commit has none."""
    for text in ids:
        real, own = version, text
        if text.startswith("="):
            number, _, own = text.partition("@")[2].partition("_")
            real = int(number)
        if _changelog_name((real, own)) in present:
            return real, own
    return None


def _plain_id(objects: ObjectStore, version: int, present: set[str]) -> Version | None:
    """Return a version of format 1, with the id of the attempt that has its plain name."""
    name = f"changelog/{version}.arrow"
    if name not in present:
        return None
    return version, header_of(objects.get(name).data)["checkpoint_id"]


def _kept(objects: ObjectStore, present: set[str], versions: list[Version]) -> Kept:
    """Return what versions need, ascending, as far as their objects are there."""
    kept = Kept()
    for ref in versions:
        header = _header(objects, ref, present)
        kept.base = base_of(header)
        kept.lineage = [(number, own) for number, own in header["lineage"]]
        kept.names |= {_stored_name(objects, one, present) for one in kept.lineage}
        if kept.base[1]:
            name = manifest_name(kept.base)
            kept.names.add(name)
            if name in present:
                manifest = json.loads(objects.get(name).data)
                kept.names |= {file["object"] for file in manifest["files"]}
        kept.next_base = ref if manifest_name(ref) in present else kept.base
    return kept


def _header(objects: ObjectStore, ref: Version, present: set[str]) -> dict[str, Any]:
    return header_of(objects.get(_stored_name(objects, ref, present)).data)


def _stored_name(objects: ObjectStore, ref: Version, present: set[str]) -> str:
    """Return the name of an attempt's changelog, also if it is absent.

    In format 1 an attempt has the plain name until another one replaces it.
    """
    own, plain = _changelog_name(ref), f"changelog/{ref[0]}.arrow"
    if own in present or plain not in present:
        return own
    return plain if header_of(objects.get(plain).data)["checkpoint_id"] == ref[1] else own


def _unneeded(objects: ObjectStore, base: int) -> set[str]:
    """Return the objects that no later clean-up finds: neither needed, nor above the base."""
    present = _names(objects)
    versions = {name: _MANIFEST.fullmatch(name) for name in present}
    manifests = {name for name, match in versions.items() if match and int(match[1]) >= base}
    needed = set(manifests)
    for name in manifests:
        needed |= {file["object"] for file in json.loads(objects.get(name).data)["files"]}
    for name in present:
        match = _CHANGELOG.fullmatch(name)
        if match and int(match[1]) > base:
            needed.add(name)
    return present - needed


def _changelog_name(ref: Version) -> str:
    return f"changelog/{ref[0]}_{ref[1]}.arrow"


def _ref(ref: Version) -> VersionRef:
    return VersionRef(ref[0], CheckpointId(ref[1]))


def _base(ref: Version) -> Base:
    return Base(ref[0], CheckpointId(ref[1]) if ref[1] else None)


def _names(objects: ObjectStore) -> set[str]:
    return {info.key for info in objects.list("") if not info.key.startswith(_METADATA)}


def _now(objects: ObjectStore) -> datetime:
    return max(info.last_modified for info in objects.list(""))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - EXAMPLES} more" if len(names) > EXAMPLES else ""
    return ", ".join(names[:EXAMPLES]) + more
