"""`Checkpoint.verify` finds each harm that the tests and the chaos run do to objects of Cairn's.

The newest version, 11, begins with snapshot 9; the logs have the versions 7 to 11. Not found, as
nothing is lost by them:

- a snapshot is lost that no version needs, because all that begin with it are reached from another
  one: a load goes around it, and the next snapshot takes its place;
- the newest commit of Spark's log is lost: the query repeats its batch.

Nor are changed bytes that only older versions need in an SST, of which only the size is compared,
or in the middle of a large changelog.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from cairn_checkpoint import USERS, CairnCheckpoint

import cairn
from cairn.format import changelog
from cairn.reader import verify as verifying
from cairn.reader.findings import Finding
from cairn.reader.spark import logs
from cairn.reader.spark.logs import Batches
from cairn.storage.base import ObjectStore
from cairn.storage.files import TEMPORARY_SUFFIX
from harness.object_harms import (
    CHANGELOG_HARMS,
    MANIFEST_HARMS,
    NEWER_FORMAT,
    SST_HARMS,
    Harm,
    cut_at,
    deleted,
    edited,
    flipped_at,
    harm,
)

Found: TypeAlias = set[tuple[str, Path | None]]
PLACE = "0/0/default"
SHARES = (0, 0.1, 0.3, 0.6, 0.8, 0.95, 1)
FLIPS = {f"flipped-at-{share}": flipped_at(share) for share in SHARES}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CairnCheckpoint:
    """Return a healthy checkpoint."""
    folder = tmp_path_factory.mktemp("healthy")
    return CairnCheckpoint(folder / "ck", folder / "local")


@pytest.fixture
def ck(made: CairnCheckpoint, tmp_path: Path) -> CairnCheckpoint:
    """Return a copy of it."""
    shutil.copytree(made.folder, tmp_path / "ck")
    return made.at(tmp_path / "ck")


def findings_of(ck: CairnCheckpoint) -> list[Finding]:
    """Return what verify finds."""
    with cairn.open_checkpoint(str(ck.folder)) as opened:
        return list(opened.verify())


def found_in(ck: CairnCheckpoint) -> Found:
    """Return the rules and objects of the findings, which are all of the only partition."""
    findings = findings_of(ck)
    assert {str(one.place) for one in findings} <= {PLACE}
    assert all(one.message for one in findings)
    return {
        (one.rule, None if one.object_name is None else Path(one.object_name)) for one in findings
    }


def rule_of(how: str) -> str:
    """Return the rule of an object that is not the only way to a state."""
    return "object-missing" if how == "missing" else "object-damaged"


def test_the_healthy_checkpoint_has_no_findings(made: CairnCheckpoint) -> None:
    """Each of the following findings is due to the harm."""
    assert findings_of(made) == []


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("how", [*CHANGELOG_HARMS, *FLIPS])
def test_a_changelog_that_the_newest_state_needs(
    ck: CairnCheckpoint, how: str, version: int
) -> None:
    """There is no other way to the state: the query cannot go on."""
    path = ck.changelog(version)
    harm(path, {**CHANGELOG_HARMS, **FLIPS}[how])

    found = found_in(ck)

    assert {("state-unreadable", path), (rule_of(how), path)} >= found
    assert ("state-unreadable", path) in found


@pytest.mark.parametrize("how", [*CHANGELOG_HARMS, *FLIPS])
def test_a_changelog_that_older_states_need(ck: CairnCheckpoint, how: str) -> None:
    """The query goes on, but not back to that batch."""
    path = ck.changelog(8)
    harm(path, {**CHANGELOG_HARMS, **FLIPS}[how])

    assert found_in(ck) == {(rule_of(how), path)}


@pytest.mark.parametrize("how", [*MANIFEST_HARMS, *FLIPS])
def test_the_manifest_with_which_the_newest_state_begins(ck: CairnCheckpoint, how: str) -> None:
    """A load goes around it, which takes longer, until the changelogs of that way are purged."""
    path = ck.manifest(9)
    harm(path, {**MANIFEST_HARMS, **FLIPS}[how])

    assert found_in(ck) == {(rule_of(how), path)}


@pytest.mark.parametrize("how", [*MANIFEST_HARMS, *FLIPS])
def test_an_older_manifest(ck: CairnCheckpoint, how: str) -> None:
    """One that is gone leaves nothing behind: there is another way to each version."""
    path = ck.manifest(6)
    harm(path, {**MANIFEST_HARMS, **FLIPS}[how])

    assert found_in(ck) == (set() if how == "missing" else {(rule_of(how), path)})


def test_lost_manifests_without_which_a_batch_cannot_be_loaded(ck: CairnCheckpoint) -> None:
    """The changelogs that would lead to it from an earlier version have been purged."""
    needed = ck.manifest(6)
    for path in (ck.manifest(3), needed):
        harm(path, deleted)

    (found,) = findings_of(ck)

    assert (found.rule, found.object_name, found.batch) == ("batch-unreadable", str(needed), 7)


def test_what_retention_deletes_meanwhile_is_no_harm(
    ck: CairnCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of a large state takes longer than a fast query keeps a batch."""
    for version in (3, 6, 9):
        harm(ck.manifest(version), deleted)
    real = logs.list_batches
    seen: list[Batches] = []

    def list_batches(objects: ObjectStore) -> Batches:
        found = real(objects)
        if seen:
            found = replace(found, committed=(*found.committed, 11))
        seen.append(found)
        return found

    monkeypatch.setattr(verifying, "list_batches", list_batches)

    assert {rule for rule, _ in found_in(ck)} == {"query-went-on"}


