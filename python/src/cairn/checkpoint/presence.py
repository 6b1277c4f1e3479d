"""Presence: whether an object is stored, and whose changelog a shared name has.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#deletion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.errors import AccessError, DataError, MissingError
from cairn.format import changelog
from cairn.format.names import plain_changelog_name
from cairn.storage.base import ObjectStart

if TYPE_CHECKING:
    from cairn.format.header import ChangelogHeader
    from cairn.ids import StoreId, Version
    from cairn.storage.base import ObjectStore

_START_BYTES = 1 << 16
"""The header of almost every changelog fits."""


def is_stored(objects: ObjectStore, name: str) -> bool:
    """Return whether there is an object of that name; one GET, and a LIST if that is denied.

    Raises:
        AccessError: both are denied.
        UnavailableError and other storage errors: that is not known.
    """
    try:
        objects.get_start(name, 1)
    except DataError:
        return False
    except AccessError:  # to an absent object that may not be listed; or to every object
        return any(info.key == name for info in objects.list(name))
    return True


def header_under_plain_name(
    objects: ObjectStore, store: StoreId, version: Version
) -> ChangelogHeader | None:
    """Return the header of the changelog with the name that attempts share in format 1; one GET.

    It is not verified. But ids have 128 random bits: no damage makes one that is known.

    Returns:
        ``None`` if there is none that is readable.
    """
    name = plain_changelog_name(version)
    try:
        try:
            start = objects.get_start(name, _START_BYTES)
        except MissingError:
            moved = objects.moved_away(name)
            if moved is None:
                return None
            start = ObjectStart(moved.data, len(moved.data))
        header = changelog.peek_header(start.data, store=store, version=version)
        if header is None and not start.is_whole:
            whole = objects.get(name, max_bytes=changelog.MAX_OBJECT_BYTES).data
            header = changelog.decode(whole, object_name=name, store=store, version=version).header
    except (DataError, AccessError):
        return None  # S3 denies access to an absent object if it may not be listed
    return header
