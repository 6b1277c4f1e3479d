"""Which objects of a store nothing needs any more, read from the objects themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.format import changelog, manifest
from cairn.format.names import changelog_name, manifest_name, plain_changelog_name
from cairn.ids import VersionRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cairn.ids import StoreId
    from cairn.storage.base import ObjectStore


def needless_objects(
    objects: ObjectStore, store: StoreId, retained: Iterable[tuple[int, str | None]]
) -> list[str]:
    """Return the objects that no retained version needs, and no manifest near them has.

    SSTs that a manifest names as garbage, or for a snapshot before it, are such objects: they stay
    for a while.

    In format 1 the changelogs of a former run, above the newest version, are no such objects: the
    present run replaces them when it gets there.

    Args:
        objects: at the store's root.
        store: the store.
        retained: the retained versions with their ids; without them in format 1.
    """
    names = {info.key for info in objects.list("")}
    needed: set[str] = set()
    lowest = None
    manifests: set[VersionRef] = set()
    top = 0
    for version, id_ in retained:
        ref = None if id_ is None else VersionRef.named(version, id_)
        at = version if ref is None else ref.version
        name = plain_changelog_name(at) if ref is None else changelog_name(ref)
        header = changelog.decode(
            objects.get(name).data, object_name=name, store=store, version=at
        ).header
        top = max(top, version)
        lowest = header.base.version if lowest is None else min(lowest, header.base.version)
        needed |= {changelog_name(entry) for entry in header.lineage}
        needed |= {plain_changelog_name(entry.version) for entry in header.lineage}
        if header.base.ref is not None:
            manifests.add(header.base.ref)
    assert lowest is not None
    for key in names:
        kind, _, name = key.partition("/")
        if kind not in {"snapshot", "changelog"}:
            continue
        number = int(name.split("_")[0].split(".")[0])
        if kind == "snapshot" and lowest <= number <= top:
            found = manifest.decode(objects.get(key).data, object_name=key)
            manifests.add(found.ref)
        elif kind == "changelog" and (lowest < number <= top or (number > top and "_" not in name)):
            needed.add(key)
    for ref in manifests:
        name = manifest_name(ref)
        needed.add(name)
        if name not in names:
            continue  # another way leads to the version; loads are compared elsewhere
        found = manifest.decode(objects.get(name).data, object_name=name)
        needed |= {file.object_name for file in found.files}
    return [key for key in names - needed if not key.startswith(".")]
