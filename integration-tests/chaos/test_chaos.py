"""The schedule of a chaos run, and a short run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from chaos.leftovers import Leftovers
from chaos.run import OPERATORS, Options, run
from chaos.schedule import KINDS, schedule
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import STATE_STORE, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

SEED = 11
# Each kind that needs no restart of the driver: one of those takes as long as this whole run.
SLOW_KINDS = frozenset({"kill_driver", "s3_away", "second_driver"})


def test_a_seed_repeats_its_schedule_and_has_every_kind() -> None:
    """A run that found a fault must be repeatable."""
    faults = schedule(SEED, minutes=60, every_s=3, without=frozenset())

    assert faults == schedule(SEED, minutes=60, every_s=3, without=frozenset())
    assert faults != schedule(SEED + 1, minutes=60, every_s=3, without=frozenset())
    assert {fault.kind for fault in faults} == {kind.name for kind in KINDS}
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a run with a snapshot of most versions."""
    folder = tmp_path_factory.mktemp("leftovers")
    events = Events(folder / "input")
    events.add_files(0, 9)
    conf = {
        STATE_STORE + "minDeltasForSnapshot": "1",
        STATE_STORE + "maintenanceInterval": "100ms",
        "spark.sql.streaming.minBatchesToRetain": "100",
    }
    run = Run(BY_NAME["windows_update"], events, str(folder / "checkpoint"), SUBJECT, 2, conf)
    run.advance()
    return Path(run.checkpoint)


@pytest.fixture
def store(checkpoint: Path, tmp_path: Path) -> Path:
    """Return a copy of it: the folder of one store."""
    shutil.copytree(checkpoint, tmp_path / "copy")
    return tmp_path / "copy" / "state" / "0" / "0"


def leftovers(store: Path) -> Leftovers:
    """Return the check of a copy."""
    return Leftovers(str(store.parents[2]), {}, 3)


def versions(store: Path, kind: str) -> list[int]:
    """Return the versions of a store that have objects of a kind."""
    return sorted(int(path.name.partition("_")[0]) for path in (store / kind).iterdir())


def test_what_a_sweep_finds_is_no_leftover(store: Path) -> None:
    """Lost attempts, failed uploads and dead pins are left by any fault; none may stay."""
    upload = "0123456789abcdef"
    (store / "pin").mkdir()
    orphans = [
        store / "sst" / f"{upload}{upload}.sst",
        store / "pin" / f"upload-{upload}_1.json",
        store / "changelog" / f"1_u{upload * 2}.arrow",
        store / "snapshot" / f"1_u{upload * 2}.json",
    ]
    manifest = next((store / "snapshot").iterdir())
    for orphan in orphans:
        orphan.write_bytes(manifest.read_bytes())
    check = leftovers(store)

    assert check.findings() == []

    assert check.stores == 2
    assert check.deleted > len(orphans)
    assert not [orphan for orphan in orphans if orphan.exists()]
    assert min(versions(store, "changelog")) > versions(store, "snapshot")[0] > 1


@pytest.mark.parametrize("name", ["sst/x.sst", "changelog/1.arrow.tmp", "pin/other", "stray"])
def test_what_no_sweep_finds_is_a_finding(store: Path, name: str) -> None:
    """A name that the clean-up does not know stays, and costs, for ever."""
    (store / name).parent.mkdir(exist_ok=True)
    (store / name).write_bytes(b"left")

    (finding,) = leftovers(store).findings()

    assert f"nothing deletes {name}" in finding


def test_a_sweep_that_does_nothing_is_found(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check must not take Cairn's word for what is needed."""
    monkeypatch.setattr("chaos.leftovers.sweep_orphans", lambda *_, **__: 0)
    orphan = store / "sst" / f"{'0' * 32}.sst"
    orphan.write_bytes(b"left")

    (finding,) = leftovers(store).findings()

    assert orphan.name in finding


@pytest.mark.parametrize("kind", ["changelog", "snapshot", "sst"])
def test_an_object_that_a_retained_version_needs_is_missed(store: Path, kind: str) -> None:
    """A clean-up that deletes too much is worse than one that leaves something."""
    (changelog,) = store.glob(f"changelog/{max(versions(store, 'changelog'))}_*")
    with pa.ipc.open_stream(changelog.read_bytes()) as stream:
        base = json.loads(stream.schema.metadata[b"cairn.header"])["base"]
    manifest = store / "snapshot" / f"{base['version']}_{base['checkpoint_id']}.json"
    sst = store / json.loads(manifest.read_text())["files"][0]["object"]
    {"changelog": changelog, "snapshot": manifest, "sst": sst}[kind].unlink()

    findings = leftovers(store).findings()

    assert len(findings) == 1
    assert "retained versions" in findings[0]


def test_a_short_run_changes_no_row_and_leaves_nothing(tmp_path: Path) -> None:
    """Faults of processes, storage and objects at the same time must not lose or repeat a row."""
    options = Options(SEED, 0.5, 1.5, [OPERATORS[1], OPERATORS[2]], SLOW_KINDS)

    outcome = run(tmp_path, options)

    assert not outcome.findings, "\n".join(outcome.findings)
    assert len({fault.kind for fault, _ in outcome.hits}) > len(SLOW_KINDS)
