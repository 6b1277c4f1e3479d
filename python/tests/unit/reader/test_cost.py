"""`Checkpoint.cost`: what is measured is exact, and requests follow from what an event needs."""

from __future__ import annotations

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_checkpoint import PARTITIONS, SmallCheckpoint
from spark_store_files import Change, compressed, lineage, plain, tagged, text

import cairn
from cairn.errors import ConfigError, NotThereError
from cairn.format.changelog import CHANGELOG_SCHEMA, encode
from cairn.format.header import Base, ChangelogHeader, ColumnFamily
from cairn.ids import Attempt, CheckpointId, StoreId, VersionRef
from cairn.reader.cost import MONTH_S, Cost, CostPart
from cairn.reader.idle import empty_share
from cairn.reader.prices import Prices, Requests, default_prices
from cairn.reader.request_rates import FileManager, log_file, state_file, upload
from cairn.storage.memory import MemoryStore

REPOSITORY = Path(__file__).resolve().parents[4]
SAMPLE = REPOSITORY / "examples" / "sample-checkpoint"
COUNTED = REPOSITORY / "benchmarks" / "results" / "s3-requests.json"


@pytest.fixture
def written(tmp_path: Path) -> SmallCheckpoint:
    """Return the writer of a checkpoint with four batches, of which one writes to all stores."""
    written = SmallCheckpoint(tmp_path / "ck")
    written.commit({user: (user, user) for user in range(20)})
    for _ in range(3):
        written.commit({})
    return written


def cost_of(folder: Path, *, prices: Prices | None = None, interval_s: float | None = 60.0) -> Cost:
    """Return the cost of a checkpoint."""
    with cairn.open_checkpoint(str(folder)) as checkpoint:
        return checkpoint.cost(prices=prices, interval_s=interval_s)


def part(cost: Cost, name: str) -> CostPart:
    """Return a part of it."""
    (found,) = (one for one in cost.parts if one.part == name)
    return found


def fact(cost: Cost, name: str) -> tuple[str, str]:
    """Return the value of a fact, and how it is known."""
    (found,) = (one for one in cost.facts if one.name == name)
    return found.value, found.source


def advice(cost: Cost) -> list[str]:
    """Return the names of the advice."""
    return [one.name for one in cost.advice]


# -- objects and bytes ---------------------------------------------------------------------------


def test_objects_and_bytes_are_those_of_the_folder() -> None:
    """A total that lacks objects would be less than the bill."""
    cost = cost_of(SAMPLE)

    files = [one for one in SAMPLE.rglob("*") if one.is_file()]
    total = part(cost, "total")
    assert total.objects == len(files)
    assert total.bytes == sum(one.stat().st_size for one in files)
    changelogs = list(SAMPLE.glob("state/*/*/changelog/*"))
    assert part(cost, "commits").objects == len(changelogs)
    assert part(cost, "commits").bytes == sum(one.stat().st_size for one in changelogs)
    assert part(cost, "snapshots").objects == len(list(SAMPLE.glob("state/*/*/s*/*")))
    assert part(cost, "other").objects == 0


def test_what_is_nobodys_is_shown_apart(tmp_path: Path) -> None:
    """Someone's copy of a file is paid for as well."""
    copy = tmp_path / "ck"
    shutil.copytree(SAMPLE, copy)
    (copy / "state/0/0/changelog/copy.arrow").write_bytes(b"12345")
    (copy / "notes.txt").write_bytes(b"1")

    other = part(cost_of(copy), "other")

    assert (other.objects, other.bytes) == (2, 6)


# -- per batch -----------------------------------------------------------------------------------


def test_commits_of_cairn_are_measured_by_what_they_left() -> None:
    """In format 2 a store without writes sends nothing: the price follows the stores that wrote."""
    cost = cost_of(SAMPLE, interval_s=None)

    changelogs = len(list(SAMPLE.glob("state/*/*/changelog/*")))
    commits = part(cost, "commits")
    assert commits.requests == Requests(put=changelogs / 9)
    assert commits.requests_are == "measured"
    assert part(cost, "idle commits").requests.count == 0
    assert fact(cost, "idle_share") == (f"{1 - changelogs / 36:.3f}", "measured")
    assert fact(cost, "snapshots_per_batch") == ("0.444", "measured")


