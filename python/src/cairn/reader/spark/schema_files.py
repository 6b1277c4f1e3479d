"""Schema files: the types of keys and values, by column family, as Spark stores them.

Layer: reader.spark.  Spec: docs/spark-formats.md#schema-files. ``java_data`` has ``utf`` and
``texts``.

    v1 := utf "v1"  utf key    utf value         ; one family, "default"; Spark 3.1
    v2 := utf "v2"  texts key  texts value       ; the same, since Spark 3.2
    v3 := utf "v3"  i32be n  family*n            ; stores with families, since Spark 4.0
    family := utf name  i16be key_id    texts key
                        i16be value_id  texts value  texts encoder  texts user_key

Files of v3 that Spark wrote before its release 4.0 lack the two ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cairn.errors import (
    CorruptError,
    DataError,
    FormatVersionError,
    MissingError,
    UnsupportedStateError,
)
from cairn.format.fields import as_int, as_list, as_object, as_text, parse_object
from cairn.ids import DEFAULT_STORE, StoreId
from cairn.reader.spark.java_data import JavaData

if TYPE_CHECKING:
    from cairn.reader.spark.operators import Operator, OperatorStore
    from cairn.storage.base import ObjectStore

_FILE_BYTES_MAX = 64 << 20
_ID_MAX = 2**15 - 1
_SESSION_START: Final = {"name": "sessionStartTime", "type": "timestamp"}
_NO_PREFIX = "NoPrefix"
_KINDS: Final = {
    "NoPrefixKeyStateEncoderSpec": _NO_PREFIX,
    "PrefixKeyScanStateEncoderSpec": "PrefixScan",
    "RangeKeyScanStateEncoderSpec": "RangeScan",
    "TimestampAsPrefixKeyStateEncoderSpec": "TsPrefix",
    "TimestampAsPostfixKeyStateEncoderSpec": "TsPostfix",
}


@dataclass(frozen=True)
class KeyEncoder:
    """How Spark makes the bytes of a key, so that it can scan them.

    Attributes:
        kind: ``NoPrefix``, ``PrefixScan``, ``RangeScan``, ``TsPrefix`` or ``TsPostfix``.
        prefix_columns: of ``PrefixScan``: the first columns, which are apart.
        ordinals: of ``RangeScan``: the columns that are apart, in the order of their bytes.
    """

    kind: str
    prefix_columns: int = 0
    ordinals: tuple[int, ...] = ()


@dataclass(frozen=True)
class FamilySchema:
    """The types of a column family. A store without families has one, named ``default``.

    Attributes:
        name: Spark's ``colFamilyName``.
        key: Spark's JSON of a struct type.
        value: Spark's JSON of a struct type.
        encoder: of keys.
        key_id: id of the key's type, which rows in Avro name.
        value_id: id of the value's type, which rows in Avro name.
        user_key: of a map: Spark's JSON of the struct type of its keys.
        older: types that the family had before, oldest first; rows in Avro may have them.
        has_ids: whether the types have ids. Before its release 4.0 Spark stored none.
    """

    name: str
    key: dict[str, Any]
    value: dict[str, Any]
    encoder: KeyEncoder
    key_id: int = 0
    value_id: int = 0
    user_key: dict[str, Any] | None = None
    older: tuple[FamilySchema, ...] = ()
    has_ids: bool = True


def read_families(
    checkpoint: ObjectStore, operator: Operator, store: OperatorStore
) -> dict[str, FamilySchema] | None:
    """Return the families of a store by their names; one GET per schema file.

    Families that the program has removed are among them.

    Args:
        checkpoint: at the query's checkpoint location.
        operator: the store's operator.
        store: one of its stores.

    Returns:
        ``None`` if the store has no schema file: the query began before Spark 3.1.

    Raises:
        MissingError: a file that the operator's metadata names does not exist.
        CorruptError: a file is damaged.
        FormatVersionError, UnsupportedStateError: a file is of a newer Spark.
    """
    if store.schema_keys:
        return _merged([_read(checkpoint, key, None) for key in store.schema_keys])
    try:
        return _merged(
            [_read(checkpoint, key, store.prefix_columns) for key in schema_keys(operator, store)]
        )
    except MissingError:
        return None


def schema_keys(operator: Operator, store: OperatorStore) -> tuple[str, ...]:
    """Return the objects of a store's schemas; without a name by Spark there may be none."""
    if store.schema_keys:
        return store.schema_keys
    return (f"{StoreId(operator.id, 0, store.name).folder}/_metadata/schema",)


def parse_schema_file(data: bytes, prefix_columns: int | None) -> list[FamilySchema]:
    """Return the families of a schema file; several of one name are its types over time.

    Args:
        data: the whole file.
        prefix_columns: of a store without families, what the operator's metadata says; ``None`` if
            it has none. Then the key of a session window tells itself by its last column.

    Raises:
        CorruptError: the file is damaged.
        FormatVersionError: it is of a newer version than 3.
        UnsupportedStateError: it has a key encoder that the reader does not know.
    """
    source = JavaData(data)
    version = source.read_utf()
    if version == "v3":
        return _families(data)
    if version not in {"v1", "v2"}:
        if version[:1] == "v" and version[1:].isdecimal():
            raise FormatVersionError(
                f"the schema file has version {version[:20]}, newer than v3",
                next_step="use a release of Cairn that knows the Spark that wrote it",
            )
        raise CorruptError("the file does not begin with the version of a schema file")
    read = source.read_utf if version == "v1" else source.read_texts
    key, value = _struct(read(), "the key's type"), _struct(read(), "the value's type")
    _check_end(source)
    if prefix_columns is None:
        fields = key["fields"]
        is_session = bool(fields) and fields[-1].items() >= _SESSION_START.items()
        prefix_columns = len(fields) - 1 if is_session else 0
    encoder = _prefix_encoder(key, prefix_columns) if prefix_columns else KeyEncoder(_NO_PREFIX)
    return [FamilySchema(DEFAULT_STORE, key, value, encoder)]


