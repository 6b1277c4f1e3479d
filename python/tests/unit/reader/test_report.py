"""`Checkpoint.report`: its numbers are those of the rows, listings and headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_checkpoint import PARTITIONS, SmallCheckpoint, partition_of_user

import cairn
from cairn.errors import NotThereError
from cairn.reader.report import Report
from cairn.reader.version_figures import evenly

SAMPLE = Path(__file__).resolve().parents[4] / "examples" / "sample-checkpoint"


@pytest.fixture
def written(tmp_path: Path) -> SmallCheckpoint:
    """Return the writer of a checkpoint with three batches, whose state grows by ten users each."""
    written = SmallCheckpoint(tmp_path / "ck")
    for batch in range(3):
        written.commit({user: (batch, user) for user in range(batch * 10, batch * 10 + 10)})
    return written


@pytest.fixture(scope="module")
def of_sample() -> Report:
    """Return the report of the sample checkpoint, which is one of Cairn's."""
    return cairn.open_checkpoint(str(SAMPLE)).report()


# -- rows ----------------------------------------------------------------------------------------


def test_keys_and_bytes_are_those_of_the_rows(written: SmallCheckpoint) -> None:
    """The skew of partitions is what a user acts upon."""
    report = cairn.open_checkpoint(str(written.folder)).report()

    by_partition = [0] * PARTITIONS
    for user in range(30):
        by_partition[partition_of_user(user)] += 1
    row_bytes = 16 + 24  # two words of the key, three of the value
    assert [one.keys for one in report.partitions] == by_partition
    assert [one.row_bytes for one in report.partitions] == [
        count * row_bytes for count in by_partition
    ]
    (family,) = report.families
    assert (family.keys, family.rows, family.row_bytes) == (30, 30, 30 * row_bytes)
    assert family.key_sizes is not None
    assert (family.key_sizes.least, family.key_sizes.most) == (16, 16)
    assert report.findings == ()


def test_an_earlier_batch_has_its_own_rows(written: SmallCheckpoint) -> None:
    """A comparison of two reports shows what has grown."""
    report = cairn.open_checkpoint(str(written.folder)).report(batch=0)

    assert report.batch == 0
    assert sum(one.keys or 0 for one in report.partitions) == 10


def test_lists_and_their_largest_keys(of_sample: Report) -> None:
    """A list that grows without bound is found by its key."""
    (family,) = (one for one in of_sample.families if one.name == "last_orders")

    rows = cairn.open_checkpoint(str(SAMPLE)).state(operator=0, store="last_orders").to_table()
    assert (family.keys, family.rows) == (4, rows.num_rows)
    assert family.list_lengths is not None
    assert family.list_lengths.total == rows.num_rows
    assert {one.key.column("customer")[0].as_py() for one in family.largest} == {
        "ann",
        "bob",
        "cid",
        "dora",
    }
    assert [one.elements for one in family.largest] == [3, 3, 3, 3]


def test_times_are_compared_with_the_watermark(of_sample: Report) -> None:
    """Rows behind the watermark that stay are a leak."""
    (family,) = (one for one in of_sample.families if one.name == "left")
    (times,) = family.times

    column = cairn.open_checkpoint(str(SAMPLE)).state(operator=1, store="left").to_table()
    values = [
        int(one.timestamp() * 1000) for one in column["ordered_at"].to_pylist() if one is not None
    ]
    assert times.column == "ordered_at"
    assert (times.first_ms, times.last_ms) == (min(values), max(values))
    assert times.before_watermark == sum(one < of_sample.watermark_ms for one in values)


# -- batches -------------------------------------------------------------------------------------


def test_batches_of_cairn_have_keys_and_sizes(of_sample: Report) -> None:
    """Growth is seen without reading the rows of old batches."""
    checkpoint = cairn.open_checkpoint(str(SAMPLE))
    for one in of_sample.batches:
        assert one.keys is not None
        for (operator, name), count in one.keys.items():
            state = checkpoint.state(operator=operator, store=name, batch=one.batch)
            assert state.count_keys() == count
    files = sum(path.stat().st_size for path in SAMPLE.glob("state/*/[01]/changelog/[0-9]*"))
    assert sum(one.change_bytes for one in of_sample.batches) == files
    assert [one.commits for one in of_sample.batches] == [4] * 7 + [3, 2]
    loads = [one.load_bytes for one in of_sample.batches]
    assert loads[:2] == [9808, 9808 + 10272]
    assert None not in loads


