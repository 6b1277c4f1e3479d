"""Rows of stores, split by the partitions that they will have, and stores made of such pieces.

Layer: offline.move. ``Splitter`` reads a store of the former partitions once, and ``Gatherer``
writes one of the new ones. What passes between them are pieces: rows of one family for one
partition, as an Arrow IPC stream. On one machine they are in spill files, one per store that was
read, which the end of the work removes:

    <operator>-<partition>-<store>.rows            piece*
    <operator>-<partition>-<store>.rows.npy        _PIECE*    ; in the order of the partitions
    <operator>-<partition>-<store>.rows.families   name*      ; one per line: ``family`` of _PIECE
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from cairn.errors import CairnError, CorruptError, RetryableError, UnsupportedStateError
from cairn.offline.move.digest import Digest
from cairn.offline.move.moving import Move, Moved, StoreMover, key_of_result
from cairn.offline.move.placement import Placement
from cairn.reader.rows.stored import StoredRows
from cairn.storage.files import translate_os_error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from cairn.offline.move.moving import FamilyRows, StoreRef
    from cairn.reader.stores.opening import StorePlace

    Piece = tuple[int, str, bytes]
    """The partition, the family, and the rows."""

_BUFFER_BYTES = 32 << 20
"""Rows that are split at once."""
_SCHEMA = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_PIECE = np.dtype([("partition", "<i4"), ("family", "<i4"), ("offset", "<i8"), ("size", "<i8")])


@dataclass(frozen=True, slots=True)
class Shuffle(Move):
    """What all stores of a shuffle have in common; see ``Move``. Source and target are one place.

    Attributes:
        before: the number of partitions that there are.
        after: the one that there will be.
        spill: folder of the spill files; ``None``: Spark carries the pieces.
    """

    before: int = field(kw_only=True)
    after: int = field(kw_only=True)
    spill: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Split(Shuffle):
    """The first half, whose stores are those of the former partitions."""

    def mover(self) -> Splitter:
        """See ``Move``."""
        return Splitter(self)


@dataclass(frozen=True, slots=True)
class Gather(Shuffle):
    """The second half, whose stores are those of the new partitions."""

    def mover(self) -> Gatherer:
        """See ``Move``."""
        return Gatherer(self)


class _PlacedStores(StoreMover):
    """Reads rows, and requires that they are where the hash of their keys says.

    Args:
        move: what all stores have in common.
    """

    def __init__(self, move: Shuffle) -> None:
        super().__init__(move)
        self._shuffle = move
        self._placements: dict[tuple[int, str, str], Placement] = {}

    def _placement(self, one: FamilyRows) -> Placement:
        family = one.family
        name = (family.operator.id, family.store.name, family.family)
        if name not in self._placements:
            self._placements[name] = Placement(family)
        return self._placements[name]

    def _read(
        self, place: StorePlace, ref: StoreRef, rows: Iterable[FamilyRows]
    ) -> Iterator[tuple[FamilyRows, StoredRows]]:
        is_written = place.version == self._shuffle.batch + 1
        partitions = self._shuffle.after if is_written else self._shuffle.before
        for one, some in super()._read(place, ref, rows):
            found = self._placement(one).of(some, partitions)
            if count := int(np.count_nonzero(found != ref.partition)):
                kind = CorruptError if is_written else UnsupportedStateError
                raise kind(
                    f"{count} of {len(found)} rows of '{one.family.name}' are not in the partition "
                    "of their keys' hash",
                    store=str(ref.id),
                    version=place.version,
                    object_name=place.objects.object_url(ref.id.folder),
                    next_step="`cairn verify` counts such rows; start the query with a new "
                    "checkpoint to have another number of partitions",
                )
            yield one, some


class Splitter(_PlacedStores):
    """See the module. Not thread-safe."""

    def move(self, ref: StoreRef) -> Moved:
        """Split a store into a spill file; return what was read, and store it as the result.

        Raises:
            UnsupportedStateError: a row is not where the hash of its key says.
            CorruptError: the store cannot be read.
            DiskFullError: the local disk is full.
        """
        pieces = self.split(ref)
        with _SpillFile(self._shuffle, ref) as spill:
            while True:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    moved: Moved = end.value
                    return moved
                spill.add(*piece)

    def split(self, ref: StoreRef) -> Generator[Piece, None, Moved]:
        """Yield the pieces of a store; return what was read, and store it as the result.

        Raises:
            UnsupportedStateError, CorruptError: see ``move``.
        """
        _, place, rows = self._look(ref)
        digests = {one.family.family: Digest() for one in rows}
        buffers: dict[str, list[tuple[StoredRows, NDArray[np.int32]]]] = {}
        buffered = stored = 0
        for one, some in self._counted(self._read(place, ref, rows)):
            name = one.family.family
            digests[name].add(some)
            partitions = self._placement(one).of(some, self._shuffle.after)
            buffers.setdefault(name, []).append((some, partitions))
            buffered += some.keys.nbytes + some.values.nbytes
            if buffered >= _BUFFER_BYTES:
                for piece in _pieces(buffers):
                    stored += len(piece[2])
                    yield piece
                buffers, buffered = {}, 0
        for piece in _pieces(buffers):
            stored += len(piece[2])
            yield piece
        moved = Moved(
            store=ref,
            checkpoint_id=None,
            keys={name: digest.rows for name, digest in digests.items()},
            digests={name: f"{digest.value:016x}" for name, digest in digests.items()},
            stored_bytes=stored,
        )
        self._target.put(key_of_result(self._move.results, ref), moved.as_json())
        return moved


def _pieces(
    buffers: Mapping[str, Sequence[tuple[StoredRows, NDArray[np.int32]]]],
) -> Iterator[Piece]:
    """Yield rows by their partitions; ``buffers``: by family, with the partition of each row."""
    for family, parts in buffers.items():
        partitions = np.concatenate([found for _, found in parts])
        order = np.argsort(partitions, kind="stable")
        places: Any = pa.array(order)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.concat_arrays([rows.keys for rows, _ in parts]).take(places),
                pa.concat_arrays([rows.values for rows, _ in parts]).take(places),
            ],
            schema=_SCHEMA,
        )
        found, starts = np.unique(partitions[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        for partition, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
            yield partition, family, _as_bytes(batch.slice(start, end - start))


def _as_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=_OPTIONS) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _rows(data: bytes) -> Iterator[StoredRows]:
    with pa.ipc.open_stream(data) as stream:
        for batch in stream:
            yield StoredRows(batch.column(0), batch.column(1))


class _SpillFile:
    """Writes the spill file of one store."""

    def __init__(self, shuffle: Shuffle, ref: StoreRef) -> None:
        self._path = _spill_path(shuffle, ref)
        self._families: list[str] = []
        self._pieces: list[tuple[int, int, int, int]] = []
        self._offset = 0
        try:
            self._file = self._path.open("wb")
        except OSError as error:
            raise translate_os_error(error, str(self._path)) from error

    def add(self, partition: int, family: str, data: bytes) -> None:
        if family not in self._families:
            self._families.append(family)
        piece = (partition, self._families.index(family), self._offset, len(data))
        self._pieces.append(piece)
        self._offset += len(data)
        try:
            self._file.write(data)
        except OSError as error:
            raise translate_os_error(error, str(self._path)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        try:
            self._file.close()
            if failure is None:
                pieces = np.array(self._pieces, _PIECE)
                in_order = np.argsort(pieces["partition"], kind="stable")
                np.save(_index_path(self._path), pieces[in_order])
                _families_path(self._path).write_text("\n".join(self._families))
        except OSError as error:
            raise translate_os_error(error, str(self._path)) from error


class Gatherer(_PlacedStores):
    """See the module. Not thread-safe."""

    def move(self, ref: StoreRef) -> Moved:
        """Write a store of the new partitions from the spill files; see ``StoreMover.move``."""
        return self.gather(ref, self._spilled(ref))

    def gather(self, ref: StoreRef, pieces: Iterable[tuple[str, bytes]]) -> Moved:
        """Write a store of the new partitions, read it back, and store the result.

        Args:
            ref: the store.
            pieces: the families and rows of its partition.

        Raises:
            CorruptError: the store does not have the rows when it is read back.
        """
        operator, place, rows = self._look(ref)
        by_name = {one.family.family: one for one in rows}
        source = ((by_name[family], some) for family, data in pieces for some in _rows(data))
        return self._write(ref, operator, place, rows, source)

    def _spilled(self, ref: StoreRef) -> Iterator[tuple[str, bytes]]:
        for partition in range(self._shuffle.before):
            path = _spill_path(self._shuffle, replace(ref, partition=partition))
            try:
                pieces = np.load(_index_path(path))
                families = _families_path(path).read_text().split("\n")
                start, end = np.searchsorted(
                    pieces["partition"], [ref.partition, ref.partition + 1]
                )
                with path.open("rb") as file:
                    for piece in pieces[start:end]:
                        file.seek(int(piece["offset"]))
                        yield families[int(piece["family"])], file.read(int(piece["size"]))
            except OSError as error:
                raise translate_os_error(error, str(path)) from error


def _spill_path(shuffle: Shuffle, ref: StoreRef) -> Path:
    assert shuffle.spill is not None  # noqa: S101 - Spark carries the pieces otherwise
    return Path(shuffle.spill, f"{ref.operator}-{ref.partition}-{ref.store}.rows")


def _index_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.npy")


def _families_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.families")


# -- in tasks of Spark -----------------------------------------------------------------------------


def gather_in_spark(
    session: Any,  # noqa: ANN401 - pyspark is no dependency
    split: Split,
    sources: Sequence[StoreRef],
    gather: Gather,
    targets: Sequence[StoreRef],
) -> list[CairnError]:
    """Write stores of the new partitions from those of the former ones; return what went wrong.

    A Spark job of two stages: a task of the first one reads a source, one of the second writes a
    target.

    Args:
        session: a ``SparkSession``.
        split: how stores are read.
        sources: all stores of an operator's store.
        gather: how stores are written.
        targets: those that are not written yet.
    """
    context = session.sparkContext
    pieces = context.parallelize(list(sources), len(sources)).flatMap(_SplitTask(split, targets))
    shuffled = pieces.partitionBy(len(targets), int)
    found: list[CairnError] = shuffled.mapPartitionsWithIndex(
        _GatherTask(gather, targets)
    ).collect()
    return found


@dataclass(frozen=True)
class _SplitTask:
    """A task of the first stage. Its error goes to all tasks of the second one, which return it."""

    split: Split
    targets: Sequence[StoreRef]

    def __call__(self, ref: StoreRef) -> Iterator[tuple[int, tuple[str, bytes] | CairnError]]:
        places = {target.partition: place for place, target in enumerate(self.targets)}
        try:
            with self.split.mover() as mover:
                for partition, family, data in mover.split(ref):
                    if partition in places:
                        yield places[partition], (family, data)
        except RetryableError:
            raise  # Spark tries the task again
        except CairnError as failure:
            yield from ((place, failure) for place in places.values())


@dataclass(frozen=True)
class _GatherTask:
    """A task of the second stage."""

    gather: Gather
    targets: Sequence[StoreRef]

    def __call__(
        self, place: int, pieces: Iterator[tuple[int, tuple[str, bytes] | CairnError]]
    ) -> Iterator[CairnError]:
        def without_errors() -> Iterator[tuple[str, bytes]]:
            for _, piece in pieces:
                if isinstance(piece, CairnError):
                    raise piece
                yield piece

        try:
            with self.gather.mover() as mover:
                mover.gather(self.targets[place], without_errors())
        except RetryableError:
            raise  # as above
        except CairnError as failure:
            yield failure
