"""Versions read by the reader, without an engine: it must find what the engine's model has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rig import STORE

from cairn.checkpoint.stored_versions import StoredVersions
from cairn.reader.stores.base import ReadLimits
from cairn.reader.stores.cairn import CairnRows
from cairn.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

LITTLE_MEMORY = ReadLimits(memory_bytes=4096)


def read_offline(
    url: str,
    checkpoint_format: int,
    version: int,
    checkpoint_id: str | None,
    limits: ReadLimits | None = None,
) -> dict[int, dict[bytes, bytes]]:
    """Return the rows of all families of a version, by family id.

    Checks that keys ascend, and that each key is found alone too.
    """
    with open_store(url, {}) as objects:
        versions = StoredVersions(objects, STORE, checkpoint_format)
        id_ = checkpoint_id if checkpoint_format == 2 else None
        with CairnRows(versions, version, id_, limits) as store:
            result = {}
            for name, family in store.families.items():
                batches = list(store.rows(name))
                for batch in batches:
                    batch.keys.validate(full=True)
                    batch.values.validate(full=True)
                keys = _flat(batch.keys.to_pylist() for batch in batches)
                values = _flat(batch.values.to_pylist() for batch in batches)
                assert keys == sorted(set(keys))
                rows = dict(zip(keys, values, strict=True))
                result[family.family_id] = rows
                for key in [*keys[:2], *keys[-2:]]:
                    assert store.get(name, key) == rows[key]
                    assert store.get(name, key + b"~") == rows.get(key + b"~")
            return result


def _flat(columns: Iterable[Any]) -> list[bytes]:
    return [cell for column in columns for cell in column]
