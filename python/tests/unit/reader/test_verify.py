"""`Checkpoint.verify`: each broken rule is found, and nothing in a healthy checkpoint."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from small_checkpoint import PARTITIONS, SmallCheckpoint, key_row, partition_of_user, value_row
from spark_store_files import compressed, plain

import cairn
from cairn.reader import verify as verifying
from cairn.reader.findings import RULES, Finding
from cairn.reader.spark import logs
from cairn.reader.spark.logs import Batches
from cairn.storage.base import ObjectStore


@pytest.fixture
def written(tmp_path: Path) -> SmallCheckpoint:
    """Return the writer of a healthy checkpoint with four batches."""
    written = SmallCheckpoint(tmp_path / "ck")
    for batch in range(4):
        written.commit({user: (batch, user) for user in range(10)})
    return written


def findings_of(written: SmallCheckpoint) -> list[Finding]:
    """Return all findings of a checkpoint."""
    return list(cairn.open_checkpoint(str(written.folder)).verify())


def test_a_healthy_checkpoint_has_no_findings(written: SmallCheckpoint) -> None:
    """A check that cries wolf is switched off."""
    assert findings_of(written) == []


def test_a_place_may_be_written_in_several_ways(
    written: SmallCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark stores absolute paths; who names the checkpoint from its folder has moved nothing."""
    name_schema_in(written, f"file:{written.folder}")
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(written.folder)
    monkeypatch.chdir(tmp_path)

    for location in ("ck", "./ck/", "link", f"{tmp_path}/x/../ck", written.folder.as_uri()):
        assert list(cairn.open_checkpoint(location).verify()) == []


def name_schema_in(written: SmallCheckpoint, checkpoint: str) -> None:
    """Store a schema file, and its path in the operator's metadata as one of ``checkpoint``."""
    path = written.folder / "state/0/_metadata/metadata"
    version, _, text = path.read_text().partition("\n")
    metadata = json.loads(text)
    name = "state/0/_stateSchema/default/0_a"
    metadata["stateStoreInfo"][0]["stateSchemaFilePaths"] = [f"{checkpoint}/{name}"]
    path.write_text(f"{version}\n{json.dumps(metadata)}")
    schema = written.folder / name
    schema.parent.mkdir(parents=True)
    schema.write_bytes((written.folder / "state/0/0/_metadata/schema").read_bytes())


def test_the_batch_that_runs_is_no_finding(written: SmallCheckpoint) -> None:
    """A running query has always planned a batch that is not committed yet."""
    (written.folder / "commits/3").unlink()

    assert findings_of(written) == []


def spoil_entry(folder: Path) -> None:
    """Cut an entry of the offset log."""
    path = folder / "offsets/1"
    path.write_bytes(path.read_bytes()[:10])


def misplace(folder: Path) -> None:
    """Store a key in another partition than its own."""
    other = (partition_of_user(500) + 1) % PARTITIONS
    rows = plain([("put", key_row(500), value_row(1, 1))])
    (folder / f"state/0/{other}/4.delta").write_bytes(compressed(rows))


def rename_query(folder: Path) -> None:
    """Spoil the file with the id of the query."""
    (folder / "metadata").write_text("{}")


@pytest.mark.parametrize(
    ("rule", "name", "harm"),
    [
        ("query-id", "metadata", rename_query),
        ("log-entry", "offsets/1", spoil_entry),
        ("log-hole", "offsets/2", lambda ck: (ck / "offsets/2").unlink()),
        ("log-hole", "commits/1", lambda ck: (ck / "commits/1").unlink()),
        ("commit-without-plan", "offsets/3", lambda ck: (ck / "offsets/3").unlink()),
        (
            "planned-ahead",
            "offsets/3",
            lambda ck: [(ck / f"commits/{batch}").unlink() for batch in (2, 3)],
        ),
        (
            "operator-metadata",
            "_metadata/metadata",
            lambda ck: (ck / "state/0/_metadata/metadata").write_bytes(b"v1\n{"),
        ),
        ("state-unreadable", "0/1/3.delta", lambda ck: (ck / "state/0/1/3.delta").unlink()),
        ("wrong-partition", None, misplace),
    ],
)
def test_a_broken_rule_is_found(
    written: SmallCheckpoint, rule: str, name: str | None, harm: Callable[[Path], object]
) -> None:
    """The finding names the object, and says what it means and what to do."""
    harm(written.folder)

    findings = findings_of(written)

    (found,) = [finding for finding in findings if finding.rule == rule]
    assert (found.object_name or "").endswith(name or "")
    assert found.meaning
    assert found.cure
    assert rule in str(found)


def test_a_moved_checkpoint_is_found(written: SmallCheckpoint) -> None:
    """Spark goes on reading the schema at the old place, until someone deletes that."""
    name_schema_in(written, "file:/old/place")

    assert [finding.rule for finding in findings_of(written)] == ["schema-elsewhere"]


def test_progress_counts_the_partitions(written: SmallCheckpoint) -> None:
    """A check of a large state takes hours, and must show that it goes on."""
    seen: list[tuple[int, int]] = []

    list(cairn.open_checkpoint(str(written.folder)).verify(lambda *done: seen.append(done)))

    assert seen == [(number, PARTITIONS) for number in range(1, PARTITIONS + 1)]


def test_an_object_that_retention_deletes_meanwhile_is_no_fault_of_the_query(
    written: SmallCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of a large state takes longer than a fast query keeps a batch."""
    (written.folder / "state/0/1/3.delta").unlink()
    real = logs.list_batches
    seen: list[Batches] = []

    def list_batches(objects: ObjectStore) -> Batches:
        if seen:
            written.commit({})
        seen.append(real(objects))
        return seen[-1]

    monkeypatch.setattr(verifying, "list_batches", list_batches)

    assert {finding.rule for finding in findings_of(written)} == {"query-went-on"}


def test_state_that_the_reader_does_not_know_is_no_damage(tmp_path: Path) -> None:
    """Who is told that the query cannot go on would throw batches away."""
    written = SmallCheckpoint(tmp_path / "ck", value_type="string")
    written.commit_stored({1: struct.pack("<qII", 0, 1, 16) + b"\xff".ljust(8, b"\0")})

    (finding,) = findings_of(written)

    assert (finding.rule, finding.severity) == ("state-unsupported", "error")
    assert "column 'value': a text is not UTF-8" in finding.message


def test_every_rule_is_in_the_document() -> None:
    """A person who meets a finding looks for its name."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "reader.md").read_text()

    for name, rule in RULES.items():
        assert f"| `{name}` | {rule.severity} | {rule.meaning} | {rule.cure} |" in page


def test_every_rule_says_what_to_do() -> None:
    """A finding without a next step leaves its reader where he was."""
    for rule in RULES.values():
        assert rule.meaning.endswith(".")
        assert not rule.cure.endswith(".")