def test_the_interval_is_that_of_sparks_log() -> None:
    """The times of the files are those of their copy into a clone of the repository."""
    cost = cost_of(SAMPLE, interval_s=None)

    times = [
        json.loads((SAMPLE / f"offsets/{batch}").read_text().splitlines()[1])["batchTimestampMs"]
        for batch in range(9)
    ]
    gaps = sorted(after - before for before, after in pairwise(times))
    median = (gaps[3] + gaps[4]) / 2000
    assert fact(cost, "interval_s") == (f"{median:.3f}", "measured")
    assert cost.batches_per_month == pytest.approx(MONTH_S / median)


def test_without_times_the_interval_must_be_given(written: SmallCheckpoint) -> None:
    """A guess would be a price that nobody can check."""
    with pytest.raises(ConfigError, match="how long it is between two batches") as failure:
        cost_of(written.folder, interval_s=None)

    assert "--interval" in str(failure.value)


def test_idle_commits_of_spark_are_found(written: SmallCheckpoint) -> None:
    """Three of four batches write a file without rows per partition: that is where money goes."""
    cost = cost_of(written.folder)

    idle = part(cost, "idle commits")
    assert (idle.objects, part(cost, "commits").objects) == (3 * PARTITIONS, PARTITIONS)
    assert idle.bytes == 3 * PARTITIONS * len(compressed(plain([])))
    file = state_file("rename", is_snapshot=False)
    assert idle.requests.count == pytest.approx(PARTITIONS * 0.75 * file.count)
    assert fact(cost, "idle_share") == ("0.750", "measured")
    assert {"fewer-partitions", "cairn-provider", "file-manager"} <= set(advice(cost))


def test_a_long_history_is_sampled(written: SmallCheckpoint) -> None:
    """Thousands of stores must not mean hundreds of thousands of requests."""
    for _ in range(150):
        written.commit({})

    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        cost = checkpoint.cost(interval_s=60)
        gets = checkpoint.objects.request_counts()["GetObject"]

    assert 200 <= gets < 420
    assert fact(cost, "idle_share")[1] == "estimated"
    assert float(fact(cost, "idle_share")[0]) == pytest.approx(153 / 154, abs=0.01)


def test_files_with_checksums_are_requests_too(written: SmallCheckpoint) -> None:
    """Spark 4.1 writes two files where Spark 4.0 wrote one."""
    before = part(cost_of(written.folder), "idle commits").requests
    for file in written.folder.glob("state/0/*/*.delta"):
        file.with_name(f"{file.name}.crc").write_bytes(b"{}")

    cost = cost_of(written.folder)

    assert part(cost, "idle commits").requests.count == pytest.approx(2 * before.count)
    assert fact(cost, "idle_share") == ("0.750", "measured")


def test_zips_of_a_store_without_changelogs_are_its_commits(written: SmallCheckpoint) -> None:
    """Spark's RocksDB provider uploads a snapshot at each commit unless it has changelogs."""
    offsets = written.folder / "offsets"
    for entry in offsets.iterdir():
        entry.write_text(entry.read_text().replace("HDFSBackedState", "RocksDBState"))
    for delta in written.folder.glob("state/0/*/*.delta"):
        delta.rename(delta.with_suffix(".zip"))
        (delta.parent / "SSTs").mkdir(exist_ok=True)
        (delta.parent / "SSTs" / f"{delta.stem}.sst").write_bytes(b"sst")

    zips = cost_of(written.folder)
    for file in written.folder.glob("state/0/*/*.zip"):
        file.with_suffix(".changelog").write_bytes(compressed(plain([])))
    both = cost_of(written.folder)

    commit = state_file("rename", is_snapshot=False)
    assert part(zips, "commits").objects == 4 * PARTITIONS
    assert part(zips, "commits").requests.put == pytest.approx(PARTITIONS * (commit.put + 1))
    assert part(both, "idle commits").objects == 4 * PARTITIONS
    assert part(both, "snapshots").objects == 2 * 4 * PARTITIONS
    assert fact(both, "snapshots_per_batch") == ("3.000", "measured")


