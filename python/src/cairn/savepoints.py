"""The functions of savepoints: a batch is kept, listed, given up, while the query goes on.

Layer: cli's side (nothing below imports it); what does the work is imported by the first call.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cairn.format.savepoint import Savepoint
    from cairn.offline.savepoint_list import SavepointInfo
    from cairn.storage.base import ObjectStore


def create_savepoint(
    location: str,
    *,
    name: str | None = None,
    batch: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> Savepoint:
    """Keep a batch of a query of Cairn's, running or not, until its savepoint is deleted.

    Nothing is copied: retention keeps the objects of the batch. Returns the savepoint.

    Args:
        location: the query's ``checkpointLocation``; see ``open_checkpoint``.
        name: of at most 100 letters, digits, ``-``, ``_`` and ``.``; ``None``: made of batch and
            time.
        batch: a committed batch that is retained; ``None``: the newest.
        storage_options: see ``open_checkpoint``.
        dry_run: nothing is stored: the savepoint is the one that there would be.

    Raises:
        AlreadyExistsError: there is a savepoint of this name.
        NotThereError: the batch is not committed, or not retained any more; says which is.
        UnsupportedStateError: it is a checkpoint of Spark's own provider.
        InUseError: a command changes the checkpoint.
        BusyError: it took longer than half an hour; nothing is left.
        UnavailableError: the storage does not answer; ``list_savepoints`` shows what there is.
        ConfigError, SchemeError: as for ``open_checkpoint``; or no savepoint has such a name.
    """
    from cairn.offline.savepoint import create  # noqa: PLC0415 - see opening

    with _opened(location, storage_options) as objects:
        return create(objects, name=name, batch=batch, dry_run=dry_run)


def list_savepoints(
    location: str, *, storage_options: Mapping[str, Any] | None = None
) -> tuple[SavepointInfo, ...]:
    """Return the savepoints of a checkpoint, and what is left of those that were not finished.

    Args:
        location: see ``create_savepoint``.
        storage_options: see there.

    Raises:
        NotThereError: there is neither a savepoint nor a query at this location.
        ConfigError, SchemeError: as for ``open_checkpoint``.
    """
    from cairn.offline.savepoint_list import overview  # noqa: PLC0415 - see opening

    with _opened(location, storage_options) as objects:
        return tuple(overview(objects))


def delete_savepoint(
    location: str,
    name: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> Savepoint | None:
    """Give up a savepoint: what it kept alone goes with the next purges of the query, or ``gc``.

    Returns what it was; ``None``: its object is damaged.

    Args:
        location: see ``create_savepoint``.
        name: its name.
        storage_options: see there.
        dry_run: nothing is deleted.

    Raises:
        NotThereError: there is none of this name.
        ConfigError, SchemeError: as for ``open_checkpoint``; or no savepoint has such a name.
    """
    from cairn.offline.savepoint import delete  # noqa: PLC0415 - see opening

    with _opened(location, storage_options) as objects:
        return delete(objects, name, dry_run=dry_run)


@contextmanager
def _opened(location: str, storage_options: Mapping[str, Any] | None) -> Iterator[ObjectStore]:
    from cairn.location import open_location  # noqa: PLC0415 - see opening

    with open_location(location, storage_options) as objects:
        objects.cleans = False
        yield objects
