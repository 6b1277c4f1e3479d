"""The functions that change a checkpoint: each returns a plan, and the plan's ``apply`` changes it.

Layer: cli's side (nothing below imports it); what does the work is imported by the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cairn.offline.clone import ClonePlan
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

    return _planned(
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

    return _planned(
        location,
        storage_options,
        lambda objects: RepairPlan(
            objects, ReadLimits(), SYSTEM_CLOCK, progress, to_batch=to_batch
        ),
    )


def clone(
    location: str,
    *,
    to: str,
    batch: int | None = None,
    savepoint: str | None = None,
    keep_id: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> ClonePlan:
    """Return what makes a new query from a batch of another one; ``plan.apply()`` makes it.

    Of Cairn's checkpoints and those of Spark's own providers. The query may run: it is only read.
    Close the plan, or use it in a ``with`` statement.

    Args:
        location: the ``checkpointLocation`` of the query; see ``open_checkpoint``.
        to: the ``checkpointLocation`` of the new query: an empty place, on any storage.
        batch: a committed batch that is retained; ``None``: the newest.
        savepoint: the name of a savepoint, whose batch is taken instead.
        keep_id: the new query has the same id, by which sinks know a query.
        storage_options: of both places; see ``open_checkpoint``.
        target_options: of ``to``, if they differ.

    Raises:
        NotThereError: there is no such batch or savepoint, or its state is not retained any more.
        InUseError: a command changes the checkpoint.
        ConfigError, SchemeError: as for ``open_checkpoint``; or one place is in the other one.
    """
    from cairn.clock import SYSTEM_CLOCK  # noqa: PLC0415 - see opening
    from cairn.errors import ConfigError  # noqa: PLC0415
    from cairn.location import applicable, open_location  # noqa: PLC0415
    from cairn.offline.clone import ClonePlan  # noqa: PLC0415

    if batch is not None and savepoint is not None:
        raise ConfigError("a clone is of a batch or of a savepoint", next_step="leave one out")
    of_target = storage_options if target_options is None else target_options
    target = open_location(to, applicable(to, of_target))
    try:
        return _planned(
            location,
            applicable(location, storage_options),
            lambda objects: ClonePlan(
                objects, target, SYSTEM_CLOCK, batch=batch, savepoint=savepoint, keep_id=keep_id
            ),
        )
    except BaseException:
        target.close()
        raise


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
    return _planned(
        location,
        storage_options,
        lambda objects: GcPlan(objects, grace_ms=grace_ms, clock=SYSTEM_CLOCK, progress=progress),
    )


def _planned(
    location: str,
    storage_options: Mapping[str, Any] | None,
    make: Callable[[ObjectStore], AnyPlan],
) -> AnyPlan:
    from cairn.location import open_location  # noqa: PLC0415 - see opening

    objects = open_location(location, storage_options)
    try:
        return make(objects)
    except BaseException:
        objects.close()
        raise
