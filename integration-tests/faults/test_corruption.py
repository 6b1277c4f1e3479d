"""A missing, truncated, corrupt, foreign or too new object: another way, or an error names it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from harness.clear_errors import assert_clear
from harness.differential import Run, copy_checkpoint
from harness.events import Events
from harness.object_harms import (
    CHANGELOG_HARMS,
    MANIFEST_HARMS,
    NEWER_FORMAT,
    SST_HARMS,
    TRAILER_BYTES,
    cut_at,
    edited,
    flipped,
    harm,
)
from harness.operators import BY_NAME, StateView
from harness.spark import CAIRN_CONF, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

FILES = 5
VIEW = StateView()
CODES = {
    "missing": "CAIRN_MISSING",
    "foreign": "CAIRN_FOREIGN_OBJECT",
    "too-new": "CAIRN_FORMAT_VERSION",
}
"""Of changelogs; all other harms are ``CAIRN_CORRUPT``."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a finished run with snapshots; the tests corrupt copies of its checkpoint."""
    folder = tmp_path_factory.mktemp("corruption")
    events = Events(folder / "input")
    events.add_files(0, FILES)
    run = Run(BY_NAME["windows_update"], events, str(folder / "checkpoint"), SUBJECT)
    run.advance()
    return run


@pytest.fixture
def copied(finished: Run, tmp_path: Path) -> Run:
    """Return a run on a copy, with an engine whose local directory is empty."""
    (tmp_path / "local").mkdir()
    run = copy_checkpoint(finished, tmp_path / "copy")
    run.conf = {CAIRN_CONF + "localDir": str(tmp_path / "local")}
    return run


def store_of(run: Run) -> Path:
    """Return the folder of the store of partition 0."""
    return Path(run.checkpoint, "state", "0", "0")


def failure_of_load(run: Run, batch: int) -> str:
    """Read a batch's state, which fails; return the message."""
    with pytest.raises(Exception) as failure:  # noqa: PT011 - py4j's class; the text is checked
        run.state(VIEW, batchId=batch)
    return str(failure.value)


@pytest.mark.parametrize("kind", CHANGELOG_HARMS)
def test_a_corrupt_changelog_is_named_and_the_previous_version_loads(
    finished: Run, copied: Run, kind: str
) -> None:
    """A load that skips a corrupt object would return older rows."""
    last = finished.record.last_batch
    name = f"changelog/{last + 1}.arrow"
    harm(store_of(copied) / name, CHANGELOG_HARMS[kind])

    message = failure_of_load(copied, last)

    assert_clear(message, CODES.get(kind, "CAIRN_CORRUPT"), name)
    before = finished.state(VIEW, batchId=last - 1)
    assert copied.state(VIEW, batchId=last - 1) == before


def test_a_query_stops_at_a_missing_changelog_and_continues_when_it_is_restored(
    finished: Run, copied: Run
) -> None:
    """Once the object is restored from the bucket's versions, the same version must load."""
    last = finished.record.last_batch
    changelog = store_of(copied) / f"changelog/{last + 1}.arrow"
    aside = changelog.rename(changelog.with_name("aside"))
    finished.events.add_files(FILES, 1)

    with pytest.raises(Exception) as failure:  # noqa: PT011 - py4j's class; the text is checked
        copied.advance()
    aside.rename(changelog)
    copied.advance()

    assert_clear(str(failure.value), "CAIRN_MISSING", f"changelog/{last + 1}.arrow")
    assert copied.record.rows[last + 1]


def base_of(run: Run, version: int) -> Path:
    """Return the manifest that is the base of a version of partition 0.

    Removes snapshots after it: the version can have one of its own, which a load prefers.
    """
    changelog = (store_of(run) / f"changelog/{version}.arrow").read_bytes()
    metadata = pa.ipc.open_stream(changelog[:-TRAILER_BYTES]).schema.metadata
    base = json.loads(metadata[b"cairn.header"])["base"]
    assert "checkpoint_id" in base, "there was no snapshot when the version was committed"
    for manifest in (store_of(run) / "snapshot").glob("*.json"):
        if int(manifest.name.partition("_")[0]) > base["version"]:
            manifest.unlink()
    return store_of(run) / f"snapshot/{base['version']}_{base['checkpoint_id']}.json"


@pytest.mark.parametrize("kind", MANIFEST_HARMS)
def test_a_version_with_a_corrupt_manifest_loads_from_an_earlier_snapshot(
    finished: Run, copied: Run, kind: str
) -> None:
    """The earlier snapshot and all changelogs after it lead to the same version."""
    last = finished.record.last_batch
    harm(base_of(copied, last + 1), MANIFEST_HARMS[kind])

    assert copied.state(VIEW, batchId=last) == finished.state(VIEW, batchId=last)


@pytest.mark.parametrize("kind", SST_HARMS)
def test_a_version_with_a_corrupt_sst_loads_from_an_earlier_snapshot(
    finished: Run, copied: Run, kind: str
) -> None:
    """RocksDB finds a flipped bit only when it reads that block, if at all."""
    last = finished.record.last_batch
    base = base_of(copied, last + 1)
    named = json.loads(base.read_bytes())["files"][0]["object"]
    harm(store_of(copied) / named, SST_HARMS[kind])

    assert copied.state(VIEW, batchId=last) == finished.state(VIEW, batchId=last)


def test_a_manifest_of_a_newer_release_is_an_error(finished: Run, copied: Run) -> None:
    """It is not damaged. An earlier snapshot would hide that the release is too old."""
    last = finished.record.last_batch
    base = base_of(copied, last + 1)
    harm(base, edited(format=NEWER_FORMAT))

    message = failure_of_load(copied, last)

    assert_clear(message, "CAIRN_FORMAT_VERSION", f"snapshot/{base.name}")


def test_without_another_way_the_error_names_what_each_way_needs(
    finished: Run, copied: Run
) -> None:
    """A person may restore one of several objects."""
    last = finished.record.last_batch
    base = base_of(copied, last + 1)
    harm(base, flipped)
    version = int(base.name.partition("_")[0])
    harm(store_of(copied) / f"changelog/{version}.arrow", cut_at(0))

    message = failure_of_load(copied, last)

    assert_clear(message, "CAIRN_CORRUPT", f"snapshot/{base.name}")
    assert "every other way" in message
    assert f"changelog/{version}.arrow (CAIRN_CORRUPT)" in message
    assert copied.state(VIEW, batchId=version - 2) == finished.state(VIEW, batchId=version - 2)


def test_a_query_continues_around_a_corrupt_manifest(finished: Run, copied: Run) -> None:
    """It takes a snapshot at once, so that the next start does not need the detour."""
    last = finished.record.last_batch
    harm(base_of(copied, last + 1), flipped)
    finished.events.add_files(FILES, 2)

    query = copied.start()
    copied.finish(query)

    repairs = [
        int(operator["customMetrics"]["cairnRepairs"])
        for batch in query.recentProgress
        for operator in batch["stateOperators"]
    ]
    assert sum(repairs) == 1
    versions = [
        int(manifest.name.partition("_")[0])
        for manifest in (store_of(copied) / "snapshot").glob("*.json")
    ]
    # Of the loaded version if maintenance comes first, else of the next one: base_of() has removed
    # what was there.
    assert max(versions) >= last + 1
