"""The states of Spark's own tests, written by both writers and read back: no row is lost.

Spark 2.1 to 4.0 wrote them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import UnsupportedStateError
from cairn.ids import StoreId
from cairn.offline.move.forms import converter
from cairn.offline.move.hdfs_writer import HdfsWriter
from cairn.offline.move.rocksdb_writer import RocksDbWriter
from cairn.offline.move.target import TargetFamily, TargetStore
from cairn.reader.batch import BatchView
from cairn.reader.families import Family
from cairn.reader.rows.stored import StoredRows
from cairn.reader.spark.logs import Provider, list_batches
from cairn.reader.stores.base import ReadLimits, StoreRows
from cairn.reader.stores.hdfs import HdfsRows
from cairn.reader.stores.rocksdb import RocksDbRows
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryBucket, MemoryStore

GOLDEN = Path(__file__).resolve().parents[2] / ".build" / "golden-checkpoints"
Rows = Counter[Any]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkpoints: nothing may write into the folder."""
    if not GOLDEN.is_dir():
        raise RuntimeError("there are no checkpoints of Spark's tests: run `make golden`")
    return Path(shutil.copytree(GOLDEN, tmp_path_factory.mktemp("golden") / "copy"))


def newest_batches(golden: Path) -> Iterator[BatchView]:
    """Yield the newest batch of each checkpoint that has a committed one."""
    for offsets in sorted(golden.rglob("offsets")):
        objects = LocalStore(str(offsets.parent))
        if committed := list_batches(objects).committed:
            yield BatchView(objects, committed[-1])


def counted(
    batches: Iterator[StoredRows], convert: Callable[[StoredRows], StoredRows] = lambda rows: rows
) -> Rows:
    """Return rows, and how often each is there."""
    found: Rows = Counter()
    for rows in batches:
        some = convert(rows)
        found.update(zip(some.keys.to_pylist(), some.values.to_pylist(), strict=True))
    return found


@pytest.mark.parametrize(
    ("provider", "counts"), [("rocksdb", (218, 0, 177)), ("hdfs", (213, 5, 175))]
)
def test_all_rows_come_back(
    golden: Path, tmp_path: Path, provider: Provider, counts: tuple[int, int, int]
) -> None:
    """A state of years ago would lose rows on its way to another provider."""
    moved = refused = rows = 0
    for view in newest_batches(golden):
        for operator in view.operators:
            for family in view.families(operator):
                if family.schema is None or family.failure is not None:
                    continue
                for partition in range(family.partitions):
                    try:
                        found, expected = moved_rows(view, family, partition, provider, tmp_path)
                    except UnsupportedStateError:
                        refused += 1
                        continue
                    assert found == expected, (view.objects.url, family.name, partition)
                    moved, rows = moved + 1, rows + sum(expected.values())

    assert (moved, refused, rows) == counts


def moved_rows(
    view: BatchView, family: Family, partition: int, provider: Provider, folder: Path
) -> tuple[Rows, Rows]:
    """Write a family as the only one of a store; return what is read back, and what was read."""
    assert family.schema is not None
    form = replace(family.form, is_bare=provider == "hdfs")
    to = converter(family.form, form, family.schema)
    back = converter(form, family.form, family.schema)
    objects = MemoryStore("memory://moved", MemoryBucket())
    target = TargetStore(
        provider,
        StoreId(family.operator.id, partition, family.store.name),
        view.batch + 1,
        1,
        family.operator.has_families,
        (TargetFamily(family.family, family.schema, form, family.is_internal),),
        view.conf,
    )
    writer = (HdfsWriter if provider == "hdfs" else RocksDbWriter)(objects, target, folder / "w")
    with writer, family.place.open(partition, family.list_families, ReadLimits()) as source:
        for some in source.rows(family.family):
            writer.add(family.family, to(some))
        writer.finish()
        expected = counted(source.rows(family.family))
    store: StoreRows = (
        HdfsRows(objects, target.store.folder, target.version)
        if provider == "hdfs"
        else RocksDbRows(
            objects,
            target.store.folder,
            target.version,
            list_families=family.list_families,
            list_delimiter=view.conf.list_delimiter,
        )
    )
    with store:
        return counted(store.rows(family.family), back), expected
