"""Column families of Cairn's objects, made from the schemas that Spark stores.

Layer: offline.move.  Spec: docs/checkpoint-format.md#changelog ("Column family"). The provider
makes the same from what Spark declares, and compares the types of keys when it loads a version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from cairn.format.header import ColumnFamily
from cairn.ids import DEFAULT_STORE
from cairn.reader.spark.logs import ROW_CHECKSUM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cairn.offline.move.target import TargetFamily, TargetStore
    from cairn.reader.spark.schema_files import KeyEncoder

_EVENT_TIME = "__event_time"
# Spark's names in JSON -> its names in text; all others are the same.
_TEXTS: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
}
_COLLATION: Final = re.compile(r"string collate .*")
_LAYOUTS: Final = {"TsPrefix": "TimestampAsPrefix", "TsPostfix": "TimestampAsPostfix"}


def column_families(target: TargetStore) -> dict[str, ColumnFamily]:
    """Return the families of a store by their names; ``default`` has id 0 and is always there."""
    has_checksums = target.conf.flag(ROW_CHECKSUM)
    found: dict[str, ColumnFamily] = {
        DEFAULT_STORE: ColumnFamily(
            id=0,
            name=DEFAULT_STORE,
            multi=False,
            internal=False,
            ordered=False,
            key_type="",
            value_type="",
            key_encoder="NoPrefix",
        )
    }
    for family in target.families:
        id_ = 0 if family.name == DEFAULT_STORE else max(one.id for one in found.values()) + 1
        found[family.name] = _column_family(family, id_, has_checksums=has_checksums)
    return found


def _column_family(family: TargetFamily, id_: int, *, has_checksums: bool) -> ColumnFamily:
    encoder = family.schema.encoder
    encoding = "" if family.form.encoding == "unsaferow" else f"{family.form.encoding}:"
    if has_checksums:
        encoding += "rowChecksum:"
    return ColumnFamily(
        id=id_,
        name=family.name,
        multi=family.form.is_list,
        internal=family.is_internal,
        ordered=encoder.kind != "NoPrefix",
        key_type=_key_type(family.schema.key["fields"]),
        value_type=_struct(family.schema.value["fields"]),
        key_encoder=encoding + _layout(encoder),
    )


def _layout(encoder: KeyEncoder) -> str:
    if encoder.kind == "PrefixScan":
        return f"PrefixScan({encoder.prefix_columns})"
    if encoder.kind == "RangeScan":
        return f"RangeScan({','.join(map(str, encoder.ordinals))})"
    return _LAYOUTS.get(encoder.kind, encoder.kind)


def _key_type(fields: list[dict[str, Any]]) -> str:
    """Return the type of keys; without the event time, which Spark declares only when it reads."""
    if fields and fields[-1]["name"] == _EVENT_TIME:
        fields = fields[:-1]
    return _struct(fields)


def _struct(fields: Iterable[dict[str, Any]]) -> str:
    return f"struct<{','.join(_text(field['type']) for field in fields)}>"


def _text(of: Any) -> str:  # noqa: ANN401 - any JSON
    """Return Spark's simple text of a type, without names."""
    if isinstance(of, str):
        return of if _COLLATION.fullmatch(of) else _TEXTS.get(of, of)
    kind = of["type"]
    if kind == "struct":
        return _struct(of["fields"])
    if kind == "array":
        return f"array<{_text(of['elementType'])}>"
    if kind == "map":
        return f"map<{_text(of['keyType'])},{_text(of['valueType'])}>"
    # A type of a user, whose text is its class without package and suffix.
    name = str(of.get("class") or of.get("pyClass") or "").rpartition(".")[2].rpartition("$")[2]
    return name.removesuffix("Type").removesuffix("UDT").lower()
