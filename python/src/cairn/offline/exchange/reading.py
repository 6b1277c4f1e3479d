"""FileReader: rows of Parquet files -> stored rows of a family, each verified.

Layer: offline.exchange.  Spec: docs/moving.md#export-and-import. A problem names file, row and
column; rows are counted from 0 in their file.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from cairn.errors import DataError
from cairn.offline.exchange.file_form import METADATA
from cairn.reader.families import PARTITION
from cairn.reader.rows.partition_hash import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cairn.offline.exchange.file_form import FileForm
    from cairn.reader.rows.stored import StoredRows

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute
types: Any = pa.types

MOST_PROBLEMS = 100
"""So many are found; the search ends there."""
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file cannot be imported.

    Attributes:
        file: its URL or path.
        row: its number in the file, from 0; ``None``: all rows.
        column: its name; ``None``: the file itself, or the key.
        text: what is wrong.
    """

    file: str
    row: int | None
    column: str | None
    text: str


@dataclass(frozen=True)
class EncodedRows:
    """Some rows of a file, as a store has them.

    Attributes:
        rows: keys and values; of a list one element per row.
        partitions: of each row.
        places: of each element in its list; empty if the family has no lists.
        first: the number of the first row in its file.
    """

    rows: StoredRows
    partitions: NDArray[np.int32]
    places: NDArray[np.int64]
    first: int

    @property
    def keys(self) -> pa.Array[Any]:
        """The keys."""
        return self.rows.keys

    @property
    def values(self) -> pa.Array[Any]:
        """The values, or elements."""
        return self.rows.values


class FileReader:
    """See the module. Not thread-safe.

    Args:
        form: of the rows in the files.

    Attributes:
        problems: those that were found so far, at most ``MOST_PROBLEMS``.
    """

    def __init__(self, form: FileForm) -> None:
        self.problems: list[Problem] = []
        self._form = form

    def batches(self, file: pq.ParquetFile, name: str) -> Iterator[EncodedRows]:
        """Yield the rows of a file that have no problem; whole batches with one are left out.

        Args:
            file: the file.
            name: of it, for problems.
        """
        found = self._look_at_schema(file.schema_arrow, name)
        if found:
            self.problems += found
            return
        first = 0
        for batch in file.iter_batches(_BATCH_ROWS):
            if len(self.problems) >= MOST_PROBLEMS:
                return
            checked = _Batch(self._form, batch, name, first)
            encoded = checked.encoded()
            self.problems += checked.problems[: MOST_PROBLEMS - len(self.problems)]
            if encoded is not None:
                yield encoded
            first += batch.num_rows

    def _look_at_schema(self, schema: pa.Schema, name: str) -> list[Problem]:
        form, found = self._form, []
        names = schema.names
        optional = {PARTITION, form.place, *form.nulls.values()}
        for field in form.schema:
            if field.name not in names:
                if field.name not in optional:
                    text = f"the column is missing; its type is {field.type}"
                    found.append(Problem(name, None, field.name, text))
                continue
            if names.count(field.name) > 1:
                found.append(Problem(name, None, field.name, "two columns have this name"))
                continue
            kind = schema.field(field.name).type
            if not _may_be(kind, field.type):
                text = f"the column has the type {kind}, and not {field.type}"
                found.append(Problem(name, None, field.name, text))
        expected = set(form.schema.names)
        for other in names:
            if other not in expected:
                text = f"the family has no such column; it has: {', '.join(form.schema.names)}"
                found.append(Problem(name, None, other, text))
        return found + self._look_at_metadata(schema, name)

    def _look_at_metadata(self, schema: pa.Schema, name: str) -> list[Problem]:
        """Compare the types of Spark's, which say more than Arrow's, if the file has them."""
        data = (schema.metadata or {}).get(METADATA)
        description: Any = None
        with suppress(ValueError):
            description = json.loads(data or b"null")
        if not isinstance(description, dict):
            return []
        own = self._form.description()
        return [
            Problem(name, None, None, f"it was exported from rows with another {what} of Spark's")
            for what, field in (("key schema", "key_schema"), ("value schema", "value_schema"))
            if field in description and description[field] != own[field]
        ]


