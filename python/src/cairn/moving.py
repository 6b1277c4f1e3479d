"""The functions that move the state of a query: each returns a plan, whose ``apply`` moves it.

Layer: cli's side (nothing below imports it); what does the work is imported by the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, get_args

from cairn.changing import planned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.offline.clone import ClonePlan
    from cairn.offline.migrate import MigrationPlan
    from cairn.offline.repartition import RepartitionPlan


def migrate(
    location: str,
    *,
    to: str | None,
    provider: str,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> MigrationPlan:
    """Return what moves the state of a query to another provider; ``plan.apply()`` moves it.

    ``plan.apply(session)`` does it in tasks of Spark. The query goes on from the new checkpoint.
    Close the plan, or use it in a ``with`` statement.

    Args:
        location: the query's ``checkpointLocation``, of Cairn's or of Spark's providers; see
            ``open_checkpoint``.
        to: an empty place for the new checkpoint; ``None``: the same checkpoint gets a batch
            without input, whose state is in the files of the other provider.
        provider: ``cairn``, ``rocksdb`` or ``hdfs``.
        storage_options: see ``open_checkpoint``.
        target_options: those of ``to``; ``None``: the same.

    Raises:
        UnsupportedStateError: the provider has no such state; names the operator.
        NotThereError: there is no query at this location, or no batch is committed.
        InUseError: another command changes the checkpoint.
        ConfigError, SchemeError: as for ``open_checkpoint``, or the provider is unknown.
    """
    from cairn.clock import SYSTEM_CLOCK  # noqa: PLC0415 - see opening
    from cairn.errors import ConfigError  # noqa: PLC0415
    from cairn.offline.migrate import MigrationPlan  # noqa: PLC0415
    from cairn.offline.move.moving import Location  # noqa: PLC0415
    from cairn.reader.spark.logs import Provider  # noqa: PLC0415

    if provider not in get_args(Provider):
        raise ConfigError(
            f"there is no provider {provider!r}",
            next_step=f"choose one of {', '.join(get_args(Provider))}",
        )
    source = Location(location, storage_options or {})
    options = source.options if target_options is None else target_options
    target = None if to is None else Location(to, options)
    return MigrationPlan(source, target, cast("Provider", provider), SYSTEM_CLOCK)


def repartition(
    location: str, *, partitions: int, storage_options: Mapping[str, Any] | None = None
) -> RepartitionPlan:
    """Return what gives the state of a query other partitions; ``plan.apply()`` does it.

    ``plan.apply(session)`` lets Spark shuffle the rows. The query goes on at the same location,
    with a batch without input behind it. Close the plan, or use it in a ``with`` statement.

    Args:
        location: the query's ``checkpointLocation``, of Cairn's; see ``open_checkpoint``.
        partitions: the number that it will have, in place of ``spark.sql.shuffle.partitions`` at
            the query's first start.
        storage_options: see ``open_checkpoint``.

    Raises:
        UnsupportedStateError: the query has a limit; its rows are not known to be in the partitions
            of their keys' hash; or the state is in the files of Spark's own provider.
        NotThereError: there is no query at this location, or no batch is committed.
        InUseError: another command makes the checkpoint.
        ConfigError, SchemeError: as for ``open_checkpoint``, or the number is not positive, or the
            present one.
    """
    from cairn.clock import SYSTEM_CLOCK  # noqa: PLC0415 - see opening
    from cairn.offline.move.moving import Location  # noqa: PLC0415
    from cairn.offline.repartition import RepartitionPlan  # noqa: PLC0415

    return RepartitionPlan(Location(location, storage_options or {}), partitions, SYSTEM_CLOCK)


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
        return planned(
            location,
            applicable(location, storage_options),
            lambda objects: ClonePlan(
                objects, target, SYSTEM_CLOCK, batch=batch, savepoint=savepoint, keep_id=keep_id
            ),
        )
    except BaseException:
        target.close()
        raise
