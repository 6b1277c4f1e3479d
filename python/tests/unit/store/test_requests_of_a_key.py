"""One key of a state, read without an engine: the requests that docs/reader.md promises."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from rig import Rig, family

import cairn
from cairn.cli.main import main
from cairn.location import open_location
from cairn.reader.rows.partition_hash import partition_of
from cairn.reader.state import State
from cairn.storage.base import ObjectStore, Tally

FAMILY = family(0, multi=False)
PARTITIONS, PARTITION = 4, 3
SNAPSHOT, NEWEST = 6, 9
RUNS, CHANGELOGS = 3, NEWEST - SNAPSHOT
CONF = {
    "spark.sql.streaming.stateStore.providerClass": "io.cairn.spark.CairnStateStoreProvider",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
}
_NUMBERS = pa.array(range(20_000), pa.int64())
*USERS, ABSENT = (partition_of([_NUMBERS], PARTITIONS) == PARTITION).nonzero()[0].tolist()


class Query:
    """A query with one store: its state, and Spark's logs beside it."""

    def __init__(self, folder: Path, local: Path, min_deltas: int = 2) -> None:
        self.folder = folder
        self.random = Random(1)
        self.rows: dict[int, int] = {}
        self.id: str | None = None
        conf = {"minDeltasForSnapshot": min_deltas}
        self.rig = Rig(local, str(folder / f"state/0/{PARTITION}"), 2, conf)
        operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}}
        store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": PARTITIONS}
        metadata = json.dumps(operator | {"stateStoreInfo": [store]})
        self._put("state/0/_metadata/metadata", b"v1\n" + metadata.encode())
        schema = [_schema(user="long"), _schema(number="long", data="binary")]
        self._put("state/0/0/_metadata/schema", struct.pack(">h", 2) + b"v2" + b"".join(schema))
        self.rig.load(0, None)

    def run(self, version: int, users: list[int]) -> None:
        """Commit a batch that writes these users, with values that no compression shortens."""
        self.rig.write([(1, 0, _key(user), self._value(version), 0) for user in users])
        self.id = self.rig.commit(version, self.id, [FAMILY])["checkpoint_id"]
        self.rows |= dict.fromkeys(users, version)
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": CONF}
        self._put(f"offsets/{version - 1}", b"v1\n" + json.dumps(metadata).encode() + b"\n-")
        ids = {"0": [[f"{self.id}"]] * PARTITIONS}
        commit = json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": ids})
        self._put(f"commits/{version - 1}", b"v2\n" + commit.encode())
        self.rig.load(version, self.id)

    def _value(self, version: int) -> bytes:
        data = self.random.randbytes(400)
        head = struct.pack("<qqq", 0, version, 24 << 32 | len(data))
        return b"\0" + head + data

    def _put(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _key(user: int) -> bytes:
    return b"\0" + struct.pack("<qq", 0, user)


def _schema(**columns: str) -> bytes:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    text = json.dumps({"type": "struct", "fields": fields}).encode()
    return struct.pack(">ih", 1, len(text)) + text


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Query:
    """Return a query whose newest snapshot has three runs, with three changelogs after it.

    Users have their newest row in each run and in each changelog.
    """
    folder = tmp_path_factory.mktemp("query")
    query = Query(folder / "ck", folder / "local")
    for version in range(1, 7):
        if version % 2 == 0:
            query.run(version, USERS[:1])
            query.rig.maintain()
            continue
        query.run(version, USERS[version // 2 :: version])
        if version == 1:
            query.rig.until_written(version)
            query.rig.compact()
    for version in range(7, NEWEST + 1):
        query.run(version, USERS[version : version + 1])
    query.rig.crash()
    return query


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return the counts of requests by their kind, those to all folders of a checkpoint."""
    counts: Counter[str] = Counter()

    class Counting(Tally):
        def add(self, api: str, requests: int) -> None:
            counts[api] += requests

    def opened(*arguments: Any) -> ObjectStore:  # noqa: ANN401
        objects = open_location(*arguments)
        objects.tally = Counting()
        return objects

    monkeypatch.setattr("cairn.reader.checkpoint.open_location", opened)
    return counts


def number_of(state: State, user: int) -> list[int]:
    """Return the version that wrote the row of a user last, if there is one."""
    return [row["number"] for row in state.get({"user": user}).to_pylist()]


def test_the_columns_of_a_state_cost_six_requests(query: Query, counts: Counter[str]) -> None:
    """Two listings: of commits, and of the operator's metadata."""
    cairn.open_checkpoint(str(query.folder)).state()

    assert counts == {"ListObjectsV2": 2, "GetObject": 4}


def test_a_key_costs_a_request_per_changelog_and_per_run_and_two(
    query: Query, counts: Counter[str]
) -> None:
    """In whichever run it is: the filters of the others exclude almost all keys."""
    state = cairn.open_checkpoint(str(query.folder)).state()
    users = [*USERS[:200], *USERS[-200:]]
    found = {user: number_of(state, user) for user in USERS[:CHANGELOGS]}  # not counted
    per_key: dict[int, int] = {}
    for user in users:
        counts.clear()
        found[user] = number_of(state, user)
        per_key[user] = counts.total()

    assert found == {user: [query.rows[user]] for user in found}
    in_a_changelog = [user for user in users if query.rows[user] > SNAPSHOT]
    assert len(in_a_changelog) == CHANGELOGS
    assert {per_key.pop(user) for user in in_a_changelog} == {1, CHANGELOGS}
    assert {query.rows[user] for user in per_key} == {1, 3, 5, 6}
    bound = CHANGELOGS + RUNS + 2
    above = [requests - bound for requests in per_key.values() if requests > bound]
    assert sum(above) <= len(per_key) // 20
    assert Counter(per_key.values()).most_common(1)[0][0] == bound


def test_an_absent_key_costs_one_request_less(query: Query, counts: Counter[str]) -> None:
    """No filter has it."""
    state = cairn.open_checkpoint(str(query.folder)).state()
    counts.clear()

    assert number_of(state, ABSENT) == []
    assert counts.total() == CHANGELOGS + RUNS + 1


def test_the_command_sends_no_other_requests(query: Query, counts: Counter[str]) -> None:
    """What finds the stores is not read a second time."""
    user = USERS[20]
    key = json.dumps({"user": user})
    result = CliRunner().invoke(main, ["get", str(query.folder), "--key", key, "-o", "ndjson"])

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["value"]["number"] == query.rows[user]
    assert counts.total() == 6 + CHANGELOGS + RUNS + 2


@pytest.fixture
def long_lineage(tmp_path: Path) -> Query:
    """Return a query of twelve versions, whose only snapshot was stored after the last commit."""
    query = Query(tmp_path / "ck", tmp_path / "local", min_deltas=12)
    for version in range(1, 13):
        query.run(version, USERS[version : version + 20])
    query.rig.maintain()
    query.rig.crash()
    return query


def test_a_snapshot_that_no_changelog_names_is_found(
    long_lineage: Query, counts: Counter[str]
) -> None:
    """A listing replaces eleven changelogs."""
    state = cairn.open_checkpoint(str(long_lineage.folder)).state()
    counts.clear()

    assert number_of(state, USERS[5]) == [5]
    assert counts == {"ListObjectsV2": 1, "GetObject": 3}


def _lose(objects: Path) -> None:
    (sst,) = objects.glob("sst/*")
    sst.unlink()


def _renew(objects: Path) -> None:
    (manifest,) = objects.glob("snapshot/*.json")
    fields = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps(fields | {"format": 2}))


@pytest.mark.parametrize("spoil", [_lose, _renew])
def test_a_listed_snapshot_that_cannot_be_read_is_not_needed(
    long_lineage: Query, spoil: Callable[[Path], None]
) -> None:
    """A file of it is gone, or a newer Cairn has written it: the changelogs have the same rows."""
    spoil(long_lineage.folder / f"state/0/{PARTITION}")
    state = cairn.open_checkpoint(str(long_lineage.folder)).state()

    assert number_of(state, USERS[5]) == [5]
    rows = state.reader(partitions=[PARTITION]).read_all().to_pylist()
    assert {row["user"]: row["number"] for row in rows} == long_lineage.rows