def test_the_figures_are_those_that_were_counted() -> None:
    """The benchmark writes its counts into a file; a figure that differs from it has no source."""
    counts = json.loads(COUNTED.read_text())["counts"]

    managers: dict[FileManager, str] = {"rename": "rocksdb", "abortable": "rocksdb_abortable"}
    for manager, provider in managers.items():
        counted = counts[provider]
        stores = counted["batches"] * 4
        for kind, requests, events in (
            ("commit", state_file(manager, is_snapshot=False), stores),
            ("elsewhere", log_file(manager), counted["batches"] * 3),
        ):
            for name, number in counted[kind].items():
                field = name.removesuffix("Object").removesuffix("ObjectsV2").lower()
                assert getattr(requests, field) == pytest.approx(number / events), (manager, name)
        snapshots = counted["snapshot"]["PutObject"] / 2  # a zip and a file each
        snapshot = state_file(manager, is_snapshot=True) + upload(1)
        assert snapshot.count * snapshots == sum(counted["snapshot"].values())


# -- commits without rows ------------------------------------------------------------------------


def cairn_changelog(rows: int) -> bytes:
    """Return a changelog of Cairn with some rows."""
    ref = VersionRef(1, CheckpointId("u" + "1" * 32))
    family = ColumnFamily(0, "default", False, False, False, "int", "int", "NoPrefix")  # noqa: FBT003
    attempt = Attempt("run", 1, 2, 3, 4)
    header = ChangelogHeader(
        StoreId(0, 3), ref, attempt, Base(0, None), (ref,), {0: rows}, (family,), 0, 5
    )
    columns: list[Any] = [
        [0] * rows,
        [0] * rows,
        [b"%d" % row for row in range(rows)],
        [b"v"] * rows,
    ]
    arrays: list[Any] = [
        pa.array(column, field.type)
        for column, field in zip(columns, CHANGELOG_SCHEMA, strict=True)
    ]
    return encode(header, [pa.RecordBatch.from_arrays(arrays, schema=CHANGELOG_SCHEMA)])


LONG = lineage((version, "x" * 36) for version in range(1, 50))
PUT: list[Change] = [("put", b"k" * 16, b"v" * 16)]


@pytest.mark.parametrize(
    ("provider", "name", "empty", "full"),
    [
        ("cairn", "1.arrow", cairn_changelog(0), cairn_changelog(1)),
        ("hdfs", "1.delta", compressed(plain([])), compressed(plain(PUT))),
        ("hdfs", "1.delta", compressed(plain([])), bytes(100_000)),
        ("rocksdb", "1.changelog", compressed(plain([])), compressed(plain(PUT))),
        (
            "rocksdb",
            "1.changelog",
            compressed(text("v4") + LONG + tagged([])),
            compressed(text("v2") + tagged(PUT)),
        ),
    ],
)
def test_a_changelog_without_rows_is_recognised(
    objects: MemoryStore, provider: str, name: str, empty: bytes, full: bytes
) -> None:
    """Not by its size: with a long lineage an empty one is larger than one with a row."""
    for number in range(3):
        objects.put(f"{number}/{name}", empty)
    objects.put(f"3/{name}", full)

    objects_share, bytes_share = empty_share(objects, provider, list(objects.list("")))  # type: ignore[arg-type]

    assert objects_share == 0.75
    assert bytes_share == pytest.approx(3 * len(empty) / (3 * len(empty) + len(full)))


@pytest.mark.parametrize("provider", ["cairn", "hdfs", "rocksdb"])
def test_a_damaged_changelog_counts_as_neither(objects: MemoryStore, provider: str) -> None:
    """The cost of a damaged checkpoint is no error: verify finds the damage."""
    objects.put("1.changelog", b"\x00" * 30)

    assert empty_share(objects, provider, list(objects.list(""))) == (0.0, 0.0)  # type: ignore[arg-type]


def test_format_1_of_cairn_pays_for_idle_stores(tmp_path: Path) -> None:
    """In format 2 such a store sends nothing: that is the advice, with what it saves."""
    copy = tmp_path / "ck"
    shutil.copytree(SAMPLE, copy)
    for entry in (copy / "commits").iterdir():
        entry.write_text('v1\n{"nextBatchWatermarkMs":0}')
    for folder in copy.glob("state/*/*/changelog"):
        for version in range(1, 10):
            (folder / f"{version}.arrow").write_bytes(cairn_changelog(0))

    cost = cost_of(copy)

    idle = part(cost, "idle commits")
    assert (fact(cost, "format"), idle.objects) == (("1", "measured"), 36)
    assert idle.requests.put == pytest.approx(4)
    saving = {one.name: one.saving for one in cost.advice}["checkpoint-format-2"]
    assert saving == pytest.approx(idle.price)
    assert part(cost, "retention").requests.get > idle.requests.put


