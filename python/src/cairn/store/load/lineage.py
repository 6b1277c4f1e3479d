"""The lineage of a version: the snapshots before it, the changelogs after them, and their names.

Layer: store.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from cairn.checkpoint.reader_pins import Reading
from cairn.errors import MissingError
from cairn.format.names import (
    SNAPSHOT_PREFIX,
    ManifestName,
    changelog_name,
    manifest_name,
    parse_name,
    plain_changelog_name,
)
from cairn.ids import VersionRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.checkpoint.stored_versions import StoredVersions
    from cairn.protocol.calls import LoadSnapshotRequest
    from cairn.storage.base import ObjectStore
    from cairn.store.state.version import StoreVersion


def with_base_below(checkpoint: StoredVersions, end: StoreVersion, version: int) -> StoreVersion:
    """Return ``end`` with the newest base of its lineage that is not above ``version``.

    Follows the changelogs of the bases, without a LIST. An empty state may be above ``version``.

    Raises:
        MissingError: an older changelog was purged.
    """
    while end.base.version > version and end.base.ref is not None:
        older = checkpoint.read(end.base.version, str(end.base.checkpoint_id)).header
        end = replace(end, base=older.base, lineage=(*older.lineage, *end.lineage))
    return end


def ways_from(
    checkpoint: StoredVersions, end: StoreVersion, request: LoadSnapshotRequest
) -> Iterator[StoreVersion]:
    """Yield ``end`` with the requested snapshot as its base; then with each one before it.

    Those before it are for a version of which nobody has stored a snapshot. The last one begins
    with the empty state.

    Raises:
        MissingError: nothing leads from the requested version to ``end``.
    """
    version, id_ = request.snapshot_version, request.snapshot_checkpoint_id
    wanted = None if id_ is None else VersionRef.named(version, id_)
    failure: MissingError | None = None
    try:
        way = with_base_below(checkpoint, end, version if wanted is None else wanted.version)
        # The changelog of the oldest kept snapshot was purged: only a base names that version.
        past = way.lineage if way.base.ref is None else (way.base.ref, *way.lineage)
        # The snapshot of an empty commit is that of its real version, the newest one up to it.
        at = max((ref for ref in past if ref.version <= version), default=None)
        if at is not None and wanted in (None, at):
            yield way.rebased(at) or way
            if at == way.base.ref:
                way = with_base_below(checkpoint, way, at.version - 1)
            while True:
                yield way
                if way.base.ref is None:
                    return
                way = with_base_below(checkpoint, way, way.base.version - 1)
    except MissingError as error:
        failure = error
    name = SNAPSHOT_PREFIX if wanted is None else manifest_name(wanted)
    raise MissingError(
        f"nothing leads from version {version} to {end.version}: neither a snapshot of it, nor an "
        "earlier one and all changelogs from there",
        store=str(checkpoint.store),
        version=version,
        object_name=checkpoint.objects.object_url(name),
        next_step="choose a version that is retained",
    ) from failure


def listed_snapshots(objects: ObjectStore) -> set[VersionRef]:
    """Return the versions of which a manifest is stored; one LIST.

    A snapshot that was stored after its changelog was encoded is named by no changelog.
    """
    names = (parse_name(info.key) for info in objects.list(SNAPSHOT_PREFIX))
    return {VersionRef(*astuple(one)) for one in names if isinstance(one, ManifestName)}


def reading_of(version: StoreVersion) -> Reading:
    """Return what a load of ``version`` needs. REQUIRES: it is not empty."""
    assert version.ref is not None  # noqa: S101 - see above
    oldest: tuple[str, ...] = ()
    if version.base.ref is not None:
        oldest = (manifest_name(version.base.ref),)
    elif version.lineage:
        oldest = changelog_names(version.lineage[0])
    return Reading(version.base.version, version.ref.version, version.ref.checkpoint_id, oldest)


def changelog_names(ref: VersionRef) -> tuple[str, ...]:
    """Return the names that a changelog may have."""
    return changelog_name(ref), plain_changelog_name(ref.version)