def test_batches_of_the_hdfs_backed_provider_have_sizes(written: SmallCheckpoint) -> None:
    """A snapshot replaces the delta files before it."""
    folder = written.folder / "state/0"
    sizes = [
        sum((folder / f"{partition}/{version}.delta").stat().st_size for partition in range(3))
        for version in (1, 2, 3)
    ]
    for partition in range(PARTITIONS):
        (folder / f"{partition}/2.snapshot").write_bytes(b"x" * 100)
        (folder / f"{partition}/1.delta").unlink()

    report = cairn.open_checkpoint(str(written.folder)).report(is_quick=True)

    assert [one.load_bytes for one in report.batches] == [None, 300, 300 + sizes[2]]
    assert [one.snapshot_bytes for one in report.batches] == [0, 300, 0]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_few_batches_are_chosen_evenly(count: int) -> None:
    """A thousand partitions and many batches must not cost a million requests."""
    batches = list(range(100, 200))

    chosen = evenly(batches, count, 150)

    assert 150 in chosen
    assert len(chosen) <= count
    assert chosen == sorted(chosen)
    if count >= 3:
        assert (chosen[0], chosen[-1]) == (100, 199)


# -- what is read --------------------------------------------------------------------------------


def test_a_quick_report_reads_no_rows(written: SmallCheckpoint) -> None:
    """It answers at once however large the state is, also if that cannot be read."""
    for path in written.folder.glob("state/0/*/*.delta"):
        path.write_bytes(b"damaged")

    report = cairn.open_checkpoint(str(written.folder)).report(is_quick=True)

    assert report.reads.is_quick
    assert [one.keys for one in report.partitions] == [None] * PARTITIONS
    assert {one.stored_bytes for one in report.partitions} == {3 * len(b"damaged")}
    assert report.families[0].rows is None


def test_a_quick_report_of_cairn_has_the_keys(of_sample: Report) -> None:
    """The headers of changelogs have them."""
    quick = cairn.open_checkpoint(str(SAMPLE)).report(is_quick=True)

    assert [one.keys for one in quick.partitions] == [one.keys for one in of_sample.partitions]
    assert [one.keys for one in quick.families] == [one.keys for one in of_sample.families]
    assert sum(quick.reads.requests.values()) < sum(of_sample.reads.requests.values())


def test_requests_are_those_of_all_stores(of_sample: Report) -> None:
    """The reads of each store are billed as those of the logs: one LIST per store at least."""
    stores = len(of_sample.partitions)

    assert of_sample.reads.requests["ListObjectsV2"] >= stores + 2
    assert of_sample.reads.requests["GetObject"] >= stores + 2 * len(of_sample.batches)
    assert set(of_sample.reads.requests) == {"GetObject", "ListObjectsV2"}


def test_a_partition_that_cannot_be_read_is_a_finding(written: SmallCheckpoint) -> None:
    """The report of a damaged state is needed most; half of a partition is no figure."""
    (written.folder / "state/0/1/2.delta").write_bytes(b"damaged")

    report = cairn.open_checkpoint(str(written.folder)).report()

    assert [one.keys is None for one in report.partitions] == [False, True, False]
    (finding,) = (one for one in report.findings if one.rule == "state-unreadable")
    assert finding.place is not None
    assert finding.place.partition == 1


def test_operator_and_store_limit_the_report(of_sample: Report) -> None:
    """A large checkpoint is looked at store by store."""
    checkpoint = cairn.open_checkpoint(str(SAMPLE))

    left = checkpoint.report(operator=1, store="left")

    assert [one.name for one in left.families] == ["left"]
    assert {one.operator for one in left.partitions} == {1}
    assert left.families == tuple(replaced for replaced in left.families if replaced.keys == 32)
    assert len(left.batches) == len(of_sample.batches)


@pytest.mark.parametrize("choice", [{"batch": 99}, {"operator": 7}, {"store": "nothing"}], ids=str)
def test_what_is_not_there_is_named(choice: dict[str, object]) -> None:
    """An empty page would say that all is well."""
    with pytest.raises(NotThereError):
        cairn.open_checkpoint(str(SAMPLE)).report(**choice)  # type: ignore[arg-type]
