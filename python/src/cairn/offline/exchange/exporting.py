"""export: the rows of a batch as Parquet files.

Layer: offline.exchange.  Spec: docs/moving.md#export-and-import.

    <target>/<operator>/<store>/<family>/<partition>.parquet     ; or one file, of one family

Partitions are exported by threads, some at a time, or by tasks of Spark. A file is written on the
local disk, in row groups of a batch of rows, and stored whole: memory does not grow with the state.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from cairn.checksum import crc32c
from cairn.errors import AlreadyExistsError, CairnError, ConfigError, RetryableError, unexpected
from cairn.offline.exchange.file_form import METADATA, SUFFIX, FileForm, encoded
from cairn.offline.move.running import MoveProgress
from cairn.offline.parallel import in_parallel
from cairn.opening import open_checkpoint
from cairn.reader.families import PARTITION
from cairn.release import RELEASE
from cairn.storage.files import translated_os_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cairn.offline.move.moving import Location
    from cairn.reader.checkpoint import Checkpoint
    from cairn.reader.families import Family
    from cairn.reader.state import State
    from cairn.storage.base import ObjectStore

_THREADS = 4
_READ_BYTES = 1 << 20
_GROUP_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file of an export.

    Attributes:
        operator: its operator's number.
        store: Spark's name of its store.
        family: Spark's name of the column family.
        partition: whose rows it has; ``None``: of all partitions.
        rows: their number; of a list, one per element. ``None``: it is not written yet.
        size_bytes: of the file; ``None``: as above.
        object_name: its URL or path.
    """

    operator: int
    store: str
    family: str
    partition: int | None
    rows: int | None
    size_bytes: int | None
    object_name: str


def folder_of(family: Family) -> str:
    """Return the folder of a family, relative to the target."""
    names = (str(family.operator.id), family.store.name, family.family)
    return "/".join(quote(name, safe="$-_.") for name in names)


