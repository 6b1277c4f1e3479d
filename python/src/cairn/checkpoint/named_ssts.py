"""Which SSTs the manifests of other writers name.

Layer: checkpoint. A writer knows the manifests of its chain. Another executor may have stored a
manifest of the same lineage outside of it, which names SSTs of a manifest in the chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.errors import DataError, MissingError
from cairn.format import manifest as manifest_format
from cairn.format.names import ManifestName, parse_name
from cairn.ids import VersionRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cairn.format.manifest import Manifest
    from cairn.storage.base import ObjectInfo, ObjectStore


def named_outside_chain(
    objects: ObjectStore, newest: Manifest, listed: Iterable[ObjectInfo]
) -> set[str] | None:
    """Return the SSTs that the listed manifests outside the chain of ``newest`` name.

    Those of their chains count, and those that their writers will delete in time: another writer
    may be about to share the SSTs of a manifest that has just been deleted. Sends one GET for each
    of them; often there is none.

    Returns:
        ``None`` if one of them cannot be read: it may name anything.
    """
    chain = {newest.ref, *(entry.ref for entry in newest.retained)}
    named: set[str] = set()
    for info in listed:
        name = parse_name(info.key)
        if not isinstance(name, ManifestName):
            continue
        if VersionRef(name.version, name.checkpoint_id) in chain:
            continue
        try:
            data = objects.get(info.key, max_bytes=manifest_format.MAX_OBJECT_BYTES).data
            other = manifest_format.decode(data, object_name=objects.object_url(info.key))
        except MissingError:
            continue  # deleted since the listing
        except DataError:
            return None
        named.update(file.object_name for file in other.files)
        named.update(name for entry in other.retained for name in entry.objects)
        named.update(entry.object_name for entry in other.garbage)
    return named