def test_a_manifest_of_a_newer_release(ck: CairnCheckpoint) -> None:
    """It is no damage that a load goes around: this release is too old for the state."""
    path = ck.manifest(9)
    harm(path, edited(format=NEWER_FORMAT))

    assert found_in(ck) == {("state-unreadable", path), ("object-damaged", path)}


@pytest.mark.parametrize("how", [*SST_HARMS, *FLIPS])
def test_an_sst_that_the_newest_state_needs(ck: CairnCheckpoint, how: str) -> None:
    """Whichever of its bytes is another one: a worker verifies the whole file, a scan blocks."""
    for path in ck.files(9):
        whole = path.read_bytes()
        harm(path, {**SST_HARMS, **FLIPS}[how])

        assert found_in(ck) == {(rule_of(how), path)}

        path.write_bytes(whole)


@pytest.mark.parametrize("how", [*SST_HARMS, *FLIPS])
def test_an_sst_that_older_states_need(ck: CairnCheckpoint, how: str) -> None:
    """Its size is compared, and not its bytes."""
    path = min(ck.files(6) - ck.files(9))
    harm(path, {**SST_HARMS, **FLIPS}[how])

    assert found_in(ck) == ({(rule_of(how), path)} if how in ("missing", "cut") else set())


@pytest.mark.parametrize(
    ("one", "other", "rules"),
    [
        (("changelog", 7), ("changelog", 8), {"object-damaged"}),
        (("changelog", 10), ("changelog", 11), {"state-unreadable", "object-damaged"}),
        (("manifest", 6), ("manifest", 9), {"object-damaged"}),
    ],
)
def test_two_objects_that_are_swapped(
    ck: CairnCheckpoint, one: tuple[str, int], other: tuple[str, int], rules: set[str]
) -> None:
    """Each has the bytes of an intact object, which are those of another version."""
    paths = [getattr(ck, kind)(version) for kind, version in (one, other)]
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)

    found = found_in(ck)

    assert {rule for rule, _ in found} == rules
    assert {path for _, path in found} == set(paths)


def test_two_ssts_that_are_swapped(ck: CairnCheckpoint) -> None:
    """Each is an intact table, with the rows of another time."""
    new, old = min(ck.files(9)), min(ck.files(6) - ck.files(9))
    size = new.stat().st_size
    new.write_bytes(old.read_bytes().ljust(size, b"\0")[:size])

    assert found_in(ck) == {("object-damaged", new)}


