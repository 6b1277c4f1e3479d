"""The checkpoints of Spark's own tests: every stored version of every store, read whole.

Spark 2.1 to 4.0 wrote them, with both of its providers, with and without checkpoint ids.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn.reader.stores.base import DEFAULT_FAMILY, StoreRows
from cairn.reader.stores.hdfs import HdfsRows
from cairn.reader.stores.rocksdb import RocksDbRows
from cairn.storage.base import ObjectStore
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryBucket, MemoryStore

GOLDEN = Path(__file__).resolve().parents[2] / ".build" / "golden-checkpoints"
FILE = re.compile(r"([0-9]+)(?:_([^.]+))?\.(snapshot|delta|zip|changelog)")
SNAPSHOTS = {"snapshot", "zip"}

Rows = dict[tuple[str, bytes], bytes]


@dataclass(frozen=True)
class StoredVersion:
    """A version of a store of which at least one file is there."""

    folder: str
    version: int
    checkpoint_id: str | None
    kinds: frozenset[str]

    def name(self, kind: str) -> str:
        """Return the name of one of its files."""
        id_ = f"_{self.checkpoint_id}" if self.checkpoint_id else ""
        return f"{self.folder}/{self.version}{id_}.{kind}"

    def open(self, objects: ObjectStore) -> StoreRows:
        """Return the store at this version."""
        if self.kinds & {"snapshot", "delta"}:
            return HdfsRows(objects, self.folder, self.version)
        return RocksDbRows(objects, self.folder, self.version, checkpoint_id=self.checkpoint_id)


@pytest.fixture(scope="module")
def golden() -> Path:
    """Return the folder of the checkpoints."""
    if not GOLDEN.is_dir():
        raise RuntimeError("there are no checkpoints of Spark's tests: run `make golden`")
    return GOLDEN


def stored_versions(root: Path) -> Iterator[StoredVersion]:
    """Yield all versions of all stores."""
    kinds: dict[tuple[str, int, str | None], set[str]] = {}
    for path in sorted(root.rglob("*")):
        if match := FILE.fullmatch(path.name):
            folder = path.parent.relative_to(root).as_posix()
            kinds.setdefault((folder, int(match[1]), match[2]), set()).add(match[3])
    for (folder, version, checkpoint_id), found in kinds.items():
        yield StoredVersion(folder, version, checkpoint_id, frozenset(found))


def rows_of(store: StoreRows) -> Rows:
    """Return the rows of all families; each key must come once."""
    rows: Rows = {}
    for family in store.families:
        for batch in store.rows(family):
            keys, values = batch.keys.to_pylist(), batch.values.to_pylist()
            for key, value in zip(keys, values, strict=True):
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                assert (family, key) not in rows
                rows[family, key] = value
    return rows


def without(objects: ObjectStore, folder: str, name: str) -> MemoryStore:
    """Return a copy of a store's files that lacks one."""
    copy = MemoryStore("memory://golden", MemoryBucket())
    for info in objects.list(f"{folder}/"):
        if info.key != name:
            copy.put(info.key, objects.get(info.key).data)
    return copy


def test_every_version_is_read_and_every_snapshot_has_the_rows_that_spark_counted(
    golden: Path,
) -> None:
    """A checkpoint of an older Spark would be refused, or lack rows without a sign."""
    objects = LocalStore(str(golden))
    read = counted = 0
    for stored in stored_versions(golden):
        with stored.open(objects) as store:
            rows = rows_of(store)
            internal = {name for name, one in store.families.items() if one.is_internal}
            for family, key in list(rows)[:2]:
                assert store.get(family, key) == rows[family, key]
        read += 1
        if "zip" in stored.kinds:
            with zipfile.ZipFile(golden / stored.name("zip")) as archive:
                metadata = json.loads(archive.read("metadata").partition(b"\n")[2])
            of_operator = [key for key in rows if key[0] in internal]
            assert len(rows) - len(of_operator) == metadata["numKeys"], stored
            assert len(of_operator) == metadata.get("numInternalKeys", 0), stored
            counted += 1

    assert (read, counted) == (913, 204)


def test_every_snapshot_equals_the_replay_of_the_changes_up_to_it(golden: Path) -> None:
    """A version would have other rows before its snapshot is stored than after."""
    objects = LocalStore(str(golden))
    compared = 0
    for stored in stored_versions(golden):
        snapshot = next(iter(stored.kinds & SNAPSHOTS), None)
        if snapshot is None or stored.kinds <= SNAPSHOTS:
            continue
        with stored.open(objects) as store:
            rows, families = rows_of(store), set(store.families)
        if stored.version == 1 and families != {DEFAULT_FAMILY}:
            continue  # only this snapshot has the names of the families
        replayed = without(objects, stored.folder, stored.name(snapshot))
        with stored.open(replayed) as store:
            assert rows_of(store) == rows, stored
        compared += 1

    assert compared == 296
