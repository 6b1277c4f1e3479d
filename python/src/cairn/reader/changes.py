"""How state changes: differences between two batches, and what each batch has written.

Layer: reader. In a difference, keys and values are compared as stored bytes. First each side is
read once, and of a row only its hashes are kept, 32 bytes; then the rows that differ are found by
another read. So memory grows by 32 bytes per row of one partition, and by a hash per key that
differs. What a batch has written is read from its changelogs or deltas alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from cairn.checksum import xxh3_128
from cairn.errors import ConfigError, UnsupportedStateError
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_PUT
from cairn.reader.arrow_stream import ArrowStream
from cairn.reader.rows.stored import StoredRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cairn.reader.state import State
    from cairn.reader.stores.base import Changes

    Hashes = NDArray[np.void]

BATCH = "batch"
CHANGE = "change"
PUT, APPEND, DELETE = "put", "append", "delete"
ADDED, REMOVED, CHANGED_FROM, CHANGED_TO = "added", "removed", "changed_from", "changed_to"
_ROWS_AT_ONCE = 65_536
# numpy gives results in the byte order of the machine; the bytes of a hash must stay as they are.
_HASH = np.dtype([("high", np.uint64), ("low", np.uint64)])


class Diff(ArrowStream):
    """How one state differs from another. Any Arrow tool takes it as a stream.

    A key that only one of the states has gives its rows there, as ``removed`` or ``added``. A key
    with another value gives the rows of both, as ``changed_from`` and ``changed_to``.

    Attributes:
        schema: the column ``change``, and those of the states; one that is named ``change``, too,
            has the next free name, ``change_2``.
        key_columns: names of those that are the key, or parts of it.

    Raises:
        ConfigError: the states are not stored in the same form, or their columns differ: in the
            keys, or in the types of values of one name. A column that only one of them has is null
            in the rows of the other one.
    """

    def __init__(self, before: State, after: State) -> None:
        if before.stored_as != after.stored_as:
            raise ConfigError(
                "the two states are stored in different forms, and cannot be compared byte by byte",
                next_step="compare batches of one provider with the same number of partitions",
            )
        self._before = before
        self._after = after
        self._of_rows = _common_schema(before, after)
        self.schema = _beside((pa.field(CHANGE, pa.string(), nullable=False),), self._of_rows)
        shown = zip(self._of_rows.names, self.schema.names[1:], strict=True)
        self.key_columns = tuple(name for own, name in shown if own in after.key_columns)

    def reader(self) -> pa.RecordBatchReader:
        """Return the changes as a stream, by partition; their order within one is not defined.

        Raises:
            DataError: while it is read: an object is damaged or gone; names it.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for partition in range(self._after.partitions):
            old = _hashes(self._before.stored_rows(partition))
            new = _hashes(self._after.stored_rows(partition))
            removed, added, changed = _differing(old, new)
            sides = (
                (self._before, {REMOVED: removed, CHANGED_FROM: changed}),
                (self._after, {ADDED: added, CHANGED_TO: changed}),
            )
            for state, hashes in sides:
                if any(hashes.values()):
                    yield from self._of_side(state, partition, hashes)

    def _of_side(
        self, state: State, partition: int, hashes: dict[str, set[bytes]]
    ) -> Iterator[pa.RecordBatch]:
        for rows in state.stored_rows(partition):
            names = [xxh3_128(key) for key in cast("list[bytes]", rows.keys.to_pylist())]
            for change, wanted in hashes.items():
                places = [place for place, name in enumerate(names) if name in wanted]
                if places:
                    found = state.decode(rows.take(places), partition)
                    changes = pa.array([change] * found.num_rows, pa.string())
                    yield _with_schema([changes], found, self._of_rows, self.schema)


class ChangeFeed(ArrowStream):
    """What each of several batches has written: per batch and key the net change.

    Any Arrow tool takes it as a stream.

    Attributes:
        schema: the columns ``batch`` and ``change``: ``put``, ``append`` (to a list) or ``delete``;
            then those of the state, of which a delete has the key's and ``partition``. Those that
            are named as the first two have the next free names, ``batch_2`` and ``change_2``.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._states = states
        self._of_rows = pa.unify_schemas(
            [state.schema for state in states], promote_options="permissive"
        )
        own = (
            pa.field(BATCH, pa.int64(), nullable=False),
            pa.field(CHANGE, pa.string(), nullable=False),
        )
        self.schema = _beside(own, self._of_rows)

    def reader(self) -> pa.RecordBatchReader:
        """Return the changes as a stream, by batch and partition.

        Raises:
            DataError: while it is read: an object is damaged or gone; names it.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for state in self._states:
            for partition in range(state.partitions):
                net = _net_changes(state.writes(partition))
                for change in (PUT, APPEND, DELETE):
                    rows = [(key, value) for key, (op, value) in net.items() if op == change]
                    for start in range(0, len(rows), _ROWS_AT_ONCE):
                        some = rows[start : start + _ROWS_AT_ONCE]
                        yield self._batch(state, partition, change, some)

    def _batch(
        self, state: State, partition: int, change: str, rows: list[tuple[bytes, bytes]]
    ) -> pa.RecordBatch:
        keys = pa.array([key for key, _ in rows], pa.large_binary())
        if change == DELETE:
            decoded = state.decode_keys(keys, partition)
        else:
            values = pa.array([value for _, value in rows], pa.large_binary())
            decoded = state.decode(StoredRows(keys, values), partition)
        own = [
            pa.array(np.full(decoded.num_rows, state.batch, np.int64)),
            pa.array([change] * decoded.num_rows, pa.string()),
        ]
        return _with_schema(own, decoded, self._of_rows, self.schema)


