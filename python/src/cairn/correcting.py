"""Rows of state as files, rows of files as state, and rows that are erased.

Layer: cli's side (nothing below imports it); what does the work is imported by the first call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cairn.offline.exchange.exporting import ExportedFile


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
    progress: Callable[[int, int], None] | None = None,
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
        progress: called with how much is done, and of how much.

    Raises:
        NotThereError: there is no such batch, operator or store.
        AlreadyExistsError: the folder has other files.
        ConfigError: one file cannot have several families; or Parquet has no such type.
        DataError: the state cannot be read; names the object.
    """
    from cairn.errors import ConfigError  # noqa: PLC0415 - see opening
    from cairn.location import open_location  # noqa: PLC0415
    from cairn.offline.exchange.exporting import (  # noqa: PLC0415
        SUFFIX,
        Export,
        choose_states,
    )
    from cairn.opening import open_checkpoint  # noqa: PLC0415

    options = storage_options if to_storage_options is None else to_storage_options
    with open_checkpoint(location, storage_options=storage_options) as checkpoint:
        states = choose_states(checkpoint, operator, store, family, batch)
        with Export(checkpoint, states, partitions) as found:
            if not to.endswith(SUFFIX):
                with open_location(to, options) as target:
                    return found.to_folder(target, progress)
            if "://" in to:
                raise ConfigError(
                    f"{to!r} is no local file", next_step="name a folder there, or a local file"
                )
            return found.to_file(Path(to), progress)
