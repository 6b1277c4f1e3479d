"""Targets of writers in tests: stores of number keys, and what a writer of them is given."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cairn.format.spark_log import OffsetEntry
from cairn.ids import StoreId
from cairn.offline.move.target import StateWriter, TargetFamily, TargetStore
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.logs import CODEC, MERGE_OPERATOR, ROW_CHECKSUM, Provider, StateConf
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder

STORE = StoreId(0, 1)
SHORT_NAMES = {
    "codec": CODEC,
    "checksums": ROW_CHECKSUM,
    "merge_operator": MERGE_OPERATOR,
    "counts_rows": "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows",
}
BARE = RowForm("unsaferow", is_bare=True, is_list=False)
VERSIONED = RowForm("unsaferow", is_bare=False, is_list=False)
LISTS = RowForm("unsaferow", is_bare=False, is_list=True)
NOTHING: dict[str, Any] = {"type": "struct", "fields": []}


def conf_of(**settings: str) -> StateConf:
    """Return the settings of a batch, by ``SHORT_NAMES``."""
    conf = {SHORT_NAMES[name]: value for name, value in settings.items()}
    return StateConf(OffsetEntry(1, 0, 0, conf, (), {}), "memory://checkpoint/offsets/6")


def family(name: str, form: RowForm = VERSIONED, *, is_internal: bool = False) -> TargetFamily:
    """Return a family; no writer looks at its types."""
    schema = FamilySchema(name, NOTHING, NOTHING, KeyEncoder("NoPrefix"))
    return TargetFamily(name, schema, form, is_internal)


def target(
    provider: Provider,
    *families: TargetFamily,
    version: int = 7,
    checkpoint_format: int = 1,
    has_families: bool = False,
    **settings: str,
) -> TargetStore:
    """Return a store at a version."""
    return TargetStore(
        provider,
        STORE,
        version,
        checkpoint_format,
        has_families,
        families or (family("default", BARE if provider == "hdfs" else VERSIONED),),
        conf_of(**settings),
    )


def stored(rows: dict[bytes, bytes]) -> StoredRows:
    """Return rows as a reader gives them."""
    return StoredRows(
        pa.array(list(rows), pa.large_binary()), pa.array(list(rows.values()), pa.large_binary())
    )


def add_all(
    writer: StateWriter, rows: dict[bytes, bytes], name: str = "default", size: int = 1000
) -> None:
    """Give rows to a writer, some at a time."""
    keys = list(rows)
    for start in range(0, len(keys), size):
        writer.add(name, stored({key: rows[key] for key in keys[start : start + size]}))
