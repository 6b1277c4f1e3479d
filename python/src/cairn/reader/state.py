"""State: the rows of one store or family at one batch, as Arrow.

Layer: reader. Partitions are read by threads, some at a time; a batch of rows is handed on before
the next one is decoded, so that memory does not grow with the state.
"""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.errors import ConfigError, DataError, PackageMissingError
from cairn.reader.arrow_stream import ArrowStream
from cairn.reader.equality import are_equal
from cairn.reader.families import PARTITION
from cairn.reader.for_polars import for_polars
from cairn.reader.key_values import grouped, has_gap, scalar_of, struct_scalar
from cairn.reader.parallel import OpenedAhead, in_threads
from cairn.reader.rows.decoder import is_placeholder
from cairn.reader.rows.partition_hash import partition_of
from cairn.reader.rows.stored import StoredRows
from cairn.reader.spark.logs import STRICT_DISTRIBUTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cairn.reader.batch import BatchView
    from cairn.reader.families import Column, Family
    from cairn.reader.rows.decoder import RowDecoder
    from cairn.reader.stores.base import Changes, ReadLimits, StoreRows

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

BATCH_ROWS = 65_536
_COUNTING_THREADS = 4
_HAD_NO_NAME = frozenset({None, "dedupe"})


class State(ArrowStream):
    """The rows of one store or family at one batch. Any Arrow tool takes it as a stream.

    Attributes:
        batch: the batch.
        name: short name of the family.
        partitions: how many the store has.
        key_columns: names of the columns that are the key, or parts of it.
        opaque_columns: names of the columns of bytes that only the program can read: objects by
            Kryo or Java's serialization, bytes of its own, or rows without a schema.
        schema: of the rows: the key's columns, the value's columns, ``partition``.

    Raises:
        DataError: the types of the rows cannot be read, or are not known; names them.
    """

    def __init__(self, view: BatchView, family: Family, limits: ReadLimits) -> None:
        if family.failure is not None:
            raise family.failure.with_traceback(None)
        self.batch = view.batch
        self.name = family.name
        self.partitions = family.partitions
        self._strict = view.conf.flag(STRICT_DISTRIBUTION)
        self._limits = limits
        self._family = self._as_stored(family)
        self.schema = _schema_of(self._family.columns)
        self.key_columns = tuple(one.name for one in self._family.columns if one.is_key)
        self.opaque_columns = tuple(one.name for one in self._family.columns if one.is_opaque)

    def _as_stored(self, family: Family) -> Family:
        """Return the family without value columns, if its rows have none.

        ``dropDuplicates`` before Spark 3.4 declared columns that it did not store.
        """
        schema = family.schema
        if schema is None or family.operator.name not in _HAD_NO_NAME:
            return family
        if len(schema.value["fields"]) < 2:  # noqa: PLR2004 - one is what it stores
            return family
        for partition in range(family.partitions):
            with self._open(family, partition) as store:
                for rows in store.rows(family.family):
                    if is_placeholder(rows.values, schema, family.form):
                        keys = tuple(column for column in family.columns if column.is_key)
                        return replace(
                            family, form=replace(family.form, has_no_value=True), columns=keys
                        )
                    return family
        return family

    # -- all rows --------------------------------------------------------------------------------

    def reader(
        self,
        columns: Sequence[str] | None = None,
        partitions: Iterable[int] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches, by partition.

        The stream can be read once. Close it, if it is not read to its end.

        Args:
            columns: names from ``schema``; ``None``: all.
            partitions: numbers of partitions, of which each is read once; ``None``: all.
            batch_rows: rows of a batch, at most.

        Raises:
            ConfigError: there is no such column or partition.
            DataError: while it is read: an object is damaged or gone; names it.
        """
        chosen = self._chosen(columns)
        numbers = self._numbers(partitions)
        if batch_rows < 1:
            raise ConfigError("batch_rows must be 1 or more")
        schema = _schema_of(chosen, None if columns is None else columns)

        def batches(rows: Iterator[StoredRows], partition: int) -> Iterator[pa.RecordBatch]:
            decoder = self._family.decoder()
            for stored in rows:
                whole = self._batch(decoder, stored, chosen, partition).select(schema.names)
                for start in range(0, whole.num_rows, batch_rows):
                    yield whole.slice(start, min(batch_rows, whole.num_rows))

        return pa.RecordBatchReader.from_batches(schema, self._in_threads(batches, numbers))

    def _in_threads(
        self,
        batches: Callable[[Iterator[StoredRows], int], Iterator[pa.RecordBatch]],
        partitions: Sequence[int],
    ) -> Iterator[pa.RecordBatch]:
        if not partitions:
            return
        family = self._family
        first, *others = partitions
        of_first = batches(_rows_of(self._open(family, first), family), first)
        # Who wants a few rows takes one batch: the other partitions are not opened for it.
        yield from islice(of_first, 1)
        ahead = OpenedAhead(lambda partition: self._open(family, partition), others)
        try:
            yield from in_threads(
                lambda partition: (
                    of_first
                    if partition == first
                    else batches(_rows_of(ahead.take(partition), family), partition)
                ),
                partitions,
            )
        finally:
            ahead.close()

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows as an Arrow table, in memory."""
        return self.reader(columns).read_all()

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas is not a dependency
        """Return all rows as a ``pandas.DataFrame``.

        Raises:
            PackageMissingError: pandas is not installed.
        """
        _require("pandas")
        return self.to_table().to_pandas()

    def to_polars(self) -> Any:  # noqa: ANN401 - polars is not a dependency
        """Return all rows as a ``polars.DataFrame``.

        A calendar interval becomes a struct of its months, days and nanoseconds.

        Raises:
            PackageMissingError: polars is not installed.
            UnsupportedStateError: it has no values as those of a column.
        """
        polars = _require("polars")
        return polars.from_arrow(for_polars(self.to_table()))

    def count_keys(self) -> int:
        """Return the number of keys; of a list, all elements of a key count as one.

        Cairn's stores have the numbers in their changelogs: one small object per partition is read.
        All others, and Cairn's families that Spark has for itself, are read whole.
        """
        with ThreadPoolExecutor(_COUNTING_THREADS) as threads:
            return sum(threads.map(self._count_keys_of, range(self.partitions)))

    def _count_keys_of(self, partition: int) -> int:
        name = self._family.family
        with self._open(self._family, partition) as store:
            if name not in store.families:
                return 0
            counted = store.stored_count(name)
            return sum(len(rows.keys) for rows in store.rows(name)) if counted is None else counted

    # -- one key ---------------------------------------------------------------------------------

    def get(self, key: Mapping[str, Any]) -> pa.Table:
        """Return the rows of a key: one, none, or those of a list; with ``schema``.

        If Spark's hash says in which partition the key is, only that one is read. Of a key with
        some of the key's columns these are all rows with the values; partitions are then read
        whole, and so they are for a calendar interval that is null. A key with -0.0 that no row has
        is that with 0.0: Spark groups them together.

        Args:
            key: values by the names of key columns.

        Raises:
            ConfigError: there is no such key column, or a value is not of its type.
            DataError: an object is damaged or gone; names it.
        """
        of_key = [column for column in self._family.columns if column.is_key]
        wanted = {column.name: column for column in of_key if column.name in key}
        if unknown := set(key) - set(wanted):
            names = ", ".join(column.name for column in of_key)
            raise ConfigError(
                f"the key has no column {min(unknown)!r}; it has: {names}",
                next_step="name key columns only; `schema` has the others",
            )
        values = {name: scalar_of(key[name], column) for name, column in wanted.items()}
        partitions = self._partitions_of(values)
        has_bytes = self._family.schema is not None and not any(map(has_gap, values.values()))
        if len(values) == len(of_key) and has_bytes:
            return self._rows_of_key(values, partitions)
        return self._rows_with(values, partitions)

    def _rows_of_key(self, values: Mapping[str, Any], partitions: Sequence[int]) -> pa.Table:
        family, found = self._family, []
        decoder = family.decoder()
        assert decoder is not None  # noqa: S101 - the caller has looked for a schema
        given = _key_of(family.columns, values, decoder.key_schema)
        # The key itself comes first: not all operators store keys as a grouping has them.
        keys = [
            decoder.encode_key_row([pa.repeat(value, 1) for value in one])
            for one in (given, [grouped(value) for value in given])
        ]
        for partition in partitions:
            with self._open(family, partition) as store:
                if family.family not in store.families:
                    continue
                for key in dict.fromkeys(keys):
                    value = store.get(family.family, key)
                    if value is not None:
                        row = _stored(key, value)
                        found.append(self._batch(decoder, row, family.columns, partition))
                        break
        return pa.Table.from_batches(found, self.schema)

    def _rows_with(self, values: Mapping[str, Any], partitions: Sequence[int]) -> pa.Table:
        found = []
        for batch in self.reader(partitions=partitions):
            is_wanted: Any = pa.array(np.ones(batch.num_rows, np.bool_))
            for name, value in values.items():
                is_wanted = pc.and_(is_wanted, are_equal(batch.column(name), value))
            found.append(batch.filter(is_wanted))
        return pa.Table.from_batches(found, self.schema)

    def _partitions_of(self, values: Mapping[str, Any]) -> Sequence[int]:
        """Return the partitions that may have a key."""
        hashed = [column for column in self._family.columns if column.is_hashed]
        if not self._strict or not hashed or any(column.name not in values for column in hashed):
            return range(self.partitions)
        columns = [pa.repeat(values[column.name], 1) for column in hashed]
        return [int(partition_of(columns, self.partitions)[0])]

    @property
    def family(self) -> Family:
        """The family, as its rows are stored."""
        return self._family

    # -- for comparisons -------------------------------------------------------------------------

    @property
    def stored_as(self) -> tuple[object, ...]:
        """What two states have in common if equal rows of theirs have equal bytes."""
        family = self._family
        provider = family.place.provider
        return provider, self.partitions, family.family, family.form

    def stored_rows(self, partition: int) -> Iterator[StoredRows]:
        """Yield the stored keys and values of a partition."""
        return _rows_of(self._open(self._family, partition), self._family)

    def decode(self, rows: StoredRows, partition: int) -> pa.RecordBatch:
        """Return stored rows of a partition as ``schema`` has them."""
        return self._batch(self._family.decoder(), rows, self._family.columns, partition)

    def decode_keys(self, keys: pa.Array[Any], partition: int) -> pa.RecordBatch:
        """Return the key columns of stored keys, and ``partition``."""
        decoder = self._family.decoder()
        columns = [column for column in self._family.columns if column.is_key]
        decoded = None if decoder is None else decoder.decode_keys(keys)
        arrays = [keys if decoded is None else column.of(decoded) for column in columns]
        return _with_partition(arrays, columns, partition, len(keys))

    def writes(self, partition: int) -> Iterator[Changes]:
        """Yield the writes of exactly this batch to a partition, in their order."""
        with self._open(self._family, partition) as store:
            if self._family.family in store.families:
                yield from store.writes(self._family.family)

    # -- the way of the rows ---------------------------------------------------------------------

    def _chosen(self, names: Sequence[str] | None) -> tuple[Column, ...]:
        columns = self._family.columns
        if names is None:
            return columns
        if unknown := set(names) - set(self.schema.names):
            raise ConfigError(
                f"there is no column {min(unknown)!r}; there are: {', '.join(self.schema.names)}"
            )
        return tuple(column for column in columns if column.name in names)

    def _numbers(self, partitions: Iterable[int] | None) -> list[int]:
        numbers = list(dict.fromkeys(range(self.partitions) if partitions is None else partitions))
        for number in numbers:
            if not 0 <= number < self.partitions:
                raise ConfigError(
                    f"there is no partition {number}; there are 0 to {self.partitions - 1}"
                )
        return numbers

    def _open(self, family: Family, partition: int) -> StoreRows:
        return family.place.open(partition, family.list_families, self._limits)

    def _batch(
        self,
        decoder: RowDecoder | None,
        rows: StoredRows,
        columns: Sequence[Column],
        partition: int,
    ) -> pa.RecordBatch:
        if decoder is None:
            arrays = [rows.keys if column.is_key else rows.values for column in columns]
            return _with_partition(arrays, columns, partition, len(rows.keys))
        try:
            keys, values, numbers = decoder.decode(rows)
        except DataError as error:
            place = self._family.place
            raise error.with_context(
                store=f"{place.operator}/{partition}/{place.store}, {self.name}",
                version=place.version,
                object_name=place.objects.object_url(place.folder(partition)),
            ) from error.__cause__
        arrays = [column.of(keys if column.is_key else values) for column in columns]
        return _with_partition(arrays, columns, partition, len(numbers))


def _rows_of(store: StoreRows, family: Family) -> Iterator[StoredRows]:
    """Yield the rows of a family, and close the store after them."""
    with store:
        if family.family in store.families:  # else the partition has no row of it yet
            yield from store.rows(family.family)


def _stored(key: bytes, value: bytes) -> StoredRows:
    large = pa.large_binary()
    return StoredRows(pa.array([key], large), pa.array([value], large))


def _schema_of(columns: Sequence[Column], order: Sequence[str] | None = None) -> pa.Schema:
    fields = {column.name: pa.field(column.name, column.type) for column in columns}
    fields[PARTITION] = pa.field(PARTITION, pa.int32())
    return pa.schema([fields[name] for name in (fields if order is None else order)])


def _with_partition(
    arrays: Sequence[Any], columns: Sequence[Column], partition: int, count: int
) -> pa.RecordBatch:
    numbers = pa.array(np.full(count, partition, np.int32))
    return pa.RecordBatch.from_arrays([*arrays, numbers], schema=_schema_of(columns))


def _key_of(columns: Sequence[Column], values: Mapping[str, Any], schema: pa.Schema) -> list[Any]:
    """Return the values of the stored key's columns: Spark has some in structs, and expiry times.

    Args:
        columns: of the family.
        values: of all key columns.
        schema: of the stored key.
    """
    kinds: list[Any] = [field.type for field in schema]
    result = [pa.scalar(None, kind) for kind in kinds]
    parts: dict[int, list[Any]] = {}
    for column in columns:
        if not column.is_key:
            continue
        value: Any = values[column.name]
        if column.is_expiry:
            value = value.cast(pa.int64())
        if len(column.path) == 1:
            result[column.path[0]] = value
        else:  # the fields of a struct follow each other
            parts.setdefault(column.path[0], []).append(value)
    for place, of_struct in parts.items():
        result[place] = struct_scalar(of_struct, kinds[place])
    return result


def _require(package: str) -> Any:  # noqa: ANN401 - any module
    try:
        return importlib.import_module(package)
    except ImportError as problem:
        raise PackageMissingError(
            f"the package {package} is not installed", next_step=f"pip install {package}"
        ) from problem