def _read(checkpoint: ObjectStore, key: str, prefix_columns: int | None) -> list[FamilySchema]:
    data = checkpoint.get(key, max_bytes=_FILE_BYTES_MAX).data
    try:
        return parse_schema_file(data, prefix_columns)
    except DataError as error:
        raise error.with_context(
            object_name=checkpoint.object_url(key),
            next_step="restore it from the bucket's versions or a backup",
        ) from error.__cause__


def _families(data: bytes) -> list[FamilySchema]:
    try:
        return _families_of(data, has_ids=True)
    except CorruptError:
        # The first byte of an id is the first of a length otherwise: no file is whole as both.
        try:
            return _families_of(data, has_ids=False)
        except CorruptError:
            pass
        raise


def _families_of(data: bytes, *, has_ids: bool) -> list[FamilySchema]:
    source = JavaData(data)
    source.read_utf()
    families = []
    for _ in range(_count(source)):
        name = source.read_utf()
        key_id = _id(source) if has_ids else 0
        key = _struct(source.read_texts(), "the key's type")
        value_id = _id(source) if has_ids else 0
        value = _struct(source.read_texts(), "the value's type")
        encoder = _encoder(source.read_texts(), key)
        user_key = parse_object(source.read_texts(), "the type of a map's keys")
        families.append(
            FamilySchema(
                name,
                key,
                value,
                encoder,
                key_id,
                value_id,
                _checked_struct(user_key, "the type of a map's keys") if user_key else None,
                has_ids=has_ids,
            )
        )
    _check_end(source)
    return families


def _count(source: JavaData) -> int:
    count = source.read_int()
    if count < 0:
        raise CorruptError("the schema file has a negative number of families")
    return count


def _id(source: JavaData) -> int:
    return as_int(source.read_short(), "the id of a type", most=_ID_MAX)


def _check_end(source: JavaData) -> None:
    if not source.is_at_end:
        raise CorruptError("the schema file has bytes after its end")


def _struct(text: str, what: str) -> dict[str, Any]:
    return _checked_struct(parse_object(text, what), what)


def _checked_struct(found: object, what: str) -> dict[str, Any]:
    """Return JSON that is a struct type; types inside it are checked by those who decode them."""
    struct = dict(as_object(found, what))
    if struct.get("type") != "struct":
        raise CorruptError(f"{what} is not a struct")
    for field in as_list(struct.get("fields"), f"the fields of {what}"):
        as_text(as_object(field, f"a field of {what}").get("name"), f"a name in {what}")
    return struct


def _encoder(text: str, key: dict[str, Any]) -> KeyEncoder:
    fields = parse_object(text, "the key encoder")
    name = as_text(fields.get("keyStateEncoderType"), "keyStateEncoderType")
    kind = _KINDS.get(name)
    columns = len(key["fields"])
    if kind is None:
        raise UnsupportedStateError(
            f"keys are encoded by {name[:80]}, which the reader does not know",
            next_step="read them with Spark's statestore source, or a newer release of Cairn",
        )
    if kind == "PrefixScan":
        count = as_int(fields.get("numColsPrefixKey"), "numColsPrefixKey", most=columns)
        return _prefix_encoder(key, count)
    if kind == "RangeScan":
        ordinals = tuple(
            as_int(ordinal, "an ordering ordinal", most=columns - 1)
            for ordinal in as_list(fields.get("orderingOrdinals"), "orderingOrdinals")
        )
        if not ordinals or len(set(ordinals)) < len(ordinals):
            raise CorruptError("a range scan has no columns, or one of them twice")
        return KeyEncoder(kind, ordinals=ordinals)
    return KeyEncoder(kind)


def _prefix_encoder(key: dict[str, Any], prefix_columns: int) -> KeyEncoder:
    if not 0 < prefix_columns < len(key["fields"]):
        raise CorruptError(
            f"a key of {len(key['fields'])} columns has {prefix_columns} columns before the others"
        )
    return KeyEncoder("PrefixScan", prefix_columns=prefix_columns)


def _merged(files: list[list[FamilySchema]]) -> dict[str, FamilySchema]:
    """Return each family with its present type, which has the highest ids of its last file.

    Each file has all families of its batch. One that was removed and came back begins again at 0.
    """
    families: dict[str, dict[tuple[int, int], FamilySchema]] = {}
    for file in files:
        for family in sorted(file, key=_ids):
            types = families.setdefault(family.name, {})
            types.pop(_ids(family), None)
            types[_ids(family)] = family
    merged = {}
    for name, types in families.items():
        *older, present = types.values()
        merged[name] = replace(present, older=tuple(older))
    return merged


def _ids(family: FamilySchema) -> tuple[int, int]:
    return family.value_id, family.key_id