def test_a_query_without_state_costs_its_logs(tmp_path: Path) -> None:
    """Its checkpoint has offsets and commits alone."""
    conf = {
        "spark.sql.streaming.stateStore.providerClass": "io.cairn.spark.CairnStateStoreProvider"
    }
    for name, text_ in (("offsets", json.dumps({"conf": conf}) + "\n{}"), ("commits", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_text(f"v1\n{text_}")

    cost = cost_of(tmp_path)

    assert [one.part for one in cost.parts if one.requests.count] == ["logs", "total"]
    assert part(cost, "logs").requests.put == 2


# -- prices --------------------------------------------------------------------------------------

TABLE = {
    "name": "ours",
    "currency": "EUR",
    "date": "2026-01",
    "storage_per_gib_month": 1.0,
    "per_1000_requests": {"put": 2.0},
}


def test_prices_are_those_of_the_table(written: SmallCheckpoint) -> None:
    """Only kinds with a price cost anything."""
    prices = Prices.parse(json.dumps(TABLE), "ours.json")

    cost = cost_of(written.folder, prices=prices, interval_s=3600)

    total = part(cost, "total")
    assert total.storage_price == pytest.approx(total.bytes / (1 << 30))
    assert total.request_price == pytest.approx(total.requests.put * 2 / 1000 * 730)
    assert total.price == pytest.approx(sum(one.price for one in cost.parts[:-1]))
    assert fact(cost, "prices") == ("ours, EUR, 2026-01", "given")


def test_the_table_of_the_package_is_an_example_with_a_date() -> None:
    """A price without a date is taken for the present one."""
    prices = default_prices()

    assert (prices.currency, len(prices.date)) == ("USD", 7)
    assert prices.source.startswith("https://")


@pytest.mark.parametrize(
    ("text_", "words"),
    [
        ("{", "it is not JSON"),
        ("[]", "not a JSON object"),
        (json.dumps({**TABLE, "curency": "EUR"}), "the nearest one is currency"),
        (json.dumps({**TABLE, "currency": 1}), "currency is not a text"),
        (json.dumps({**TABLE, "storage_per_gib_month": -1}), "storage_per_gib_month is not a"),
        (json.dumps({**TABLE, "storage_per_gib_month": True}), "storage_per_gib_month is not a"),
        (json.dumps({**TABLE, "storage_per_gib_month": 10**400}), "storage_per_gib_month is not a"),
        (json.dumps({**TABLE, "storage_per_gib_month": 10**300}), "storage_per_gib_month is not a"),
        (json.dumps({**TABLE, "per_1000_requests": []}), "per_1000_requests is not an object"),
        (json.dumps({**TABLE, "per_1000_requests": {"puts": 1}}), "the nearest one is put"),
        (json.dumps({**TABLE, "per_1000_requests": {"put": "1"}}), "per_1000_requests.put"),
        (json.dumps({**TABLE, "per_1000_requests": {"put": float("nan")}}), "requests.put is not"),
    ],
)
def test_a_wrong_table_is_explained(text_: str, words: str) -> None:
    """A kind that is misspelt would cost nothing."""
    with pytest.raises(ConfigError, match=words):
        Prices.parse(text_, "ours.json")


# -- advice and arguments ------------------------------------------------------------------------


def test_advice_begins_with_the_largest_saving(written: SmallCheckpoint) -> None:
    """What saves nothing is not said."""
    found = cost_of(written.folder).advice

    savings = [one.saving for one in found]
    assert savings == sorted(savings, reverse=True)
    assert min(savings) > 0
    assert advice(cost_of(SAMPLE)) == ["longer-trigger"]


def test_an_upload_of_a_large_file_is_many_requests() -> None:
    """A file of 1 GiB costs as much as 130 small ones."""
    assert upload(64 << 20) == Requests(put=1)
    assert upload(1 << 30) == Requests(put=130)


def test_wrong_arguments_are_refused(written: SmallCheckpoint) -> None:
    """And a checkpoint without a batch has no cost per batch."""
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        for interval_s in (0, -1, 1e-320, math.nan):
            with pytest.raises(ConfigError, match="the interval must be"):
                checkpoint.cost(interval_s=interval_s)
        with pytest.raises(ConfigError, match="one of cairn, rename, abortable"):
            checkpoint.cost(file_manager="fast")  # type: ignore[arg-type]
    shutil.rmtree(written.folder / "commits")

    with pytest.raises(NotThereError, match="has not committed a batch"):
        cost_of(written.folder)
