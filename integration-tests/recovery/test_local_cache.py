"""The SST cache under `localDir` outlives the driver: a restart downloads no SST that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.events import Events
from harness.job import JobProcess, Query
from harness.processes import wait_until_ended
from harness.s3_audit import AuditedS3
from harness.spark import CAIRN_CONF, SUBJECT, s3a_conf

pytestmark = pytest.mark.usefixtures("driver")

FILES = 6
KILL_AFTER_BATCH = 4


def local_files(folder: Path) -> list[str]:
    """Return the names under the engine's local directory."""
    return sorted(path.name.rstrip("0123456789") for path in folder.iterdir())


def downloads(s3: AuditedS3, kind: str) -> int:
    """Count the GETs of one kind of objects since the last count."""
    return sum(
        entry.api == "GetObject" and f"/{kind}/" in entry.key and "cairn" in entry.user_agent
        for entry in s3.settled()
    )


@pytest.mark.slow  # python/tests/engine/test_worker_life.py has both for a worker in `make test`.
@pytest.mark.parametrize("is_killed", [False, True], ids=["orderly end", "kill -9"])
def test_a_restart_on_the_same_machine_downloads_no_sst(
    s3_audited: AuditedS3, tmp_path: Path, *, is_killed: bool
) -> None:
    """Each start of a large query would download all of its state."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    local = tmp_path / "local"
    conf = {CAIRN_CONF + "localDir": str(local)}
    s3 = s3a_conf(s3_audited.settings)
    query = Query("windows_append", events, f"{s3_audited.url}/query", SUBJECT, 2, s3)
    first = JobProcess(tmp_path / "job", [query], conf, pause_s=1)
    try:
        first.wait_for_batch(KILL_AFTER_BATCH if is_killed else 0)
        engines = first.engines()
        if is_killed:
            first.jvm().kill()
        first.wait()
        # The end of the JVM tells them to end.
        assert not wait_until_ended(engines, timeout_s=15)
    finally:
        first.end()
    left = local_files(local)
    events.add_files(FILES, 1)
    s3_audited.restart_count()
    second = JobProcess(tmp_path / "job", [query], conf)
    try:
        code = second.wait()
    finally:
        second.end()

    assert code == 0, second.tail()
    assert left == ["cairn-cache-"]
    assert downloads(s3_audited, "snapshot") > 0, "no store was loaded from a snapshot"
    assert downloads(s3_audited, "sst") == 0
