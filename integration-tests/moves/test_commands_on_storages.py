"""Commands that change a checkpoint on S3 or HDFS, after which its query goes on there.

Most tests of these commands have a local folder. What another storage does otherwise is seen here:
listings, conditional writes, copies within the storage, and names that are URLs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import cairn
from cairn.errors import NotThereError
from cairn.location import open_location
from harness.differential import Run, copy_checkpoint
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import CAIRN, ROCKSDB
from harness.storages import Storage, copy_to, on_hdfs, on_s3

pytestmark = pytest.mark.usefixtures("driver")

BATCHES = 5
BACK_TO = 2
PARTITIONS, PARTITIONS_AFTER = 2, 3


@dataclass(frozen=True)
class Ended:
    """A query that has ended, and that goes on with one more file of input.

    Attributes:
        run: it has ended.
        later: the rows of the batch of the file that has come since.
    """

    run: Run
    later: list[str]

    def rows_at(self, batch: int) -> list[str]:
        """Return the rows of the state at a batch."""
        return rows_of(self.run.checkpoint, Storage(""), batch)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Run the query."""
    folder = tmp_path_factory.mktemp("ended")
    events = Events(folder / "input")
    events.add_files(0, BATCHES)
    run = Run(BY_NAME["totals_complete"], events, str(folder / "query"), CAIRN, 2)
    run.advance()
    later = copy_checkpoint(run, folder / "later")
    events.add_files(BATCHES, 1)
    later.advance()
    return Ended(run, later.record.rows[later.record.last_batch])


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=[pytest.mark.slow, pytest.mark.hdfs])])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Return a folder of each kind of storage."""
    # The age of an object is that of its PUT: a person waits.
    monkeypatch.setattr("cairn.offline.hold.QUIET_S", 0)
    monkeypatch.setattr("cairn.offline.savepoint.SETTLING_S", 0)
    if request.param == "s3":
        return on_s3(request.getfixturevalue("s3_bucket"))
    return on_hdfs(request.getfixturevalue("hdfs_url"))


@pytest.fixture
def place(ended: Ended, storage: Storage) -> str:
    """Return the place of a copy of its checkpoint."""
    return copy_to(storage, "query", Path(ended.run.checkpoint))


def rows_of(place: str, storage: Storage, batch: int | None = None) -> list[str]:
    """Return the rows of a state, without their partitions."""
    with cairn.open_checkpoint(place, storage_options=storage.options) as checkpoint:
        table = checkpoint.state(batch=batch).to_table().drop_columns("partition")
        return sorted(map(repr, table.to_pylist()))


def require_whole(place: str, storage: Storage, partitions: int = PARTITIONS) -> None:
    """Require that nothing is wrong with a checkpoint."""
    with cairn.open_checkpoint(place, storage_options=storage.options) as checkpoint:
        assert list(checkpoint.verify()) == []
        assert checkpoint.operators[0].partitions == partitions


def go_on(ended: Ended, place: str, storage: Storage, provider: str = CAIRN) -> None:
    """Let the query go on there; its totals are those of the query that went on elsewhere."""
    again = Run(ended.run.operator, ended.run.events, place, provider, 2, storage.conf)
    again.advance()

    assert again.record.rows[again.record.last_batch] == ended.later


def test_a_query_gets_other_partitions(ended: Ended, storage: Storage, place: str) -> None:
    """The new partitions have folders that did not exist."""
    with cairn.repartition(
        place, partitions=PARTITIONS_AFTER, storage_options=storage.options
    ) as plan:
        plan.apply(processes=1)

    assert rows_of(place, storage) == ended.rows_at(BATCHES - 1)
    require_whole(place, storage, PARTITIONS_AFTER)
    go_on(ended, place, storage)


def test_a_query_goes_back_to_a_batch(ended: Ended, storage: Storage, place: str) -> None:
    """Entries of the logs are removed, and the batches behind are repeated under their names."""
    with cairn.restore(place, to_batch=BACK_TO, storage_options=storage.options) as plan:
        assert plan.apply() == ()

    assert rows_of(place, storage) == ended.rows_at(BACK_TO)
    require_whole(place, storage)
    go_on(ended, place, storage)


def test_a_query_gets_another_provider_in_place(ended: Ended, storage: Storage, place: str) -> None:
    """The files of the other provider are beside those of Cairn."""
    with cairn.migrate(place, to=None, provider="rocksdb", storage_options=storage.options) as plan:
        plan.apply(processes=1)

    assert rows_of(place, storage) == ended.rows_at(BATCHES - 1)
    require_whole(place, storage)
    go_on(ended, place, storage, ROCKSDB)


def test_savepoints_are_created_listed_and_deleted(
    ended: Ended, storage: Storage, place: str
) -> None:
    """One of two is deleted, and the query goes on."""
    options = storage.options
    for name, batch in (("first", BACK_TO), ("second", BATCHES - 1)):
        cairn.create_savepoint(place, name=name, batch=batch, storage_options=options)
    listed = cairn.list_savepoints(place, storage_options=options)

    cairn.delete_savepoint(place, name="first", storage_options=options)

    assert [(one.name, one.batch, one.status) for one in listed] == [
        ("first", BACK_TO, "whole"),
        ("second", BATCHES - 1, "whole"),
    ]
    left = cairn.list_savepoints(place, storage_options=options)
    assert [(one.name, one.status) for one in left] == [("second", "whole")]
    with pytest.raises(NotThereError, match="there are: second"):
        cairn.delete_savepoint(place, name="first", storage_options=options)
    require_whole(place, storage)
    go_on(ended, place, storage)


def test_a_savepoint_is_cloned(ended: Ended, storage: Storage, place: str) -> None:
    """The query has gone on since; the clone has the batch of the savepoint alone."""
    options = storage.options
    cairn.create_savepoint(place, name="kept", batch=BACK_TO, storage_options=options)
    go_on(ended, place, storage)
    clone = f"{storage.folder}/clone"

    with cairn.clone(place, to=clone, savepoint="kept", storage_options=options) as plan:
        plan.apply()

    assert rows_of(clone, storage) == ended.rows_at(BACK_TO)
    require_whole(clone, storage)
    go_on(ended, clone, storage)


def test_a_savepoint_is_restored(ended: Ended, storage: Storage, place: str) -> None:
    """Its entries are put back, also those of batches of which the logs are gone."""
    options = storage.options
    cairn.create_savepoint(place, name="kept", batch=BACK_TO, storage_options=options)
    with open_location(place, options) as objects:
        objects.delete(
            [f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(BACK_TO + 1)]
        )

    with cairn.restore(place, savepoint="kept", storage_options=options) as plan:
        plan.apply()

    assert rows_of(place, storage) == ended.rows_at(BACK_TO)
    require_whole(place, storage)
    go_on(ended, place, storage)
