"""Rows of state as the reader meets them: damaged keys, values, lists, and damaged schemas."""

from __future__ import annotations

import copy
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from mutations import mutate_bytes, mutate_json
from target import Target, expect

from cairn.errors import CairnError, DataError
from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.partition_hash import partition_of
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

_ENCODERS: Final = (
    KeyEncoder("NoPrefix"),
    KeyEncoder("PrefixScan", prefix_columns=2),
    KeyEncoder("RangeScan", ordinals=(0, 1)),
    KeyEncoder("TsPrefix"),
    KeyEncoder("TsPostfix"),
)
_COPIES = (1, 3, 300)


def _struct(**types: Any) -> dict[str, Any]:  # noqa: ANN401 - Spark's JSON
    fields = [{"name": name, "type": of, "nullable": True} for name, of in types.items()]
    return {"type": "struct", "fields": fields}


def _array(of: Any) -> dict[str, Any]:  # noqa: ANN401 - Spark's JSON
    return {"type": "array", "elementType": of, "containsNull": True}


_MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
_PLAIN = {"n": "long", "f": "double", "s": "string", "d": "decimal(7,2)", "z": "decimal(38,4)"}
_PLAIN_ROW = [-5, 0.25, "user-1", Decimal("-7.25"), Decimal("12345678901234567890.5")]
_NESTED = {"l": _array("string"), "m": _MAP, "x": _struct(a="integer", b=_array(_struct(c="date")))}
_NESTED_ROW = [["a", None, "abcdefghijk"], [("k", 1), ("j", None)], {"a": 1, "b": [{"c": 5}, None]}]
_RARE = {"i": "interval", "v": "variant", "t": "time(6)", "b": "boolean"}
_RARE_ROW = [(1, 2, 3000), {"value": b"12", "metadata": b"3"}, 5, True]


class StateRows(Target):
    """``RowDecoder`` over mutated keys and values, and over mutated schemas."""

    name, weight = "rows", 20

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        time = {"time": "long"}
        self.tables: dict[str, list[tuple[dict[str, Any], list[Any]]]] = {
            "unsaferow": [
                (_struct(**_PLAIN, **time), [*_PLAIN_ROW, 7]),
                (_struct(n="long", f="float", **_NESTED, **time), [1, None, *_NESTED_ROW, -7]),
                (_struct(n="byte", f="short", **_RARE, **time), [1, -1, *_RARE_ROW, 9]),
                (
                    _struct(n="long", f="long", l=_array(_array("void")), **time),
                    [1, 2, [[None]], 3],
                ),
            ],
            "avro": [
                (_struct(**_PLAIN, **time), [*_PLAIN_ROW, 7]),
                (
                    _struct(n="long", f="long", l=_array("string"), m=_MAP, **time),
                    [1, None, ["a"], [("k", 1)], -7],
                ),
            ],
        }

    def run(self, random: Random) -> None:
        """See ``Target``."""
        encoding: Any = random.choice(("unsaferow", "unsaferow", "avro"))
        schema, row = random.choice(self.tables[encoding])
        encoder = random.choice(_ENCODERS)
        is_bare = encoding == "unsaferow" and random.random() < 0.2
        is_list = not is_bare and random.random() < 0.3
        form = RowForm(encoding, is_bare=is_bare, is_list=is_list)
        whole = FamilySchema("f", schema, schema, encoder)
        key = RowDecoder(whole, form).encode_key(row)
        plain = FamilySchema("f", schema, schema, _ENCODERS[0])
        value = RowDecoder(plain, form).encode_key(row)
        if is_list:
            value = (struct.pack("<i", len(value)) + value) * random.choice((1, 2, 40))
        keys, values = [key] * random.choice(_COPIES), [value]
        values *= len(keys)
        what = random.randrange(10)
        damaged = (
            mutate_bytes(key, [value], random) if what < 4 else key,
            mutate_bytes(value, [key], random) if 4 <= what < 9 else value,
        )
        at = random.randrange(len(keys))
        keys[at], values[at] = damaged
        if what == 9:
            changed = copy.deepcopy(schema)
            changed["fields"] = mutate_json(changed["fields"], random)
            whole = FamilySchema("f", changed, schema, encoder)
        self._read(whole, form, keys, values)

    def _read(
        self, schema: FamilySchema, form: RowForm, keys: list[bytes], values: list[bytes]
    ) -> None:
        stored = StoredRows(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
        try:
            batches = RowDecoder(schema, form).decode(stored)
        except CairnError as error:
            expect(error, DataError)
            return
        for batch in batches[:2]:
            batch.validate(full=True)
            assert batch.num_rows == len(batches[2])
            if batch.num_columns:
                partition_of(batch.columns, 200)