class _Batch:
    """Some rows of a file, and what is wrong with them."""

    def __init__(self, form: FileForm, batch: pa.RecordBatch, name: str, first: int) -> None:
        self.problems: list[Problem] = []
        self._form = form
        self._batch = batch
        self._file = name
        self._first = first

    def encoded(self) -> EncodedRows | None:
        """Return the rows; ``None``: there are problems."""
        form, count = self._form, self._batch.num_rows
        columns = {}
        for field in form.schema:
            if field.name in self._batch.schema.names:
                columns[field.name] = self._cast(field)
        if self.problems:
            return None
        for one in form.columns:
            if not one.is_nullable and not one.column.is_expiry:
                self._refuse_nulls(columns[one.name], one.name, "Spark's schema has no null here")
        for name in form.nulls.values():
            if name in columns:
                self._refuse_nulls(columns[name], name, "it is true or false, and never null")
        places = self._places(columns)
        partitions = self._partitions(columns)
        if self.problems:
            return None
        try:
            rows = form.to_rows(columns, count)
        except DataError as failure:
            self._add(None, None, str(failure))
            return None
        return EncodedRows(rows, partitions, places, self._first)

    def _add(self, row: int | None, column: str | None, text: str) -> None:
        number = None if row is None else self._first + row
        self.problems.append(Problem(self._file, number, column, text))

    def _cast(self, field: pa.Field[Any]) -> Any:  # noqa: ANN401 - the stubs have a type per kind
        values: Any = self._batch.column(field.name)
        if values.type == field.type:
            return values
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        try:
            cast = values.cast(field.type)
        except (pa.ArrowException, ValueError):
            pass
        else:
            if (row := _first_rounded(values, cast)) is not None:
                text = f"the value is no {field.type}: {values[row]} would become {cast[row]}"
                self._add(row, field.name, text)
            return cast
        for row in range(len(values)):
            try:
                values.slice(row, 1).cast(field.type)
            except (pa.ArrowException, ValueError) as problem:
                self._add(row, field.name, f"the value is no {field.type}: {problem}")
                return values
        self._add(None, field.name, f"the column cannot become one of {field.type}")
        return values

    def _refuse_nulls(self, values: Any, name: str, text: str) -> None:  # noqa: ANN401 - as above
        if values.null_count:
            self._add(int(np.flatnonzero(values.is_null())[0]), name, f"the value is null: {text}")

    def _places(self, columns: dict[str, Any]) -> NDArray[np.int64]:
        name = self._form.place
        if name is None:
            return np.empty(0, np.int64)
        if name not in columns:
            return np.arange(self._first, self._first + self._batch.num_rows)
        self._refuse_nulls(columns[name], name, "each element has a place")
        return np.asarray(columns[name].fill_null(0).to_numpy(), np.int64)

    def _partitions(self, columns: dict[str, Any]) -> NDArray[np.int32]:
        form = self._form
        family = form.family
        hashed = [one.from_file(columns[one.name]) for one in form.columns if one.column.is_hashed]
        given = columns.get(PARTITION)
        if given is not None:
            self._refuse_nulls(given, PARTITION, "leave out the column, or fill it")
            given = np.asarray(given.fill_null(0).to_numpy(), np.int32)
        if not hashed:
            return np.zeros(self._batch.num_rows, np.int32) if given is None else given
        partitions = partition_of(hashed, family.partitions)
        if given is not None and bool((given != partitions).any()):
            row = int(np.flatnonzero(given != partitions)[0])
            self._add(
                row,
                PARTITION,
                f"the row is of partition {partitions[row]} by Spark's hash of its key, and not of "
                f"{given[row]}",
            )
        return partitions


def _first_rounded(values: Any, cast: Any) -> int | None:  # noqa: ANN401 - as above
    """Return the first row with a number that is another one as a float: Arrow rounds it."""
    if "double" not in str(values.type) or "float" not in str(cast.type):
        return None
    back = cast.cast(values.type)
    if back.equals(values):
        return None
    # Arrow's NaN equals nothing.
    rows = enumerate(zip(values.to_pylist(), back.to_pylist(), strict=True))
    return next((row for row, (one, other) in rows if repr(one) != repr(other)), None)


def _may_be(kind: Any, wanted: Any) -> bool:  # noqa: ANN401 - the stubs have a class per kind
    """Return whether values of a type can be those of another one, each exactly or not at all."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    if kind == wanted or types.is_null(kind):
        return True
    if types.is_nested(wanted):
        return _is_kind_of_nested(kind, wanted)
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(kind)) and (kind.tz is None) == (wanted.tz is None)
    return any(is_of(wanted) and any(may(kind) for may in allowed) for is_of, allowed in _CASTS)


def _is_kind_of_nested(kind: Any, wanted: Any) -> bool:  # noqa: ANN401 - as above
    """Return the same of a list, map or struct."""
    if types.is_map(wanted):
        return bool(
            types.is_map(kind)
            and _may_be(kind.key_type, wanted.key_type)
            and _may_be(kind.item_type, wanted.item_type)
        )
    if types.is_large_list(wanted):
        is_list = types.is_list(kind) or types.is_large_list(kind)
        return bool(is_list) and _may_be(kind.value_type, wanted.value_type)
    return bool(
        types.is_struct(kind)
        and [one.name for one in kind] == [one.name for one in wanted]
        and all(_may_be(a.type, b.type) for a, b in zip(kind, wanted, strict=True))
    )


def _is_text(kind: Any) -> bool:  # noqa: ANN401 - as above
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_binary(kind: Any) -> bool:  # noqa: ANN401 - as above
    is_of_any_size = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(is_of_any_size or types.is_fixed_size_binary(kind))


_CASTS: Any = (
    (types.is_integer, (types.is_integer,)),
    (types.is_floating, (types.is_floating,)),
    (types.is_decimal, (types.is_decimal, types.is_integer)),
    (_is_text, (_is_text,)),
    (_is_binary, (_is_binary,)),
    (types.is_time, (types.is_time, types.is_integer)),
    (types.is_duration, (types.is_duration, types.is_integer)),
)
"""What a column's type may be, by the type that is wanted; casts refuse values that do not fit."""
