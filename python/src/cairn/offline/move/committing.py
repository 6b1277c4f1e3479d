"""Committing a version outside of a query: the changelog of a batch that a command appends.

Layer: offline.move.  Spec: docs/checkpoint-format.md#appended-batches. REQUIRES: a hold keeps
drivers away, so that there is no attempt at the version beside this one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cairn.checkpoint.commit_point import commit_changelog
from cairn.errors import AlreadyExistsError, MissingError
from cairn.format import changelog
from cairn.format.names import changelog_name, plain_changelog_name
from cairn.ids import Attempt

if TYPE_CHECKING:
    from cairn.format.header import ChangelogHeader
    from cairn.ids import StoreId
    from cairn.storage.base import ObjectStore


def attempt_of(work: str) -> Attempt:
    """Return the attempt of a piece of work.

    It is older than that of any driver: if the version is given up, each may replace it.
    """
    return Attempt(work, 0, 0, 0, 0)


def commit_version(
    root: ObjectStore, header: ChangelogHeader, data: bytes, checkpoint_format: int
) -> None:
    """Commit a version; raises what ``commit_changelog`` does.

    Args:
        root: the objects of the store.
        header: the header in ``data``; its attempt is that of ``attempt_of``.
        data: of the changelog.
        checkpoint_format: Spark's, 1 or 2.
    """
    if checkpoint_format == 1:
        free_plain_name(root, header.store, header.ref.version)
    commit_changelog(root, header, data, checkpoint_format=checkpoint_format)


def free_plain_name(root: ObjectStore, store: StoreId, version: int) -> str | None:
    """Keep the changelog of a version that was given up under its id alone, in format 1.

    An error of the storage leaves it.

    Returns:
        Its name with the id; ``None`` if there is none.

    Raises:
        CorruptError, ForeignObjectError: it cannot be read.
    """
    name = plain_changelog_name(version)
    try:
        present = root.get(name, max_bytes=changelog.MAX_OBJECT_BYTES)
    except MissingError:
        return None
    former = changelog.decode(
        present.data, object_name=root.object_url(name), store=store, version=version
    )
    own = changelog_name(former.header.ref)
    with suppress(AlreadyExistsError):
        root.put_if_absent(own, present.data)
    root.delete([name])
    return own
