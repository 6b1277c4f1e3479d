"""import: rows of Parquet files become the rows of a family, by a batch without input.

Layer: offline.exchange.  Spec: docs/moving.md#export-and-import. Making the plan reads and verifies
all files; ``apply`` writes the stores that change.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cairn.errors import (
    ConfigError,
    DataError,
    InvalidError,
    NotThereError,
    UnsupportedStateError,
)
from cairn.offline.appended_batch import (
    AppendedBatch,
    committed_batch,
    find_appended,
    require_own,
)
from cairn.offline.exchange.encoding import RowEncoder
from cairn.offline.exchange.file_form import SUFFIX, FileForm
from cairn.offline.exchange.reading import MOST_PROBLEMS, EncodedRows, FileReader, Problem
from cairn.offline.exchange.staging import StagedRows, Staging
from cairn.offline.move.editing import EditMove, unchanged_stores
from cairn.offline.move.moving import StoreRef, read_results
from cairn.offline.move.running import run_move
from cairn.offline.move.totals import checkpoint_ids, totals
from cairn.reader.batch import BatchView
from cairn.reader.families import PARTITION
from cairn.reader.rows.lists import elements
from cairn.reader.rows.spans import Spans
from cairn.reader.rows.stored import StoredRows
from cairn.reader.spark.logs import STRICT_DISTRIBUTION
from cairn.reader.stores.base import ReadLimits
from cairn.storage.files import translated_os_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cairn.clock import Clock
    from cairn.offline.move.moving import Location
    from cairn.offline.move.running import MoveProgress
    from cairn.offline.move.totals import MovedFamily
    from cairn.offline.record import Record
    from cairn.reader.checkpoint import Checkpoint
    from cairn.reader.families import Family
    from cairn.storage.base import ObjectStore

Mode = Literal["replace", "merge"]

COMMAND: Final = "import"
_READ_BYTES = 8 << 20
_COUNTER = "$rowCounter_"
_JOIN = "symmetricHashJoin"


class ImportPlan:
    """What an import does; ``apply`` does it. Close it, or use it in a ``with`` statement.

    Args:
        checkpoint: the query's checkpoint, whose metadata are read; ``close`` closes it.
        location: the same, for the processes that write.
        family: whose rows the files have.
        files: the place of the files.
        names: the files, relative to it.
        mode: ``replace``: the family has these rows and no others; ``merge``: rows with other keys
            stay.
        clock: tells the time.
        local_dir: on the local disk, as large as the rows; ``None``: the folder of temporary files.
        progress: called with how much was read, and of how much.

    Attributes:
        batch: the last committed one; the rows are those of the next one.
        family: whose rows are imported.
        counter: the family with the lengths of its lists, which is made anew; or ``None``.
        mode: as given.
        keys: of the files.
        partitions: whose stores are written.
        problems: why nothing can be imported; empty: it can.
        is_committed: a process that has ended since has imported these rows already; ``apply`` only
            completes its record.

    Raises:
        UnsupportedStateError: these rows cannot be imported; says why.
        NotThereError: there are no files, or no batch is committed; or a killed process may have
            imported these rows as a batch that is not retained any more.
        ConfigError: a file is no Parquet file, or is damaged.
        InUseError: another command makes the checkpoint.
        DiskFullError: the local disk is full; nothing is left there.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        location: Location,
        family: Family,
        files: ObjectStore,
        names: Sequence[str],
        mode: Mode,
        clock: Clock,
        *,
        local_dir: Path | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._location = location
        self._objects = checkpoint.objects
        self._clock = clock
        self._local_dir = local_dir
        self.mode = mode
        self.family = family
        with ExitStack() as opened:
            self.batch = committed_batch(self._objects)
            self._view = BatchView(self._objects, self.batch)
            self.counter = _require_supported(self._view, family)
            parent = tempfile.gettempdir() if local_dir is None else str(local_dir)
            step = "free space there, or name a folder of a larger disk by --local-dir"
            with translated_os_errors(parent, if_full=step):
                folder = Path(tempfile.mkdtemp(prefix="cairn-import-", dir=local_dir))
                opened.callback(shutil.rmtree, folder, ignore_errors=True)
                self._staging = Staging(_made(folder / "rows"), is_list=family.is_list)
                self._folders = {family.family: str(folder / "rows")}
                self.problems = tuple(self._stage(files, names, folder, progress))
                if self.counter is not None and not self.problems:
                    self._folders[self.counter.family] = str(folder / "counts")
                    self._count(self.counter, _made(folder / "counts"))
            self.keys = self._staging.keys
            self.partitions = self._staging.partitions
            if mode == "replace":
                self.partitions = tuple(range(family.partitions))
            self._unended = self._find_unended()
            self.is_committed = self._unended is not None
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Free the local disk, and close the connections. Idempotent."""
        self._opened.close()
        self._checkpoint.close()

    def __enter__(self) -> Self:
        """Return the plan."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the local disk, and close the connections."""
        self.close()

    def apply(
        self,
        *,
        processes: int | None = None,
        progress: Callable[[MoveProgress], None] | None = None,
    ) -> tuple[MovedFamily, ...]:
        """Write the rows; return what the stores that were written have then.

        If it is cut off before the batch is committed, nothing has happened for the query, and the
        same import goes on with the stores that are left. If it is cut off after that, the same
        import finds the batch, also if the query has gone on from it, and appends no other.

        Args:
            processes: of this machine; ``None``: one per processor.
            progress: called after each store, and every few seconds.

        Raises:
            InvalidError: there are problems.
            InUseError: a driver seems to use the checkpoint, or its last batch is not committed.
            CorruptError: the state cannot be read, or rows differ when they are read back.
            CairnError: nothing has changed for the query.
        """
        if self.problems:
            first = self.problems[0]
            raise InvalidError(
                f"{len(self.problems)} problems, the first one in {first.file}: {first.text}",
                next_step="correct the files",
            )
        if self._unended is not None:
            done = totals(read_results(self._objects, self._unended.results))
            self._unended.end([asdict(one) for one in done])
            return done
        family = self.family
        refs = [self._ref(partition) for partition in self.partitions]
        with AppendedBatch(self._objects, self._view, COMMAND, self._work, self._clock) as batch:
            move = EditMove(
                source=self._location,
                source_batch=self.batch,
                target=self._location,
                batch=batch.number,
                checkpoint_format=self._view.checkpoint_format,
                conf=self._view.conf,
                results=batch.record.results,
                token=batch.record.name,
                memory_bytes=ReadLimits().memory_bytes,
                local_dir=None if self._local_dir is None else str(self._local_dir),
                edit=StagedRows(
                    self._folders,
                    family.operator.id,
                    family.store.name,
                    merges=self.mode == "merge",
                ),
            )
            moved = run_move(move, refs, processes=processes, progress=progress)
            others = unchanged_stores(self._view, frozenset(moved), COMMAND, self._clock)
            done = totals(moved)
            batch.finish(
                conf={},
                unique_ids=checkpoint_ids(moved | others, self._view.checkpoint_format),
                checkpoint_format=self._view.checkpoint_format,
                done=[asdict(one) for one in done],
            )
        return done

    def _ref(self, partition: int) -> StoreRef:
        return StoreRef(self.family.operator.id, self.family.store.name, partition)

    def _find_unended(self) -> Record | None:
        """Return the record of a batch that was committed before its record had ended."""
        if self.problems or not self.partitions:
            return None
        first = self._ref(self.partitions[0]).id
        return find_appended(
            self._view, COMMAND, self._work, self._clock, lambda _: first, must_know=True
        )

    @property
    def _work(self) -> dict[str, object]:
        return {
            "operator": self.family.operator.id,
            "store": self.family.store.name,
            "family": self.family.family,
            "mode": self.mode,
            "keys": self.keys,
            "digest": f"{self._staging.digest.value:016x}",
        }

    def _stage(
        self,
        files: ObjectStore,
        names: Sequence[str],
        folder: Path,
        progress: Callable[[int, int], None] | None,
    ) -> Iterator[Problem]:
        """Read and verify the files; yield the problems."""
        form = FileForm(self.family)
        reader = FileReader(form)
        for place, name in enumerate(names):
            url = files.object_url(name)
            path = folder / "file.parquet"
            try:
                _fetch(files, name, path)
                with pq.ParquetFile(path) as file:
                    self._staging.begin_file(url)
                    for some in reader.batches(file, url):
                        self._staging.add(some)
                        reader.problems += self._misplaced(some, url)
            except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as problem:
                if isinstance(problem, OSError) and problem.errno is not None:
                    raise  # of the local disk; Arrow's own of damaged pages have no number
                raise ConfigError(
                    f"it is no Parquet file, or a damaged one: {problem}",
                    object_name=url,
                    next_step="write the file again",
                ) from problem
            finally:
                path.unlink(missing_ok=True)
            if progress is not None:
                progress(place + 1, len(names))
        if not reader.problems:
            self._staging.finish()
        yield from [*reader.problems, *self._staging.problems][:MOST_PROBLEMS]

    def _misplaced(self, some: EncodedRows, url: str) -> Iterator[Problem]:
        """Yield a problem of a row without hashed columns that is said to be elsewhere."""
        if any(one.is_hashed for one in self.family.columns) or not some.partitions.any():
            return
        row = some.first + int(np.flatnonzero(some.partitions)[0])
        yield Problem(url, row, PARTITION, "Spark keeps the row in partition 0")

    def _count(self, counter: Family, folder: Path) -> None:
        """Write the lengths of the lists."""
        assert counter.schema is not None  # noqa: S101 - the variable's has been read
        encoder = RowEncoder(counter.schema, counter.form)
        decoder = self.family.decoder()
        assert decoder is not None  # noqa: S101 - as above
        for partition in self._staging.partitions:
            rows = self._staging.rows(partition)
            _, owners = elements(Spans.of(rows.values), "a list")
            counts = np.bincount(owners, minlength=len(rows.keys)).astype(np.int64)
            columns = decoder.decode_keys(rows.keys).columns
            found = StoredRows(
                encoder.keys(columns, len(counts)), encoder.values([pa.array(counts)], len(counts))
            )
            table = pa.table({"key": found.keys, "value": found.values})
            make: Any = pa.ipc.new_file
            with make(str(folder / str(partition)), table.schema) as writer:
                writer.write_table(table)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _fetch(files: ObjectStore, name: str, path: Path) -> None:
    """Copy an object to the local disk, in parts."""
    with path.open("wb") as file:
        offset = 0
        while True:
            try:
                data = files.get_range(name, offset, _READ_BYTES)
            except DataError as failure:
                if not offset:
                    raise NotThereError(
                        "there is no such file, or it is empty",
                        object_name=files.object_url(name),
                        next_step="name a Parquet file, or a folder of such files",
                    ) from failure
                return  # it has ended where the part before ended
            file.write(data)
            offset += len(data)
            if len(data) < _READ_BYTES:
                return


