"""Family: one kind of rows of an operator, and the columns that users see of it.

Layer: reader. A family is a column family of a store, or a whole store without families. Spark
wraps what the program has: a state variable has its time to live beside it, a timer is a key. The
columns here are those of the program:

    map variable         key.*, userKey.* -> both, by the names of their fields
    timers               key.*, expiryTimestampMs -> key.*, expires_at
    with time to live    value.*, ttlExpirationMs -> value.*, expires_at
    flatMapGroups...     groupState.*, timeoutTimestamp -> groupState.*, expires_at
    dedupeWithin...      expiresAtMicros -> expires_at

The side of a join has all rows that are stored, with their index and whether they were matched.
Spark joins those whose index is below the count of their key: there are no others, because Spark
removes a row in the batch that lowers the count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute

from cairn.errors import DataError
from cairn.ids import DEFAULT_STORE
from cairn.reader.rows.decoder import RowDecoder, with_long_timeout
from cairn.reader.rows.stored import RowForm
from cairn.reader.spark.logs import GROUPS_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cairn.reader.spark.logs import StateConf
    from cairn.reader.spark.operators import Operator, OperatorStore
    from cairn.reader.spark.schema_files import FamilySchema
    from cairn.reader.stores.opening import StorePlace

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

EXPIRES_AT = "expires_at"
PARTITION = "partition"
_MILLIS = pa.timestamp("ms", tz="UTC")
_MICROS = pa.timestamp("us", tz="UTC")
_EXPIRY = {
    "ttlExpirationMs": _MILLIS,
    "expirationMs": _MILLIS,
    "expiryTimestampMs": _MILLIS,
    "timeoutTimestamp": _MILLIS,
    "expiresAtMicros": _MICROS,
}
_PLACEHOLDERS = frozenset({"__dummy__", "__empty__"})
_GROUPS = frozenset({"flatMapGroupsWithState", "applyInPandasWithState"})
_WITHIN = "dedupeWithinWatermark"
_LIMIT = "globalLimit"
_JOIN = "symmetricHashJoin"
_SESSIONS = "sessionWindowStateStoreSaveExec"
_TIMERS = ("$eventTimers_", "$procTimers_")
_TTL = "$ttl_"
_EVENT_TIME = "__event_time"
_SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class Column:
    """One column that users see.

    Attributes:
        name: unique within its family.
        path: the column of the decoded key or value, and the field of it, if that is a struct.
        type: its Arrow type.
        is_key: whether it is a part of the key.
        is_expiry: whether it is a time at which the row expires; a negative one is none.
        is_hashed: whether Spark's partition of the row depends on it.
        is_opaque: whether only the program knows what its bytes mean.
    """

    name: str
    path: tuple[int, ...]
    type: pa.DataType
    is_key: bool
    is_expiry: bool = False
    is_hashed: bool = False
    is_opaque: bool = False

    def of(self, decoded: pa.RecordBatch) -> pa.Array[Any]:
        """Return the column of decoded keys or values."""
        array: Any = decoded.column(self.path[0])
        for place in self.path[1:]:
            array = array.flatten()[place]
        if self.is_expiry:
            is_time = pc.greater_equal(array.cast(pa.int64()), pa.scalar(0, pa.int64()))
            array = pc.if_else(is_time, array.cast(pa.int64()), pa.scalar(None, pa.int64()))
            array = array.cast(self.type)
        result: pa.Array[Any] = array
        return result


@dataclass(frozen=True)
class Family:
    """See the module.

    Attributes:
        operator: its operator.
        store: its store.
        family: Spark's name of the column family.
        name: short, unique within the operator.
        is_list: whether a key has several rows.
        is_internal: whether the operator has it for itself.
        schema: of its rows; ``None`` if Spark stored none, before its version 3.1.
        form: how its rows became bytes.
        columns: of its rows, without ``partition``.
        place: where its files are.
        list_families: the families of its store whose values are lists.
        failure: why its columns are not known, so that its rows cannot be read; else ``None``.
    """

    operator: Operator
    store: OperatorStore
    family: str
    name: str
    is_list: bool
    is_internal: bool
    schema: FamilySchema | None
    form: RowForm
    columns: tuple[Column, ...]
    place: StorePlace
    list_families: frozenset[str]
    failure: DataError | None = None

    @property
    def partitions(self) -> int:
        """The number of partitions that have rows."""
        return 1 if self.is_single else self.operator.partitions

    @property
    def is_single(self) -> bool:
        """Whether Spark has a store of the first partition alone.

        It sends all rows of a limit, and of an aggregation without keys, there.
        """
        has_no_key = (
            self.family == DEFAULT_STORE
            and self.schema is not None
            and not self.schema.key.get("fields")
        )
        return self.operator.name == _LIMIT or has_no_key

    def decoder(self) -> RowDecoder | None:
        """Return a decoder of its rows; ``None`` without a schema."""
        return None if self.schema is None else RowDecoder(self.schema, self.form)


def families_of(
    conf: StateConf,
    operator: Operator,
    store: OperatorStore,
    schemas: Mapping[str, FamilySchema] | None,
    place: StorePlace,
) -> Iterator[Family]:
    """Yield the families of a store; one with a type that is not known has a ``failure``.

    Args:
        conf: the settings of the batch.
        operator: the store's operator.
        store: the store.
        schemas: of its families; ``None`` if Spark stored none.
        place: where its files are.
    """
    lists = frozenset(name for name in schemas or () if _is_list(operator, name))
    is_tws = _is_tws(operator)
    known: Mapping[str, FamilySchema | None] = schemas or {DEFAULT_STORE: None}
    for family, schema in known.items():
        if is_tws and not _is_of_variable(operator, family):
            continue
        form = RowForm(
            encoding=conf.encoding if is_tws else "unsaferow",
            is_bare=place.provider == "hdfs",
            is_list=family in lists,
            booleans_as_bytes=place.provider == "cairn",
        )
        is_groups = _is_of_groups(conf, operator, schema)
        if schema is not None and is_groups and conf.number(GROUPS_FORMAT) == 1:
            schema = with_long_timeout(schema)  # noqa: PLW2901 - what Spark stores
        columns: tuple[Column, ...] = ()
        failure = None
        try:
            columns = _columns(operator, schema, form, place, is_groups=is_groups)
        except DataError as problem:
            failure = problem.with_context(
                store=f"{operator.id}/{store.name}",
                object_name=place.objects.object_url(f"state/{operator.id}"),
            )
        name = _short_name(store.name, family)
        yield Family(
            operator=operator,
            store=store,
            family=family,
            name=name,
            is_list=family in lists,
            is_internal=_is_internal(store.name, family),
            schema=schema,
            form=form,
            columns=columns,
            place=place,
            list_families=lists,
            failure=failure,
        )


def unread_family(
    operator: Operator, store: OperatorStore, place: StorePlace, failure: DataError
) -> Family:
    """Return what stands for all families of a store whose schema cannot be read."""
    return Family(
        operator=operator,
        store=store,
        family=DEFAULT_STORE,
        name=_short_name(store.name, DEFAULT_STORE),
        is_list=False,
        is_internal=_is_internal(store.name, DEFAULT_STORE),
        schema=None,
        form=RowForm("unsaferow", is_bare=False, is_list=False),
        columns=(),
        place=place,
        list_families=frozenset(),
        failure=failure.with_context(store=f"{operator.id}/{store.name}"),
    )


_RAW = (
    Column("key", is_key=True, path=(0,), type=pa.large_binary(), is_opaque=True),
    Column("value", is_key=False, path=(0,), type=pa.large_binary(), is_opaque=True),
)


def _is_tws(operator: Operator) -> bool:
    return (operator.name or "").startswith("transformWithState")


def _is_of_variable(operator: Operator, family: str) -> bool:
    """Return whether a variable of the batch has the family, or an index of it.

    The schema files also have families of variables that the program has deleted since, and the
    family ``default``, in which Spark stores nothing.
    """
    names = {variable.name for variable in operator.variables}
    is_index = family.startswith("$") and family.partition("_")[2] in names
    return family in names or is_index or family.startswith(_TIMERS)


def _is_of_groups(conf: StateConf, operator: Operator, schema: FamilySchema | None) -> bool:
    """Return whether the rows are of ``flatMapGroupsWithState``, or of its form for pandas.

    Before Spark 4.0 no metadata say it: the columns do.
    """
    if operator.name is not None or schema is None:
        return operator.name in _GROUPS
    names = [field["name"] for field in schema.value["fields"]]
    if conf.number(GROUPS_FORMAT) == 1:
        return names[-1:] == ["timeoutTimestamp"]
    return names[:1] == ["groupState"]


def _is_list(operator: Operator, family: str) -> bool:
    kinds = {variable.name: variable.kind for variable in operator.variables}
    is_of_join = family.endswith(("-keyWithTsToValues", "-tsWithKey"))
    return kinds.get(family) == "ListState" or is_of_join


def _short_name(store: str, family: str) -> str:
    """Return ``left`` and ``right`` for the rows of a join; else the family, or the store."""
    name = store if family == DEFAULT_STORE else family
    side, dash, kind = name.partition("-")
    if dash and side in _SIDES and kind in ("keyWithIndexToValue", "keyWithTsToValues"):
        return side
    return name


def _is_internal(store: str, family: str) -> bool:
    name = store if family == DEFAULT_STORE else family
    return name.startswith("$") or name.endswith(("-keyToNumValues", "-tsWithKey"))


def _columns(
    operator: Operator,
    schema: FamilySchema | None,
    form: RowForm,
    place: StorePlace,
    *,
    is_groups: bool,
) -> tuple[Column, ...]:
    if schema is None:
        return _RAW
    decoder = RowDecoder(schema, form)
    hashed = _hashed_key_columns(operator, place.store, schema)
    columns = [
        Column(
            name,
            path,
            type_,
            is_key=True,
            is_expiry=is_expiry,
            is_hashed=path[0] in hashed or path in hashed,
        )
        for name, path, type_, is_expiry in _key_columns(decoder.key_schema, schema)
    ]
    columns += [
        Column(name, path, type_, is_key=False, is_expiry=is_expiry)
        for name, path, type_, is_expiry in _value_columns(
            operator, decoder.value_schema, is_groups=is_groups
        )
    ]
    if is_groups or _is_tws(operator):
        # So Spark's encoders of Kryo, Java's serialization and bytes name their only column.
        columns = [
            replace(one, is_opaque=one.name == "value" and pa.types.is_large_binary(one.type))
            for one in columns
        ]
    return _with_unique_names(columns)


Named = tuple[str, tuple[int, ...], Any, bool]
"""Name, path, type, and whether it is a time of expiry."""


def _key_columns(key: pa.Schema, schema: FamilySchema) -> Iterator[Named]:
    is_wrapped = schema.name.startswith((*_TIMERS, _TTL)) or schema.user_key is not None
    for place, field in enumerate(cast("Iterable[Any]", key)):
        if not is_wrapped:
            yield field.name, (place,), field.type, False
        elif field.name in _EXPIRY:
            yield EXPIRES_AT, (place,), _EXPIRY[field.name], True
        else:
            yield from _flat(place, field)


def _value_columns(operator: Operator, value: pa.Schema, *, is_groups: bool) -> Iterator[Named]:
    names = value.names
    has_ttl = bool(operator.variables) and names == ["value", "ttlExpirationMs"]
    for place, field in enumerate(cast("Iterable[Any]", value)):
        if field.name in _PLACEHOLDERS and pa.types.is_null(field.type):
            continue
        is_last = place == len(names) - 1
        is_timeout = is_groups and is_last and field.name == "timeoutTimestamp"
        is_within = operator.name in (_WITHIN, None) and names == ["expiresAtMicros"]
        if (has_ttl and place == 1) or is_timeout or is_within:
            yield EXPIRES_AT, (place,), _EXPIRY[field.name], True
        elif (has_ttl or (is_groups and field.name == "groupState")) and pa.types.is_struct(
            field.type
        ):
            yield from _flat(place, field)
        else:
            yield field.name, (place,), field.type, False


def _flat(place: int, field: pa.Field[Any]) -> Iterator[Named]:
    kind: Any = field.type
    if not pa.types.is_struct(kind):
        yield field.name, (place,), kind, False
        return
    for number in range(kind.num_fields):
        part: Any = kind.field(number)
        yield part.name, (place, number), part.type, False


def _hashed_key_columns(
    operator: Operator, store: str, schema: FamilySchema
) -> frozenset[int | tuple[int, ...]]:
    """Return the places of the key's columns on which Spark's partition of a row depends.

    A path stands for one field of a column. Empty: the rows have no such column, and are all in
    partition 0.
    """
    count = len(schema.key["fields"])
    every: frozenset[int | tuple[int, ...]] = frozenset(range(count))
    family = schema.name
    name = store if family == DEFAULT_STORE else family
    has_no_key = [field["type"] for field in schema.key["fields"]] == ["void"]
    if operator.name == _LIMIT or has_no_key:
        return frozenset()
    if family.startswith(_TTL):
        kinds = {variable.name: variable.kind for variable in operator.variables}
        # The key of a map's row is a struct of the grouping key and the key in the map.
        is_of_map = kinds.get(family.removeprefix(_TTL)) == "MapState"
        return frozenset({(1, 0)}) if is_of_map else frozenset({1})
    if family.endswith("_timestampToKey"):
        return frozenset({1})
    if family.startswith(_TIMERS) or schema.user_key is not None:
        return frozenset({0})
    is_session = operator.name is None and schema.encoder.prefix_columns
    if is_session or operator.name == _SESSIONS or name.endswith("-keyWithIndexToValue"):
        return every - {count - 1}
    has_time = operator.name == _JOIN and schema.key["fields"][-1]["name"] == _EVENT_TIME
    return every - {count - 1} if has_time else every


def _with_unique_names(columns: list[Column]) -> tuple[Column, ...]:
    """Return the columns; of several with one name, those after the first have a number."""
    taken = {PARTITION}
    result = []
    for column in columns:
        name, number = column.name, 1
        while name in taken:
            number += 1
            name = f"{column.name}_{number}"
        taken.add(name)
        result.append(replace(column, name=name))
    return tuple(result)
