"""The savepoints of a checkpoint: their objects, and whether what they keep is there.

Layer: reader.  Spec: docs/checkpoint-format.md#savepoint.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cairn.checkpoint.stored_versions import StoredVersions
from cairn.errors import CorruptError, DataError, MissingError, NotThereError
from cairn.format import savepoint as savepoint_format
from cairn.format.names import manifest_name, savepoint_pin_name
from cairn.reader.findings import Finding, Place
from cairn.store.load.lineage import changelog_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.format.savepoint import SavedStore, Savepoint
    from cairn.ids import StoreId, VersionRef
    from cairn.storage.base import ObjectStore

_THREADS = 8
_BROKEN = "savepoint-broken"


def savepoint_names(checkpoint: ObjectStore) -> list[str]:
    """Return the names of all savepoints, sorted; one LIST."""
    found = (savepoint_format.name_of(one.key) for one in checkpoint.list(savepoint_format.PREFIX))
    return sorted(name for name in found if name is not None)


def read_savepoint(checkpoint: ObjectStore, name: str) -> Savepoint:
    """Return a savepoint; one GET.

    Raises:
        NotThereError: there is none of this name; says which there are.
        CorruptError: its object is damaged, or has the name of another.
        FormatVersionError: a newer release has written it.
        ConfigError: no savepoint has such a name.
    """
    key = savepoint_format.key_of(name)
    url = checkpoint.object_url(key)
    try:
        data = checkpoint.get(key, max_bytes=savepoint_format.MAX_OBJECT_BYTES).data
    except MissingError:
        names = ", ".join(savepoint_names(checkpoint)) or "none"
        raise NotThereError(
            f"there is no savepoint {name!r}; there are: {names}",
            object_name=url,
            next_step="choose one of these; `cairn savepoint list` shows them",
        ) from None
    found = savepoint_format.parse(data, object_name=url)
    if found.name != name:
        raise CorruptError(
            f"it is the savepoint {found.name!r}", object_name=url, next_step="delete this copy"
        )
    return found


def names_of(one: SavedStore, lineage: Sequence[VersionRef]) -> list[tuple[str, ...]]:
    """Return the objects that a version is loaded from, without SSTs: of each its possible names.

    Args:
        one: the version.
        lineage: its changelogs.
    """
    base = [] if one.base.ref is None else [(manifest_name(one.base.ref),)]
    return [*base, *map(changelog_names, lineage)]


def check_savepoints(checkpoint: ObjectStore) -> Iterator[Finding]:
    """Yield the pins and objects of savepoints that are missing or damaged.

    Costs a LIST; per savepoint a GET; per store that one has a LIST, and per store of each
    savepoint two GETs. Files are compared by their sizes.
    """
    by_store: dict[StoreId, list[tuple[Savepoint, SavedStore]]] = {}
    for name in savepoint_names(checkpoint):
        try:
            found = read_savepoint(checkpoint, name)
        except NotThereError:
            continue  # deleted since the listing
        except DataError as failure:
            yield Finding(_BROKEN, f"savepoint {name}: {failure.message}", failure.object_name)
            continue
        for one in found.stores:
            by_store.setdefault(one.store, []).append((found, one))
    with ThreadPoolExecutor(_THREADS) as threads:
        checks = [threads.submit(_check, checkpoint, *item) for item in by_store.items()]
        for check in checks:
            yield from check.result()


def _check(
    checkpoint: ObjectStore, store: StoreId, kept: Sequence[tuple[Savepoint, SavedStore]]
) -> list[Finding]:
    place = Place(store.operator, store.partition, store.name)
    with checkpoint.at(checkpoint.object_url(store.folder)) as root:
        sizes = {info.key: info.size_bytes for info in root.list("")}
        return [
            Finding(
                _BROKEN,
                f"savepoint {savepoint.name} needs it: {problem}",
                root.object_url(name),
                place,
                savepoint.batch,
            )
            for savepoint, one in kept
            for name, problem in _problems(root, savepoint, one, sizes)
        ]


def _problems(
    root: ObjectStore, savepoint: Savepoint, one: SavedStore, sizes: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield names of objects, and what is wrong with them."""
    pin = savepoint_pin_name(savepoint.savepoint_id, one.base.version, one.ref.version)
    if pin not in sizes:
        yield pin, "the pin is missing"
    versions = StoredVersions(root, one.store, savepoint.checkpoint_format)
    try:
        header = versions.fetch_header(one.ref.version, one.ref.checkpoint_id).header
    except DataError as failure:
        yield changelog_names(one.ref)[0], failure.message
        return
    for names in names_of(one, header.lineage):
        if not any(name in sizes for name in names):
            yield names[0], "it is missing"
    if one.base.ref is None or manifest_name(one.base.ref) not in sizes:
        return
    try:
        manifest = versions.fetch_manifest(one.base.ref)
    except DataError as failure:
        yield manifest_name(one.base.ref), failure.message
        return
    for file in manifest.files:
        if sizes.get(file.object_name) != file.size_bytes:
            yield file.object_name, "it is missing, or has another size"