def parquet_files(files: ObjectStore) -> list[str]:
    """Return the names of the Parquet files at a place, sorted.

    Raises:
        NotThereError: there are none.
    """
    found = [info.key for info in files.list("") if info.key.endswith(SUFFIX)]
    if not found:
        raise NotThereError(
            f"there are no files *{SUFFIX} here",
            object_name=files.url,
            next_step="name a file, or the folder of one family of an export",
        )
    return found


def _require_supported(view: BatchView, family: Family) -> Family | None:
    """Return the family that counts the elements of a list, if the rows can be imported.

    Raises:
        UnsupportedStateError: they cannot; says why.
    """
    require_own(view, "which are not changed here")
    name = family.name
    if family.failure is not None:
        raise family.failure.with_traceback(None)
    variable = next((one for one in family.operator.variables if one.name == family.family), None)
    problem, step = None, "import the rows of the variable that it belongs to"
    if not view.conf.flag(STRICT_DISTRIBUTION):
        problem = "the query began before Spark 3.3: its rows need not be where their hash says"
        step = "start the query with a new checkpoint"
    elif family.operator.name is not None and family.operator.name.startswith(_JOIN):
        problem = "the rows of a join have counts and marks that only the join itself can make"
        step = "start the query with a new checkpoint"
    elif family.is_internal:
        problem = "Spark has these rows for itself: they follow from others"
    elif variable is not None and variable.has_ttl:
        problem = (
            "the variable has a time to live, and indexes by time, which would not agree with them"
        )
        step = "let the program write the rows, as initial state"
    if problem is not None:
        raise UnsupportedStateError(
            f"rows of {name!r} cannot be imported: {problem}",
            store=f"{family.operator.id}/{family.store.name}",
            next_step=step,
        )
    if not family.is_list:
        return None
    wanted = _COUNTER + family.family
    return next((one for one in view.families(family.operator) if one.family == wanted), None)
