"""Rows of state as files, rows of files as state, and rows that are erased.

Layer: cli's side (nothing below imports it); what does the work is imported by the first call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cairn.offline.erasing.erase import ErasePlan
    from cairn.offline.exchange.exporting import ExportedFile
    from cairn.offline.exchange.importing import ImportPlan
    from cairn.offline.move.running import MoveProgress


def export(
    location: str,
    *,
    to: str,
    operator: int | None = None,
    store: str | None = None,
    family: str | None = None,
    batch: int | None = None,
    partitions: Sequence[int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    to_storage_options: Mapping[str, Any] | None = None,
    session: Any = None,  # noqa: ANN401 - pyspark is no dependency
    dry_run: bool = False,
    progress: Callable[[MoveProgress], None] | None = None,
) -> tuple[ExportedFile, ...]:
    """Write the state of a batch as Parquet files, and return them. The checkpoint is only read.

    Memory does not grow with the state. ``import_state`` takes the files.

    Args:
        location: the query's ``checkpointLocation``, of Cairn's or of Spark's providers; see
            ``open_checkpoint``.
        to: a folder or URL, which gets a folder per family with a file per partition; or a local
            file ``*.parquet``, for one family.
        operator: the operator's number; ``None``: all.
        store: Spark's name of a store, or a short name as of ``Checkpoint.state``; ``None``: all.
        family: Spark's name of a column family; ``None``: all.
        batch: a committed one; ``None``: the newest.
        partitions: of each family; ``None``: all.
        storage_options: see ``open_checkpoint``.
        to_storage_options: those of ``to``; ``None``: the same.
        session: a ``SparkSession``: each file of a folder is a task of it. Its executors need
            Cairn, and the rights to read and write both places. ``None``: threads of this process.
        dry_run: nothing is written; the files have neither rows nor sizes.
        progress: called after each file, or of one file after each partition; not with a session.

    Raises:
        NotThereError: there is no such batch, operator or store.
        AlreadyExistsError: the folder has other files.
        ConfigError: one file cannot have several families; or Parquet has no such type.
        DataError: the state cannot be read; names the object.
    """
    from cairn.errors import ConfigError  # noqa: PLC0415 - see opening
    from cairn.offline.exchange.exporting import Export, choose_states, in_spark  # noqa: PLC0415
    from cairn.offline.exchange.file_form import SUFFIX  # noqa: PLC0415
    from cairn.offline.move.moving import Location  # noqa: PLC0415
    from cairn.opening import open_checkpoint  # noqa: PLC0415

    source = Location(location, storage_options or {})
    folder = Location(to, source.options if to_storage_options is None else to_storage_options)
    with open_checkpoint(location, storage_options=storage_options) as checkpoint:
        states = choose_states(checkpoint, operator, store, family, batch)
        with Export(checkpoint, states, partitions) as found:
            if to.endswith(SUFFIX):
                if "://" in to:
                    raise ConfigError(
                        f"{to!r} is no local file", next_step="name a folder there, or a local file"
                    )
                return found.to_file(Path(to), progress, dry_run=dry_run)
            with folder.open() as target:
                if dry_run:
                    return tuple(found.files(target).values())
                if session is None:
                    return found.to_folder(target, progress)
                if found.batch is None:  # there is no state
                    return ()
                return in_spark(session, source, folder, found.batch, found.files(target))


def import_state(
    location: str,
    *,
    files: str,
    operator: int,
    mode: str,
    store: str | None = None,
    family: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    files_storage_options: Mapping[str, Any] | None = None,
    local_dir: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImportPlan:
    """Return what makes rows of Parquet files the rows of a family; ``plan.apply()`` does it.

    Making the plan reads and verifies the files: ``plan.problems`` has what is wrong. Close the
    plan, or use it in a ``with`` statement.

    Args:
        location: the query's ``checkpointLocation``, of Cairn's; see ``open_checkpoint``.
        files: a folder or URL with Parquet files, such as that of a family of an export, or a file
            ``*.parquet``.
        operator: the operator's number.
        mode: ``replace``: the family has these rows and no others; ``merge``: rows with other keys
            stay.
        store: as of ``Checkpoint.state``; ``None``: the operator's only one.
        family: Spark's name of the column family, if the store has several.
        storage_options: see ``open_checkpoint``.
        files_storage_options: those of ``files``; ``None``: the same.
        local_dir: on the local disk, as large as the rows; ``None``: the folder of temporary files.
        progress: called with how many files were read, and of how many.

    Raises:
        UnsupportedStateError: it is a checkpoint of Spark's own provider, or these rows cannot be
            imported; says why.
        NotThereError: there are no files, or no such store, or no batch is committed.
        InUseError: another command makes the checkpoint.
        ConfigError, SchemeError: as for ``open_checkpoint``; a file is no Parquet file, or the mode
            is unknown.
    """
    from cairn.clock import SYSTEM_CLOCK  # noqa: PLC0415 - see opening
    from cairn.errors import ConfigError  # noqa: PLC0415
    from cairn.location import open_location  # noqa: PLC0415
    from cairn.offline.appended_batch import committed_batch  # noqa: PLC0415
    from cairn.offline.exchange.file_form import SUFFIX  # noqa: PLC0415
    from cairn.offline.exchange.importing import (  # noqa: PLC0415
        ImportPlan,
        Mode,
        parquet_files,
    )
    from cairn.offline.move.moving import Location  # noqa: PLC0415
    from cairn.opening import open_checkpoint  # noqa: PLC0415

    if mode not in get_args(Mode):
        raise ConfigError(
            f"there is no mode {mode!r}", next_step=f"choose one of {', '.join(get_args(Mode))}"
        )
    is_file = files.endswith(SUFFIX) and not ("://" not in files and Path(files).is_dir())
    place = files if "://" in files else str(Path(files).absolute())
    folder, name = place.rsplit("/", 1) if is_file else (place, "")
    options = storage_options if files_storage_options is None else files_storage_options
    checkpoint = open_checkpoint(location, storage_options=storage_options)
    try:
        state = checkpoint.state(operator, store, family, committed_batch(checkpoint.objects))
        with open_location(folder, options) as source:
            return ImportPlan(
                checkpoint,
                Location(location, storage_options or {}),
                state.family,
                source,
                [name] if is_file else parquet_files(source),
                cast("Mode", mode),
                SYSTEM_CLOCK,
                local_dir=local_dir,
                progress=progress,
            )
    except BaseException:
        checkpoint.close()
        raise


def erase(
    location: str,
    *,
    key: Mapping[str, Any],
    operator: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    convert: Callable[[Any, Any], Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ErasePlan:
    """Return what erases a key from every store and retained version; ``plan.apply()`` does it.

    Making the plan reads all objects of the stores that may have the key: ``plan.stores`` has where
    it is. Close the plan, or use it in a ``with`` statement.

    Args:
        location: the query's ``checkpointLocation``, of Cairn's; see ``open_checkpoint``.
        key: values by the names of key columns. All families are meant whose keys have these
            columns, also as a part.
        operator: the number of the only operator that is meant; ``None``: all.
        storage_options: see ``open_checkpoint``.
        convert: makes a value of an Arrow type from one of ``key``; ``None``: they are what
            ``State.get`` takes.
        progress: called with how many stores were read, and of how many.

    Raises:
        NotThereError: no family has such a key, or no batch is committed.
        UnsupportedStateError: it is a checkpoint of Spark's own provider.
        InUseError: another command makes the checkpoint.
        DataError: the state cannot be read.
        ConfigError, SchemeError: as for ``open_checkpoint``; a value is not of its column's type.
    """
    from cairn.clock import SYSTEM_CLOCK  # noqa: PLC0415 - see opening
    from cairn.offline.erasing.erase import ErasePlan  # noqa: PLC0415
    from cairn.offline.move.moving import Location  # noqa: PLC0415

    return ErasePlan(
        Location(location, storage_options or {}),
        key,
        SYSTEM_CLOCK,
        operator=operator,
        convert=convert,
        progress=progress,
    )
