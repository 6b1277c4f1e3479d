"""An aggregation without grouping keys has one store, however many partitions the query has."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_checkpoint import RunningCheckpoint, age
from small_checkpoint import PARTITIONS

import cairn

BATCHES = 3


@pytest.fixture(params=[1, 2], ids=["format1", "format2"])
def total(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RunningCheckpoint:
    """Return a query whose only row has no key."""
    monkeypatch.setattr("small_checkpoint.key_row", lambda _: b"")
    query = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", request.param)
    schema = query.folder / "state/0/0/_metadata/schema"
    data = schema.read_bytes()
    length = int.from_bytes(data[8:10], "big")
    key = json.dumps({"type": "struct", "fields": []}).encode()
    schema.write_bytes(data[:8] + struct.pack(">h", len(key)) + key + data[10 + length :])
    for batch in range(BATCHES):
        query.commit({0: (batch, batch)}, lambda _: 0)
    query.stop()
    for partition in range(1, PARTITIONS):
        shutil.rmtree(query.folder / f"state/0/{partition}")
    for commit in (query.folder / "commits").iterdir():
        head, _, entry = commit.read_bytes().partition(b"\n")
        fields = json.loads(entry)
        if fields.get("stateUniqueIds"):
            fields["stateUniqueIds"]["0"] = fields["stateUniqueIds"]["0"][:1]
            commit.write_bytes(head + b"\n" + json.dumps(fields).encode())
        age(commit)
    return query


def rows_of(place: Path) -> list[tuple[int, int]]:
    with cairn.open_checkpoint(str(place)) as checkpoint:
        rows = checkpoint.state().to_table().to_pylist()
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []
    return [(row["max"], row["max_2"]) for row in rows]


@pytest.mark.parametrize("is_saved", [False, True], ids=["batch", "savepoint"])
def test_it_is_cloned(total: RunningCheckpoint, tmp_path: Path, *, is_saved: bool) -> None:
    """The other partitions have no store to copy."""
    name = None
    if is_saved:
        name = cairn.create_savepoint(str(total.folder)).name
    with cairn.clone(str(total.folder), to=str(tmp_path / "clone"), savepoint=name) as plan:
        plan.apply()

    assert rows_of(tmp_path / "clone") == [(BATCHES - 1, BATCHES - 1)]


@pytest.mark.parametrize("mode", ["replace", "merge"])
def test_its_row_is_replaced(total: RunningCheckpoint, tmp_path: Path, mode: str) -> None:
    """And no other store is made."""
    file = tmp_path / "one.parquet"
    pq.write_table(pa.table({"max": [5], "max_2": [6]}), file)

    with cairn.import_state(str(total.folder), files=str(file), operator=0, mode=mode) as plan:
        assert plan.partitions == (0,)
        plan.apply(processes=1)

    assert rows_of(total.folder) == [(5, 6)]
    assert not (total.folder / "state/0/1").exists()
    entry = (total.folder / f"commits/{BATCHES}").read_bytes().partition(b"\n")[2]
    ids = json.loads(entry).get("stateUniqueIds")
    assert ids is None or len(ids["0"]) == 1


def test_it_costs_one_store(total: RunningCheckpoint) -> None:
    """Not one per partition of the query."""
    with cairn.open_checkpoint(str(total.folder)) as checkpoint:
        facts = checkpoint.cost(interval_s=60).facts

    assert [one.value for one in facts if one.name == "stores"] == ["1"]
