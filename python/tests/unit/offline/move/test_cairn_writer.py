"""CairnWriter: what it writes is a version that the engine loads and the reader reads."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from move_targets import LISTS, STORE, add_all, family, stored, target
from spark_store_files import row

from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.stored_versions import StoredVersions
from cairn.checkpoint.transfers import TransferResources
from cairn.errors import InternalError
from cairn.format.names import ChangelogName, ManifestName, parse_name
from cairn.location import open_location
from cairn.offline.move import cairn_writer
from cairn.offline.move.cairn_writer import CairnWriter
from cairn.offline.move.family_types import column_families
from cairn.offline.move.target import TargetStore, Written, target_family
from cairn.offline.stores import cairn_stores
from cairn.reader.batch import BatchView
from cairn.reader.rows.stored import StoredRows
from cairn.reader.spark.logs import list_batches
from cairn.reader.stores.base import ReadLimits
from cairn.reader.stores.cairn import CairnRows
from cairn.rocks import RocksMemory
from cairn.storage.base import ObjectStore
from cairn.storage.memory import MemoryStore

SAMPLE = Path(__file__).parents[5] / "examples" / "sample-checkpoint"


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[TransferResources]:
    """Return threads for uploads."""
    with ThreadPoolExecutor(2) as threads:
        cache = SstCache(tmp_path / "cache", 0)
        yield TransferResources(cache=cache, downloads=threads, uploads=threads)


class Writing:
    """Writes stores, and reads them."""

    def __init__(self, objects: MemoryStore, folder: Path, resources: TransferResources) -> None:
        self.objects = objects
        self.folder = folder
        self.resources = resources

    def root(self) -> ObjectStore:
        return self.objects.at(self.objects.object_url(STORE.folder))

    def writer(self, of: TargetStore) -> CairnWriter:
        memory = RocksMemory(8 << 20, 8 << 20)
        return CairnWriter(
            self.root(), of, self.folder / "w", memory, self.resources, work="a move"
        )

    def write(self, of: TargetStore, families: dict[str, dict[bytes, bytes]]) -> Written:
        with self.writer(of) as writer:
            for name, rows in families.items():
                add_all(writer, rows, name)
            written = writer.finish()
        assert not (self.folder / "w").exists()
        return written

    def rows(self, of: TargetStore, written: Written) -> dict[str, dict[bytes, bytes]]:
        versions = StoredVersions(self.root(), STORE, of.checkpoint_format)
        with CairnRows(versions, of.version, written.checkpoint_id, ReadLimits()) as found:
            return {name: dict(pairs(found.rows(name))) for name in found.families}


def pairs(batches: Iterable[StoredRows]) -> Iterator[tuple[Any, Any]]:
    for some in batches:
        yield from zip(some.keys.to_pylist(), some.values.to_pylist(), strict=True)


@pytest.fixture
def writing(objects: MemoryStore, tmp_path: Path, resources: TransferResources) -> Writing:
    """Return what writes stores, and reads them."""
    return Writing(objects, tmp_path, resources)


@pytest.mark.parametrize("checkpoint_format", [1, 2])
@pytest.mark.parametrize("version", [1, 2, 700])
def test_a_version_has_the_rows(writing: Writing, version: int, checkpoint_format: int) -> None:
    """The first version of a query too, whose seed is of version 0."""
    of = target("cairn", version=version, checkpoint_format=checkpoint_format)
    rows = {row(number): row(number, 3) for number in range(5000)}

    written = writing.write(of, {"default": rows})

    assert written.keys == {"default": 5000}
    assert (written.checkpoint_id is None) == (checkpoint_format == 1)
    assert writing.rows(of, written) == {"default": rows}


def test_rows_in_any_order_need_little_memory(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition of gigabytes is sorted on the local disk."""
    monkeypatch.setattr(cairn_writer, "RUN_BYTES", 20_000)
    keys = list(range(20_000))
    random.Random(5).shuffle(keys)
    even = {row(number): row(number, 2) for number in keys}
    uneven = {row(number, 1 + number % 4): row(number, 1 + number % 5) for number in keys}
    of = target("cairn", family("default"), family("other"), version=9, has_families=True)

    written = writing.write(of, {"default": even, "other": uneven})

    assert writing.rows(of, written) == {"default": even, "other": uneven}


def test_families_have_their_kinds(writing: Writing) -> None:
    """Also those without rows: Spark refuses a family that has become another kind."""
    families = [family("$ttl_a", is_internal=True), family("a", LISTS), family("empty")]
    of = target("cairn", *families, version=3, checkpoint_format=2, has_families=True)
    lists = {row(number): b"".join(row(place, 2) for place in range(3)) for number in range(9)}

    written = writing.write(of, {"a": lists})

    versions = StoredVersions(writing.root(), STORE, 2)
    header = versions.read_header(3, written.checkpoint_id).header
    kinds = {one.name: (one.id, one.multi, one.internal) for one in header.column_families}
    assert kinds == {
        "default": (0, False, False),
        "$ttl_a": (1, False, True),
        "a": (2, True, False),
        "empty": (3, False, False),
    }
    assert (header.counts, header.max_cf_id) == ({0: 0, 1: 0, 2: 9, 3: 0}, 3)
    assert writing.rows(of, written)["a"] == lists


def test_a_second_attempt_in_format_1_takes_the_place_of_the_first(writing: Writing) -> None:
    """The command was killed before the logs named the version."""
    of = target("cairn", version=4)
    first, second = ({row(number): row(add, 2) for number in range(9)} for add in (1, 2))
    writing.write(of, {"default": first})

    written = writing.write(of, {"default": second})

    assert writing.rows(of, written) == {"default": second}


def test_a_failure_leaves_no_version(writing: Writing, objects: MemoryStore) -> None:
    """Rows that come twice are a fault of the reader, which nobody must believe."""
    of = target("cairn", version=4)
    rows = {row(number): row(number, 2) for number in range(9)}

    with writing.writer(of) as writer:
        writer.add("default", stored(rows))
        writer.add("default", stored(rows))
        with pytest.raises(InternalError, match="twice"):
            writer.finish()

    names = [parse_name(info.key.removeprefix("state/0/1/")) for info in objects.list("state/")]
    assert not [one for one in names if isinstance(one, (ChangelogName, ManifestName))]


def test_families_are_those_that_the_provider_declares() -> None:
    """Two languages make them: the provider of what Spark declares, a move of Spark's schemas."""
    found = set()
    with open_location(str(SAMPLE)) as objects:
        objects.cleans = False  # nothing is written there
        view = BatchView(objects, list_batches(objects).committed[-1])
        for store in cairn_stores(view):
            with store.open() as root:
                head = store.versions(root).read_header(store.version, store.checkpoint_id)
            operator = view.operator(store.id.operator)
            of = TargetStore(
                provider="cairn",
                store=store.id,
                version=store.version,
                checkpoint_format=2,
                has_families=True,
                families=tuple(target_family(one, "cairn") for one in view.families(operator)),
                conf=view.conf,
            )
            made = column_families(of)
            for stored in head.header.column_families:
                if stored.name != "default":  # which operators with families never use
                    assert replace(made[stored.name], id=stored.id) == stored
                    found.add(stored.name)
    assert {"by_product", "last_orders", "total", "left-keyWithIndexToValue"} < found
