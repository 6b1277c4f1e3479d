"""The checkpoints of Spark's own tests, which Spark 2.3 to 4.0 wrote, go to each provider.

Their rows are read back. What a provider cannot have is refused with the reason.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

import cairn
from cairn.errors import NotThereError, UnsupportedStateError
from cairn.reader.spark.logs import Provider
from harness.state_cases import families_of, rows_of

NO_SCHEMA = "no schema of these rows: the query began before Spark 3.1"
NO_FAMILIES = "Spark's HDFS-backed provider cannot run operator 0, transformWithStateExec"
REFUSED = {
    "2.1.0": "not committed a batch",
    "2.3.1-flatMapGroupsWithState-state-format-1": NO_SCHEMA,
    "2.3.1-streaming-aggregate-state-format-1": NO_SCHEMA,
    "2.3.1-without-commit-log-metadata": NO_SCHEMA,
    "2.4.0-streaming-join": NO_SCHEMA,
    "2.4.5-for-compatibility-test-common-functions": NO_SCHEMA,
    "2.4.5-for-compatibility-test-deduplicate": NO_SCHEMA,
    "2.4.5-for-compatibility-test-statistical-functions": NO_SCHEMA,
    "2.4.5-for-compatibility-test-sum-decimal": NO_SCHEMA,
    "3.0.0-streaming-statestore-codec": NO_SCHEMA,
    "4.0.0-tws-avro": "without ids of their schemas",
}
REFUSED_OF_HDFS = REFUSED | {"4.0.0-tws-avro": NO_FAMILIES, "4.0.0-tws-unsaferow": NO_FAMILIES}

GOLDEN = Path(__file__).resolve().parents[2] / ".build" / "golden-checkpoints"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return copies of the checkpoints by their names: nothing may write into the folder."""
    if not GOLDEN.is_dir():
        raise RuntimeError("there are no checkpoints of Spark's tests: run `make golden`")
    copy = tmp_path_factory.mktemp("golden") / "copy"
    shutil.copytree(GOLDEN, copy)
    return {
        offsets.parent.relative_to(copy)
        .as_posix()
        .removeprefix("checkpoint-version-"): offsets.parent
        for offsets in sorted(copy.rglob("offsets"))
    }


def rows(folder: Path) -> dict[tuple[int, str], Counter[str]]:
    """Return the rows of all families."""
    with cairn.open_checkpoint(str(folder)) as checkpoint:
        return {
            (family.operator.id, family.name): Counter(map(repr, rows_of(checkpoint, family).rows))
            for family in families_of(checkpoint)
        }


@pytest.mark.parametrize("provider", ["cairn", "rocksdb", "hdfs"])
def test_old_checkpoints_are_moved(
    golden: dict[str, Path], tmp_path: Path, provider: Provider
) -> None:
    """A query that has run for years has logs, schemas and metadata of an old Spark."""
    reasons = REFUSED_OF_HDFS if provider == "hdfs" else REFUSED
    refused = {}
    for name, folder in golden.items():
        target = tmp_path / name
        try:
            with cairn.migrate(str(folder), to=str(target), provider=provider) as plan:
                plan.apply(processes=1)
        except (UnsupportedStateError, NotThereError) as failure:
            refused[name] = failure.message
            assert not target.exists()
            continue
        assert rows(target) == rows(folder), name

    assert refused.keys() == reasons.keys()
    assert [name for name, reason in reasons.items() if reason not in refused[name]] == []
