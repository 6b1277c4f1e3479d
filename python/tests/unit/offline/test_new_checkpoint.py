"""A checkpoint that is made at an empty place, and what a kill at any point leaves of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dying_store import DyingStore, Killed, Life
from running_checkpoint import RunningCheckpoint
from small_checkpoint import SmallCheckpoint

import cairn
from cairn.errors import AlreadyExistsError, ConfigError, InUseError, UnavailableError
from cairn.format import hold
from cairn.format.spark_log import CHECKPOINT_FORMAT, PARTITIONS, parse_commit, parse_offsets
from cairn.offline.new_checkpoint import NewCheckpoint
from cairn.offline.spark_files import spark_location
from cairn.reader.batch import BatchView
from cairn.reader.saved_files import SavedFiles
from cairn.reader.savepoints import read_savepoint
from cairn.storage.base import ObjectStore
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryBucket, MemoryStore
from cairn.storage.open import open_store

OLD = "file:/gone/state/0/_stateSchema/default"
METADATA = {
    "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateExec"},
    "stateStoreInfo": [
        {
            "storeName": "default",
            "numColsPrefixKey": 0,
            "numPartitions": 3,
            "stateSchemaFilePaths": [f"{OLD}/0_a", f"{OLD}/2_b"],
            "unknown": [1],
        }
    ],
    "operatorPropertiesJson": "",
}


@pytest.fixture
def source(tmp_path: Path) -> SmallCheckpoint:
    """Return a checkpoint of six batches, of which the fifth is planned and not committed."""
    written = SmallCheckpoint(tmp_path / "source")
    for batch in range(5):
        written.commit({user: (batch, user) for user in range(20)})
    written.plan(5)
    for key, data in {
        "sources/0/0": b"v1\n[]",
        "sources/0/3.compact": b"v1\n{}",
        "sources/0/.3.compact.crc": b"crc",
        "state/0/_metadata/v2/2": metadata(),
        "state/0/_metadata/v2/5": b"v2\nof a later batch",
        "state/0/_stateSchema/default/0_a": b"schema",
        "state/0/_stateSchema/default/2_b": b"schema",
        "state/0/_stateSchema/default/5_c": b"of a later batch",
    }.items():
        path = written.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return written


def metadata() -> bytes:
    """Return metadata of an operator with schema files."""
    return f"v2\n{json.dumps(METADATA)}".encode()


def new(
    source: SmallCheckpoint, target: Path, batch: int = 4, *, keep_id: bool = False
) -> NewCheckpoint:
    """Return the work from a batch to a place."""
    return new_at(open_store(str(target), {}), source, batch, keep_id=keep_id)


def new_at(
    target: ObjectStore, source: SmallCheckpoint, batch: int = 4, *, keep_id: bool = False
) -> NewCheckpoint:
    """Return the work from a batch to a place that is open."""
    view = BatchView(open_store(str(source.folder), {}), batch)
    return NewCheckpoint(target, view, "clone", {}, keep_id=keep_id)


def make(source: SmallCheckpoint, target: Path, batch: int = 4, **more: Any) -> None:  # noqa: ANN401
    """Make a checkpoint without state."""
    with new(source, target, batch, **more) as made:
        made.copy_spark_files()
        made.finish()


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a checkpoint but the record."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return {
        key: data
        for key, data in found.items()
        if not key.startswith("cairn-log/") and key != ".cairn.lock"
    }


def test_it_has_what_spark_needs_of_the_batch(source: SmallCheckpoint, tmp_path: Path) -> None:
    """Later entries, hidden files and files of state are none of it."""
    target = tmp_path / "target"
    make(source, target)

    found = files(target)
    before = files(source.folder)
    assert json.loads(found.pop("metadata"))["id"] != json.loads(before["metadata"])["id"]
    text = found.pop("state/0/_metadata/v2/2").decode()
    assert sorted(found) == [
        "commits/4",
        "offsets/3",
        "offsets/4",
        "offsets/5",
        "sources/0/0",
        "sources/0/3.compact",
        "state/0/_metadata/metadata",
        "state/0/_stateSchema/default/0_a",
        "state/0/_stateSchema/default/2_b",
    ]
    for key, data in found.items():
        if key.startswith("offsets/"):
            assert parse_offsets(data) == parse_offsets(before[key])
        elif key.startswith("commits/"):
            assert parse_commit(data) == parse_commit(before[key])
        else:
            assert data == before[key], key
    version, _, fields = text.partition("\n")
    assert version == "v2"
    folder = f"file:{target}/state/0/_stateSchema/default"
    moved = json.loads(fields)
    assert moved["stateStoreInfo"][0].pop("stateSchemaFilePaths") == [
        f"{folder}/0_a",
        f"{folder}/2_b",
    ]
    expected = json.loads(json.dumps(METADATA))
    del expected["stateStoreInfo"][0]["stateSchemaFilePaths"]
    assert moved == expected


def test_the_id_of_the_query_is_kept_on_request(source: SmallCheckpoint, tmp_path: Path) -> None:
    """Its sink then takes it for the same query."""
    make(source, tmp_path / "target", keep_id=True)

    assert files(tmp_path / "target")["metadata"] == files(source.folder)["metadata"]


def test_without_the_plan_before_that_of_the_batch_takes_its_place(
    source: SmallCheckpoint, tmp_path: Path
) -> None:
    """Spark does not start without it."""
    (source.folder / "offsets/3").unlink()
    (source.folder / "offsets/5").unlink()
    make(source, tmp_path / "target")

    found = files(tmp_path / "target")
    assert parse_offsets(found["offsets/3"]) == parse_offsets(found["offsets/4"])
    assert "offsets/5" not in found


def test_the_first_batch_has_no_plan_before(source: SmallCheckpoint, tmp_path: Path) -> None:
    """Its number is 0."""
    make(source, tmp_path / "target", batch=0)

    found = [key for key in files(tmp_path / "target") if key.startswith("offsets/")]
    assert sorted(found) == ["offsets/0", "offsets/1"]


def test_a_plan_for_state_of_another_form_is_left_out(
    source: SmallCheckpoint, tmp_path: Path
) -> None:
    """A repartition has planned it; the state of the batch has the old number of partitions."""
    path = source.folder / "offsets/5"
    path.write_bytes(path.read_bytes().replace(b'"3"', b'"7"'))
    make(source, tmp_path / "target")

    assert "offsets/5" not in files(tmp_path / "target")


def test_entries_get_other_settings_and_ids(source: SmallCheckpoint, tmp_path: Path) -> None:
    """A move to another provider needs it."""
    ids = {0: (("a",), ("b",), ("c",))}
    with new(source, tmp_path / "target") as made:
        made.copy_spark_files()
        made.finish(conf={PARTITIONS: "9", "spark.sql.new": "x"}, unique_ids=ids)

    found = files(tmp_path / "target")
    for batch in (3, 4, 5):
        conf = parse_offsets(found[f"offsets/{batch}"]).conf
        assert (conf[PARTITIONS], conf["spark.sql.new"], conf[CHECKPOINT_FORMAT]) == ("9", "x", "2")
    assert parse_commit(found["commits/4"]).unique_ids == ids

    back = SmallCheckpoint(tmp_path / "back")
    back.folder = tmp_path / "target"
    with new(back, tmp_path / "format1") as made:
        made.finish(conf={"spark.sql.new": None}, checkpoint_format=1)
    found = files(tmp_path / "format1")
    assert parse_commit(found["commits/4"]).unique_ids is None
    conf = parse_offsets(found["offsets/4"]).conf
    assert conf[CHECKPOINT_FORMAT] == "1"
    assert "spark.sql.new" not in conf


@pytest.mark.parametrize("key", ["offsets/0", "anything", "state/0/0/1.delta"])
def test_a_place_that_is_not_empty_is_refused(
    source: SmallCheckpoint, tmp_path: Path, key: str
) -> None:
    """Nothing of it is changed."""
    path = tmp_path / "target" / key
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")

    with pytest.raises(AlreadyExistsError, match="is not empty: it has"):
        make(source, tmp_path / "target")

    assert files(tmp_path / "target") == {key: b"x"}


def test_a_checkpoint_that_is_whole_is_refused(source: SmallCheckpoint, tmp_path: Path) -> None:
    """The same command has made it; a query may have gone on from it."""
    make(source, tmp_path / "target")

    with pytest.raises(AlreadyExistsError, match="is whole"):
        make(source, tmp_path / "target")


@pytest.mark.parametrize("place", ["source", "source/below", "."])
def test_a_place_in_the_source_is_refused(
    source: SmallCheckpoint, tmp_path: Path, place: str
) -> None:
    """Its objects would be in both."""
    with pytest.raises(ConfigError, match="choose a place beside it"):
        make(source, tmp_path / place)


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_a_kill_at_any_point_leaves_what_the_same_command_finishes(
    source: SmallCheckpoint, tmp_path: Path, *, is_behind: bool
) -> None:
    """Until then no driver can read the logs, and no other command takes it over."""
    point = 0
    points = 0
    while True:
        point += 1
        target = tmp_path / f"target{point}"
        store = DyingStore(str(target), Life(point, is_behind=is_behind))
        try:
            with new_at(store, source) as made:
                made.copy_spark_files()
                made.finish()
        except Killed:
            points += 1
        else:
            break
        found = files(target)
        offsets = sorted(int(key[8:]) for key in found if key.startswith("offsets/"))
        is_whole = offsets == [3, 4, 5] and "commits/4" in found
        if offsets and not is_whole:
            assert hold.parse(found[f"offsets/{offsets[-1]}"]) is not None
            with pytest.raises(InUseError, match="makes this checkpoint"):
                cairn.repair(str(target))
            if len(found) > 1:
                with pytest.raises(AlreadyExistsError):
                    make(source, target, batch=3)
        if is_whole:
            with pytest.raises(AlreadyExistsError):
                make(source, target)
        else:
            make(source, target)
        found = files(target)
        assert sorted(key for key in found if key.startswith(("offsets", "commits"))) == [
            "commits/4",
            "offsets/3",
            "offsets/4",
            "offsets/5",
        ]
        assert len(list(target.glob("cairn-log/*/record.json"))) == 1
        assert len(found) == 11
    assert points > 12


def test_after_a_failure_the_same_process_repeats_the_work(
    source: SmallCheckpoint, tmp_path: Path
) -> None:
    """A notebook goes on to live."""

    def fail() -> None:
        with new(source, tmp_path / "target") as made:
            made.copy_spark_files()
            raise UnavailableError("the storage is away")

    with pytest.raises(UnavailableError):
        fail()

    with pytest.raises(AlreadyExistsError, match="is not empty"):
        make(source, tmp_path / "target", batch=3)
    make(source, tmp_path / "target")
    assert "commits/4" in files(tmp_path / "target")


@pytest.mark.parametrize("batch", [3, 4])
def test_of_two_commands_at_once_one_is_refused(
    source: SmallCheckpoint, tmp_path: Path, batch: int
) -> None:
    """The first one goes on, of whatever batch the second is."""
    with new(source, tmp_path / "target") as made:
        made.copy_spark_files()
        with pytest.raises((InUseError, AlreadyExistsError)):
            make(source, tmp_path / "target", batch=batch)
        made.finish()

    assert "commits/4" in files(tmp_path / "target")


def test_two_commands_that_find_an_empty_place_do_not_both_begin(
    source: SmallCheckpoint, tmp_path: Path
) -> None:
    """They are of two batches: each has a hold of its own number."""
    target = tmp_path / "target"
    first = new(source, target)
    place = open_store(str(target), {})
    real = place.probe_conditional_put

    def late() -> None:
        # The second one has found the place empty, and creates its hold next.
        first.__enter__()
        real()

    place.probe_conditional_put = late  # type: ignore[method-assign]

    with pytest.raises(InUseError, match="another command, or a driver"):
        new_at(place, source, batch=3).__enter__()

    first.copy_spark_files()
    first.finish()
    assert "commits/4" in files(target)


def test_a_driver_that_has_begun_at_the_place_is_seen(
    source: SmallCheckpoint, tmp_path: Path
) -> None:
    """It had listed the empty logs before; it creates the query's id first."""
    place = open_store(str(tmp_path / "target"), {})
    real = place.put_if_absent

    def late(key: str, data: Any) -> None:  # noqa: ANN401
        if key == "metadata":
            real(key, b'{"id":"of a driver"}')
        real(key, data)

    place.put_if_absent = late  # type: ignore[method-assign]

    with pytest.raises(InUseError, match="a driver has begun to use this place"):
        new_at(place, source).__enter__()