@pytest.mark.parametrize(
    ("log", "batch", "how", "rule"),
    [
        ("offsets", 8, deleted, "log-hole"),
        ("commits", 8, deleted, "log-hole"),
        ("offsets", 10, deleted, "commit-without-plan"),
        ("offsets", 8, cut_at(20), "log-entry"),
        ("offsets", 8, cut_at(0), "log-entry"),
        ("commits", 8, cut_at(20), "log-entry"),
        ("commits", 8, cut_at(0), "log-entry"),
        ("offsets", 10, cut_at(20), "log-entry"),
        ("commits", 10, cut_at(20), "log-entry"),
    ],
)
def test_an_entry_of_a_log(ck: CairnCheckpoint, log: str, batch: int, how: Harm, rule: str) -> None:
    """Entries that are gone or torn: the place of the finding is the entry."""
    path = ck.folder / log / str(batch)
    harm(path, how)

    assert (rule, str(path), batch) in {
        (one.rule, one.object_name, one.batch) for one in findings_of(ck)
    }


def spoil_id(data: bytes) -> bytes:
    """Return a commit with an id that no attempt has."""
    at = data.index(b'[["u') + 5
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_an_id_of_a_commit(ck: CairnCheckpoint) -> None:
    """A bit of the log that is valid JSON and names no version."""
    harm(ck.folder / "commits/10", spoil_id)

    assert "state-unreadable" in {rule for rule, _ in found_in(ck)}


def test_what_others_left(ck: CairnCheckpoint) -> None:
    """Objects that nobody names: of an attempt that failed, and of a program that is not ours."""
    orphan, foreign = ck.store / f"sst/{'a' * 32}.sst", ck.store / "notes.txt"
    # A write that a crash has ended: its file is removed after an hour.
    torn = ck.store / f"changelog/.12_u{'a' * 32}.arrow.{'b' * 16}{TEMPORARY_SUFFIX}"
    for path in (orphan, foreign, torn):
        path.write_bytes(b"x")
    os.utime(orphan, (1, 1))

    assert found_in(ck) == {("orphan", orphan), ("unknown-object", foreign)}


def test_the_rows_are_right_where_there_is_another_way(ck: CairnCheckpoint) -> None:
    """A finding is no reason to give other rows."""
    rows = _rows(ck)
    for path in (ck.manifest(9), *ck.files(9)):
        whole = path.read_bytes()
        harm(path, flipped_at(0.3))

        assert _rows(ck) == rows

        path.write_bytes(whole)


def _rows(ck: CairnCheckpoint) -> list[dict[str, Any]]:
    with cairn.open_checkpoint(str(ck.folder)) as opened:
        rows = opened.state().to_table().to_pylist()
    assert len(rows) == USERS
    return rows


def large(path: Path) -> None:
    """Let a changelog be larger than what one request reads of it."""
    found = changelog.decode(path.read_bytes(), object_name=path.name)
    source = random.Random(1)
    count = 20_000
    columns: list[Any] = [
        np.ones(count, np.uint8),
        np.zeros(count, np.uint16),
        [struct.pack(">q", number) for number in range(count)],
        [source.randbytes(8) for _ in range(count)],
    ]
    schema = changelog.CHANGELOG_SCHEMA
    rows = pa.RecordBatch.from_pydict(dict(zip(schema.names, columns, strict=True)), schema=schema)
    path.write_bytes(changelog.encode(found.header, [rows]))


@pytest.mark.parametrize(
    ("how", "rules"),
    [
        (cut_at(-1), {"object-damaged"}),
        (cut_at(90_000), {"object-damaged"}),
        (deleted, {"object-missing"}),
        (flipped_at(0.5), set()),
    ],
)
def test_a_large_changelog_that_older_states_need(
    ck: CairnCheckpoint, how: Harm, rules: set[str]
) -> None:
    """Its beginning and its end are looked at: it is not read whole."""
    path = ck.changelog(8)
    large(path)
    assert path.stat().st_size > 100_000
    assert found_in(ck) == set()
    harm(path, how)

    assert found_in(ck) == {(rule, path) for rule in rules}
