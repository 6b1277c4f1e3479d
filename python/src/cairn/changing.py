"""The functions that change a checkpoint: each returns a plan, and the plan's ``apply`` changes it.

Layer: cli's side (nothing below imports it); what does the work is imported by the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cairn.offline.gc import GcPlan
    from cairn.offline.repair import RepairPlan
    from cairn.offline.restore import SavepointPlan
    from cairn.reader.verify import Progress
    from cairn.storage.base import ObjectStore

AnyPlan = TypeVar("AnyPlan")


def repair(
    location: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> RepairPlan:
    """Return what would mend a checkpoint of Cairn's: ``plan.steps``; ``plan.apply()`` does it.

    Reads the whole state of the newest batch. Close the plan, or use it in a ``with`` statement.

    Args:
        location: the query's ``checkpointLocation``; see ``open_checkpoint``.
        storage_options: see ``open_checkpoint``.
        progress: called with the number of partitions of stores that were read, and of all.

    Raises:
        UnsupportedStateError: it is a checkpoint of Spark's own provider.
        InUseError: the query goes on meanwhile.
        NotThereError: there is no query at this location.
        ConfigError, SchemeError: as for ``open_checkpoint``.
    """
    return _repair(location, storage_options, progress, to_batch=None)


def restore(
    location: str,
    *,
    to_batch: int | None = None,
    savepoint: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> RepairPlan | SavepointPlan:
    """Return what lets a query go on from an earlier batch; ``plan.apply()`` does it.

    The entries of later batches are removed from Spark's logs, and kept in the checkpoint. Reads
    the whole state of the batch. Close the plan, or use it in a ``with`` statement.

    Args:
        location: see ``repair``, as for the others.
        to_batch: a committed batch whose state is retained. The one after it is repeated with the
            input that was planned for it.
        savepoint: the name of a savepoint, whose batch is taken instead; Spark's entries of it are
            put back where they are gone.
        storage_options: see there.
        progress: see there.

    Raises:
        NotThereError: the batch is not committed, or there is no query at this location, or no such
            savepoint, or it is not whole.
        UnsupportedStateError, InUseError, ConfigError, SchemeError: as for ``repair``.
    """
    from cairn.clock import SYSTEM_CLOCK  # noqa: PLC0415 - see opening
    from cairn.errors import ConfigError  # noqa: PLC0415

    if (to_batch is None) == (savepoint is None):
        raise ConfigError(
            "a query is restored to a batch or to a savepoint", next_step="name one of both"
        )
    if savepoint is None:
        return _repair(location, storage_options, progress, to_batch=to_batch)
    name = savepoint
    from cairn.offline.restore import SavepointPlan  # noqa: PLC0415
    from cairn.reader.stores.base import ReadLimits  # noqa: PLC0415

    return planned(
        location,
        storage_options,
        lambda objects: SavepointPlan(objects, ReadLimits(), SYSTEM_CLOCK, name, progress),
    )


def _repair(
    location: str,
    storage_options: Mapping[str, Any] | None,
    progress: Progress | None,
    *,
    to_batch: int | None,
) -> RepairPlan:
    from cairn.clock import SYSTEM_CLOCK  # noqa: PLC0415 - see opening
    from cairn.offline.repair import RepairPlan  # noqa: PLC0415
    from cairn.reader.stores.base import ReadLimits  # noqa: PLC0415

    return planned(
        location,
        storage_options,
        lambda objects: RepairPlan(
            objects, ReadLimits(), SYSTEM_CLOCK, progress, to_batch=to_batch
        ),
    )


def gc(
    location: str,
    *,
    grace_s: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> GcPlan:
    """Return what nothing in a checkpoint of Cairn's needs: ``plan.orphans``.

    ``plan.apply()`` deletes it. Close the plan, or use it in a ``with`` statement.

    Args:
        location: the query's ``checkpointLocation``; see ``open_checkpoint``.
        grace_s: younger objects stay, which a task may be about to use; ``None``: the default of
            ``cairn.orphanGraceMs``.
        storage_options: see ``open_checkpoint``.
        progress: called with the number of partitions of stores that were listed, and of all.

    Raises:
        UnsupportedStateError, NotThereError, ConfigError, SchemeError: as for ``repair``.
    """
    from cairn.clock import SYSTEM_CLOCK  # noqa: PLC0415 - see opening
    from cairn.config import EngineConf  # noqa: PLC0415
    from cairn.offline.gc import GcPlan  # noqa: PLC0415

    grace_ms = EngineConf().orphan_grace_ms if grace_s is None else grace_s * 1000
    return planned(
        location,
        storage_options,
        lambda objects: GcPlan(objects, grace_ms=grace_ms, clock=SYSTEM_CLOCK, progress=progress),
    )


def planned(
    location: str,
    storage_options: Mapping[str, Any] | None,
    make: Callable[[ObjectStore], AnyPlan],
) -> AnyPlan:
    """Return a plan that is made from the objects of a location, which it closes."""
    from cairn.location import open_location  # noqa: PLC0415 - see opening

    objects = open_location(location, storage_options)
    try:
        return make(objects)
    except BaseException:
        objects.close()
        raise