class Export:
    """See the module. ``apply`` writes; nothing of the checkpoint is changed.

    Args:
        checkpoint: the export closes it.
        states: of the families, all of one batch.
        partitions: of each family; ``None``: all.

    Attributes:
        batch: whose rows they are.
        families: what is exported.

    Raises:
        ConfigError: no family has one of the partitions.
        UnsupportedStateError: Spark has stored no schema of a family.
    """

    def __init__(
        self, checkpoint: Checkpoint, states: Sequence[State], partitions: Sequence[int] | None
    ) -> None:
        self._checkpoint = checkpoint
        self._states = states
        self.batch = states[0].batch if states else None
        self.families = tuple(state.family for state in states)
        self._forms = [FileForm(family) for family in self.families]
        self._partitions = partitions
        most = max((family.partitions for family in self.families), default=0)
        for number in partitions or ():
            if not 0 <= number < most:
                raise ConfigError(
                    f"there is no partition {number}; there are 0 to {most - 1}",
                    object_name=checkpoint.objects.url,
                    next_step="choose one of these, or leave out the partitions",
                )
        # What the files of a folder are made of, by their names.
        self._work = {
            f"{folder_of(form.family)}/{partition:05}{SUFFIX}": (state, form, partition)
            for state, form in zip(states, self._forms, strict=True)
            for partition in self._numbers(state)
        }

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._checkpoint.close()

    def __enter__(self) -> Self:
        """Return the export."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def files(self, target: ObjectStore) -> dict[str, ExportedFile]:
        """Return the files that a folder will have, by their names in it.

        Raises:
            AlreadyExistsError: the folder has a file that is none of this export.
        """
        planned = {
            name: _exported(form, partition, None, None, target.object_url(name))
            for name, (_, form, partition) in self._work.items()
        }
        for info in target.list(""):
            if info.key not in planned:
                raise AlreadyExistsError(
                    "the target of an export is not empty",
                    object_name=target.object_url(info.key),
                    next_step="name another folder",
                )
        return planned

    def to_folder(
        self, target: ObjectStore, progress: Callable[[MoveProgress], None] | None = None
    ) -> tuple[ExportedFile, ...]:
        """Write a folder per family, with a file per partition; return the files.

        A killed export is repeated: files that are there are replaced by those with the same rows.

        Args:
            target: where the folders are; ``close`` is the caller's.
            progress: called after each file; its stores are the files.

        Raises:
            AlreadyExistsError: the target has a file that is none of this export.
            ConfigError: Parquet cannot have the rows.
            DataError: the state cannot be read; names the object.
            DiskFullError: the disk of the temporary files, or of the target, is full; names it.
        """
        names = self.files(target)
        meter = _Meter(len(names), progress)

        def write(name: str) -> ExportedFile:
            written = self.write(target, name, local)
            meter.add(written)
            return written

        with _local_folder() as local:
            return tuple(in_parallel(write, names, threads=_THREADS))

    def write(self, target: ObjectStore, name: str, local: Path) -> ExportedFile:
        """Write one file of a folder.

        Args:
            target: see ``to_folder``, as for the errors.
            name: of the file, see ``files``.
            local: a folder on the local disk.
        """
        state, form, partition = self._work[name]
        path = local / f"{secrets.token_hex(8)}{SUFFIX}"
        try:
            rows = self._write(path, form, partition, state, [partition])
            size = path.stat().st_size
            target.delete([name])
            target.upload(name, path, crc32c=_checksum(path))
        finally:
            path.unlink(missing_ok=True)
        return _exported(form, partition, rows, size, target.object_url(name))

    def to_file(
        self,
        path: Path,
        progress: Callable[[MoveProgress], None] | None = None,
        *,
        dry_run: bool = False,
    ) -> tuple[ExportedFile, ...]:
        """Write one local file with the rows of the only family; it appears when it is whole.

        Args:
            path: of the file.
            progress: called after each partition; its stores are the partitions.
            dry_run: nothing is written.

        Raises:
            ConfigError: there are several families; or Parquet cannot have the rows.
            DataError: the state cannot be read; names the object.
            DiskFullError: the disk is full; no file is left.
        """
        if len(self._forms) != 1:
            names = ", ".join(f"{one.operator.id}/{one.name}" for one in self.families)
            raise ConfigError(
                f"one file has one kind of rows; there are {len(self._forms)}: {names}",
                next_step="name one of them by operator and store, or a folder as the target",
            )
        (form,), (state,) = self._forms, self._states
        numbers = self._numbers(state)
        only = numbers[0] if len(numbers) == 1 else None
        if dry_run:
            return (_exported(form, only, None, None, str(path)),)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        step = "free space there, or name a file on a larger disk"
        with translated_os_errors(str(path.parent), if_full=step):
            try:
                rows = self._write(part, form, only, state, numbers, progress)
                size = part.stat().st_size
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        return (_exported(form, only, rows, size, str(path)),)

    def _numbers(self, state: State) -> list[int]:
        every = range(state.family.partitions)
        if self._partitions is None:
            return list(every)
        return [number for number in dict.fromkeys(self._partitions) if number in every]

    def _write(
        self,
        path: Path,
        form: FileForm,
        partition: int | None,
        state: State,
        numbers: Sequence[int],
        progress: Callable[[MoveProgress], None] | None = None,
    ) -> int:
        """Write a file, and return the number of its rows."""
        meter = _Meter(len(numbers), progress)
        description = form.description() | {
            "cairn": RELEASE,
            "batch": self.batch,
            PARTITION: partition,
        }
        schema = form.schema.with_metadata({METADATA: encoded(description)})
        rows = 0
        try:
            with pq.ParquetWriter(path, schema, compression="zstd") as writer:
                for number in numbers:
                    before = rows
                    for batch in _batches(form, state, number):
                        rows += batch.num_rows
                        writer.write_batch(batch.cast(schema), row_group_size=_GROUP_ROWS)
                    meter.add(_exported(form, number, rows - before, 0, str(path)))
        except pa.ArrowNotImplementedError as problem:
            raise ConfigError(
                f"Parquet cannot have the rows of {form.family.name}: {problem}",
                next_step="use `cairn show -o ndjson`",
            ) from problem
        return rows


def _batches(form: FileForm, state: State, partition: int) -> Iterator[pa.RecordBatch]:
    for rows in state.stored_rows(partition):
        yield form.to_file(rows, partition)


class _Meter:
    """Reports how much of an export is done. Thread-safe."""

    def __init__(self, files: int, report: Callable[[MoveProgress], None] | None) -> None:
        self._files = files
        self._report = report
        self._began_s = time.monotonic()
        self._done = self._rows = self._bytes = 0
        self._lock = threading.Lock()

    def add(self, written: ExportedFile) -> None:
        """Count a file, or a partition of one."""
        with self._lock:
            self._done += 1
            self._rows += written.rows or 0
            self._bytes += written.size_bytes or 0
            if self._report is None:
                return
            left_s = (time.monotonic() - self._began_s) / self._done * (self._files - self._done)
            self._report(MoveProgress(self._done, self._files, self._rows, self._bytes, left_s))


@contextmanager
def _local_folder() -> Iterator[Path]:
    """Make a folder on the local disk, and remove it.

    Raises:
        DiskFullError: the disk is full.
    """
    step = "free space there, or let TMPDIR name a folder of a larger disk"
    with translated_os_errors(tempfile.gettempdir(), if_full=step):
        folder = Path(tempfile.mkdtemp(prefix="cairn-export-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def in_spark(
    session: Any,  # noqa: ANN401 - pyspark is no dependency
    source: Location,
    target: Location,
    batch: int,
    files: dict[str, ExportedFile],
) -> tuple[ExportedFile, ...]:
    """Write the files of a folder by tasks of Spark, one each; return them.

    Args:
        session: a ``SparkSession``.
        source: the checkpoint.
        target: the folder.
        batch: whose rows they are.
        files: what there is to write; see ``Export.files``.

    Raises:
        CairnError: what went wrong; files that were written stay.
    """
    context = session.sparkContext
    tasks = context.parallelize(list(files.items()), len(files)).map(_Task(source, target, batch))
    done: list[ExportedFile | CairnError] = tasks.collect() if files else []
    for one in done:
        if isinstance(one, CairnError):
            raise one
    return tuple(one for one in done if isinstance(one, ExportedFile))


@dataclass(frozen=True, slots=True)
class _Task:
    """What a task of Spark does. An error is a result, unless Spark may try the task again."""

    source: Location
    target: Location
    batch: int

    def __call__(self, item: tuple[str, ExportedFile]) -> ExportedFile | CairnError:
        name, file = item
        try:
            with (
                open_checkpoint(self.source.url, storage_options=self.source.options) as checkpoint,
                self.target.open() as target,
                _local_folder() as local,
            ):
                state = checkpoint.state(file.operator, file.store, file.family, self.batch)
                assert file.partition is not None  # noqa: S101 - of a folder
                return Export(checkpoint, [state], [file.partition]).write(target, name, local)
        except RetryableError:
            raise
        except Exception as problem:  # noqa: BLE001 - the driver raises it
            return unexpected(problem)


def _exported(
    form: FileForm, partition: int | None, rows: int | None, size: int | None, name: str
) -> ExportedFile:
    family = form.family
    return ExportedFile(
        family.operator.id, family.store.name, family.family, partition, rows, size, name
    )


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            found = crc32c(data, found)
    return found


def choose_states(
    checkpoint: Checkpoint,
    operator: int | None,
    store: str | None,
    family: str | None,
    batch: int | None,
) -> list[State]:
    """Return the rows that the names mean: those that ``state`` returns, or several kinds.

    Args:
        checkpoint: the checkpoint.
        operator: the operator's number; ``None``: all.
        store: see ``Checkpoint.state``; ``None``: all.
        family: see there; ``None``: all.
        batch: a committed one; ``None``: the newest.

    Raises:
        NotThereError: nothing has these names.
        DataError: the types of some rows are not known; names them.
    """
    view = checkpoint.view(batch)
    if operator is not None and (store is not None or family is not None):
        return [checkpoint.state(operator, store, family, view.batch)]
    operators = view.operators if operator is None else (view.operator(operator),)
    found: Any = [
        checkpoint.state_of(one, view.batch)
        for each in operators
        for one in view.families(each)
        if store in (None, one.store.name, one.name) and family in (None, one.family, one.name)
    ]
    return list(found)
