"""A small checkpoint of an aggregation under the HDFS-backed provider, made without Spark."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from spark_store_files import Change, compressed, plain

from cairn.reader.rows import partition_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONF = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
    "state.HDFSBackedStateStoreProvider",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
}
PARTITIONS = 3


def _field(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


_VALUE = [_field("max", "long"), _field("max", "long")]


def key_row(user: float | None) -> bytes:
    """Return the UnsafeRow of a key: a long, a double, or a calendar interval that is null."""
    if user is None:
        # Spark leaves in the place of the interval what its buffer had there.
        return struct.pack("<qII", 1, 16, 16) + b"of another row.."
    return struct.pack("<qd" if isinstance(user, float) else "<qq", 0, user)


def value_row(first: int, second: int) -> bytes:
    """Return the UnsafeRow of a value."""
    return struct.pack("<qqq", 0, first, second)


def partition_of_user(user: float | None) -> int:
    """Return the partition of a key."""
    kind = pa.float64() if isinstance(user, float) else pa.int64()
    return int(partition_hash.partition_of([pa.array([user], kind)], PARTITIONS)[0])


class SmallCheckpoint:
    """Writes batches: of each the users that it changes, with their two values or ``None``.

    Args:
        folder: of the checkpoint.
        conf: settings in addition to ``CONF``.
        key_type: Spark's name of the type of the key: one of 64 bits, or ``interval``.
        partitions: of the store.
        value_type: Spark's type of the only column ``value``; ``None``: two longs named ``max``.
    """

    def __init__(
        self,
        folder: Path,
        conf: Mapping[str, str] | None = None,
        key_type: str = "long",
        partitions: int = PARTITIONS,
        value_type: object = None,
    ) -> None:
        self.folder = folder
        self.rows: list[dict[Any, tuple[int, int]]] = []
        self._conf = CONF | dict(conf or {})
        self._put("metadata", b'{"id":"8a6f2c1e-0000-4000-8000-000000000000"}')
        operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}}
        store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
        metadata = json.dumps(operator | {"stateStoreInfo": [store]})
        self._put("state/0/_metadata/metadata", b"v1\n" + metadata.encode())
        self.declare({"user": key_type}, _VALUE if value_type is None else {"value": value_type})

    def declare(
        self, key: Mapping[str, Any], value: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> None:
        """Write the schema of the rows, whose bytes stay as they are.

        Args:
            key: the columns of the keys: Spark's types by name.
            value: those of the values; as Spark's fields, if two have one name.
        """
        parts = b""
        for one in (key, value):
            fields = [_field(*pair) for pair in one.items()] if isinstance(one, Mapping) else one
            text = json.dumps({"type": "struct", "fields": fields})
            parts += struct.pack(">ih", 1, len(text)) + text.encode()
        self._put("state/0/0/_metadata/schema", struct.pack(">h", 2) + b"v2" + parts)

    def commit(
        self,
        changes: Mapping[Any, tuple[int, int] | None],
        partition_of: Callable[[Any], int] = partition_of_user,
    ) -> None:
        """Write the next batch.

        Args:
            changes: of the users.
            partition_of: returns where the rows of a user go.
        """
        batch = len(self.rows)
        rows = dict(self.rows[-1]) if self.rows else {}
        by_partition: dict[int, list[Change]] = {number: [] for number in range(PARTITIONS)}
        for user, value in changes.items():
            target = by_partition[partition_of(user)]
            if value is None:
                rows.pop(user, None)
                target.append(("delete", key_row(user), b""))
            else:
                rows[user] = value
                target.append(("put", key_row(user), value_row(*value)))
        self.plan(batch)
        self._commit(batch, by_partition)
        self.rows.append(rows)

    def commit_stored(self, values: Mapping[int, bytes]) -> None:
        """Write the next batch: UnsafeRows of values of ``value_type``, by their users."""
        by_partition: dict[int, list[Change]] = {number: [] for number in range(PARTITIONS)}
        for user, value in values.items():
            by_partition[partition_of_user(user)].append(("put", key_row(user), value))
        batch = len(self.rows)
        self.plan(batch)
        self._commit(batch, by_partition)
        self.rows.append({})

    def _commit(self, batch: int, by_partition: Mapping[int, list[Change]]) -> None:
        """Write what a batch changes, and its entry of the commit log."""
        for partition, writes in by_partition.items():
            self._put(f"state/0/{partition}/{batch + 1}.delta", compressed(plain(writes)))
        self.log_commit(batch)

    def log(self, batch: int, ids: object = None) -> None:
        """Write the entries of a batch into both logs; ``ids``: see ``log_commit``."""
        self.plan(batch)
        self.log_commit(batch, ids)

    def plan(self, batch: int) -> None:
        """Write the entry of a batch into the offset log."""
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": self._conf}
        self._put(f"offsets/{batch}", b"v1\n" + json.dumps(metadata).encode() + b"\n-")

    def log_commit(self, batch: int, ids: object = None) -> None:
        """Write the entry of a batch into the commit log.

        Args:
            batch: its number.
            ids: of the stores, in checkpoint format 2.
        """
        commit: dict[str, object] = {"nextBatchWatermarkMs": batch}
        version = b"v1\n"
        if ids is not None:
            commit["stateUniqueIds"], version = ids, b"v2\n"
        self._put(f"commits/{batch}", version + json.dumps(commit).encode())

    def _put(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        # As Spark and Cairn do: who looks meanwhile sees the whole file or none.
        unfinished = path.with_name(f".{path.name}.tmp")
        unfinished.write_bytes(data)
        unfinished.replace(path)