def test_a_driver_that_runs_at_the_place_is_seen_at_the_end(
    source: SmallCheckpoint, tmp_path: Path
) -> None:
    """The place is not taken for whole."""
    target = tmp_path / "target"

    def go_on() -> None:
        with new(source, target) as made:
            (target / "offsets/0").write_bytes((source.folder / "offsets/0").read_bytes())
            made.finish()

    with pytest.raises(InUseError):
        go_on()

    assert hold.parse((target / "offsets/6").read_bytes()) is not None


def test_files_of_a_source_that_are_put_into_one_meanwhile_are_read_again(
    source: SmallCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark deletes the older ones while they are copied."""
    real = LocalStore.get

    def get(self: LocalStore, key: str, **more: int) -> object:
        path = source.folder / key
        if key == "sources/0/0" and path.exists():
            path.unlink()
        return real(self, key, **more)

    monkeypatch.setattr(LocalStore, "get", get)
    make(source, tmp_path / "target")

    assert "sources/0/3.compact" in files(tmp_path / "target")


@pytest.mark.parametrize(
    ("url", "former", "expected"),
    [
        ("memory://x/a b", "file:/old", "memory://x/a b"),
        ("s3://bucket/new/", "s3a://bucket/old", "s3a://bucket/new"),
        ("s3a://bucket/new", "s3://bucket/old", "s3://bucket/new"),
        ("s3://bucket/new", "hdfs://host:1/old", "s3a://bucket/new"),
        ("hdfs://host:1/new", "s3a://bucket/old", "hdfs://host:1/new"),
        ("file:///srv/x y", "hdfs://host:1/old", "file:/srv/x y"),
        ("/srv/x", "s3a://b/old", "file:/srv/x"),
    ],
)
def test_paths_are_written_as_spark_writes_them(url: str, former: str, expected: str) -> None:
    """Spark opens the files of schemas under these names."""
    assert spark_location(url, f"{former}/state/0/_stateSchema/default/0_a") == expected


def test_it_is_made_on_another_storage(source: SmallCheckpoint) -> None:
    """Here from files to a store of objects."""
    target = MemoryStore("memory://new/checkpoint", MemoryBucket())
    view = BatchView(open_store(str(source.folder), {}), 4)
    with NewCheckpoint(target, view, "clone", {}) as made:
        made.copy_spark_files()
        made.finish()

    text = target.get("state/0/_metadata/v2/2").data.decode()
    assert "memory://new/checkpoint/state/0/_stateSchema/default/0_a" in text


def test_the_batch_of_a_savepoint_needs_no_logs(written: RunningCheckpoint, tmp_path: Path) -> None:
    """Its own files are used, also if later ones are there."""
    folder = written.folder
    cairn.create_savepoint(str(folder), name="kept", batch=9)
    written.commit({1: (10, 1)})
    for path in folder.glob("*/*"):
        if path.parent.name in {"offsets", "commits"}:
            path.unlink()
    objects = open_store(str(folder), {})
    saved = SavedFiles(objects, read_savepoint(objects, "kept"))
    target = open_store(str(tmp_path / "target"), {})
    with NewCheckpoint(target, BatchView(saved, 9), "clone", {}) as made:
        made.copy_spark_files()
        made.finish()

    found = files(tmp_path / "target")
    assert sorted(key for key in found if key.startswith(("offsets", "commits"))) == [
        "commits/9",
        "offsets/8",
        "offsets/9",
    ]
    assert "state/0/0/_metadata/schema" in found
    assert not any(key.startswith("cairn-savepoints") for key in found)


@pytest.mark.parametrize("batch", [2, 4])
def test_a_hold_without_anything_else_is_taken_over_for_any_batch(
    source: SmallCheckpoint, tmp_path: Path, batch: int
) -> None:
    """The command was killed at its first step, and the query has gone on since."""
    left = hold.Hold("clone", "elsewhere", 1, "", "t", 0, is_new=True, is_left=True)
    path = tmp_path / "target/offsets/5"
    path.parent.mkdir(parents=True)
    path.write_bytes(hold.encode(left))
    make(source, tmp_path / "target", batch=batch)

    logs = {key for key in files(tmp_path / "target") if key.startswith("offsets/")}
    assert logs == {f"offsets/{one}" for one in (batch - 1, batch, batch + 1)}