def _net_changes(writes: Iterator[Changes]) -> dict[bytes, tuple[str, bytes]]:
    """Return the last state of each key that a batch has written, or what it has appended."""
    net: dict[bytes, tuple[str, bytes]] = {}
    for some in writes:
        keys = cast("list[bytes]", some.keys.to_pylist())
        values = cast("list[bytes]", some.values.to_pylist())
        for op, key, value in zip(some.ops.tolist(), keys, values, strict=True):
            if op == OP_PUT:
                net[key] = PUT, value
            elif op == OP_DELETE:
                net[key] = DELETE, b""
            elif op == OP_APPEND:
                before, old = net.get(key, (APPEND, b""))
                net[key] = (APPEND if before == APPEND else PUT), old + value
            else:
                raise UnsupportedStateError(
                    "the batch deletes a range of keys, which the change feed cannot show",
                    next_step="use `diff`, which compares the states of two batches",
                )
    return net


def _common_schema(before: State, after: State) -> pa.Schema:
    """Return the columns that two states have together.

    Raises:
        ConfigError: see ``Diff``.
    """
    keys, other_keys = (
        [f"{name} {state.schema.field(name).type}" for name in state.key_columns]
        for state in (before, after)
    )
    if keys != other_keys:
        raise _differ(f"the keys have the columns {', '.join(keys)}, and {', '.join(other_keys)}")
    try:
        common = pa.unify_schemas([after.schema, before.schema], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as problem:
        raise _differ(str(problem)) from problem
    for state in (before, after):
        for field in list(state.schema):
            kind = common.field(field.name).type
            # Only rows in Avro say which types they were written with, and may get wider ones.
            if field.type != kind and state.family.form.encoding != "avro":
                raise _differ(f"the column {field.name!r} is of type {field.type} in one of them")
    return common


def _differ(how: str) -> ConfigError:
    return ConfigError(
        f"the columns of the two states differ, so that they cannot be compared: {how}",
        next_step="compare states whose keys, and values of one name, have the same types",
    )


def _beside(own: tuple[pa.Field[Any], ...], of_rows: pa.Schema) -> pa.Schema:
    """Return columns of a change, and those of the rows, renamed where the names are taken."""
    taken = {*of_rows.names, *(field.name for field in own)}
    fields: list[pa.Field[Any]] = [*own]
    for field in list(of_rows):
        name, number = field.name, 1
        while any(name == other.name for other in own) or (number > 1 and name in taken):
            number += 1
            name = f"{field.name}_{number}"
        taken.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields)


def _with_schema(
    own: list[Any], rows: pa.RecordBatch, of_rows: pa.Schema, schema: pa.Schema
) -> pa.RecordBatch:
    """Return columns of a change, and those of the rows, null where they have none.

    Args:
        own: of the change.
        rows: those of one state.
        of_rows: the columns of all states.
        schema: of the result, from ``_beside``.
    """
    arrays = list(own)
    for field in list(of_rows):
        if field.name in rows.schema.names:
            one = rows.column(field.name)
            # Arrow's cast of list<null> to the same type gives an array that it refuses itself.
            arrays.append(one if one.type == field.type else one.cast(field.type))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _hashes(batches: Iterator[StoredRows]) -> tuple[Hashes, Hashes]:
    """Return the hashes of all keys, and of their values."""
    keys, values = bytearray(), bytearray()
    for rows in batches:
        keys += b"".join(map(xxh3_128, cast("list[bytes]", rows.keys.to_pylist())))
        values += b"".join(map(xxh3_128, cast("list[bytes]", rows.values.to_pylist())))
    return np.frombuffer(bytes(keys), _HASH), np.frombuffer(bytes(values), _HASH)


def _differing(
    before: tuple[Hashes, Hashes], after: tuple[Hashes, Hashes]
) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """Return the hashes of the keys that are in ``before`` alone, in ``after`` alone, or differ."""
    common, in_old, in_new = np.intersect1d(
        before[0], after[0], assume_unique=True, return_indices=True
    )
    is_same = before[1][in_old] == after[1][in_new]
    removed = np.setdiff1d(before[0], common, assume_unique=True)
    added = np.setdiff1d(after[0], common, assume_unique=True)
    return _set(removed), _set(added), _set(common[~is_same])


def _set(hashes: Hashes) -> set[bytes]:
    return {one.tobytes() for one in hashes}
