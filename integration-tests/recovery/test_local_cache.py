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


def run_job(
    folder: Path, query: Query, conf: dict[str, str], batch: int, *, is_killed: bool = False
) -> int:
    """Run a job, which reaches a batch, to its end, or kill it there; return its last batch.

    Its engines must end too.
    """
    job = JobProcess(folder, [query], conf, pause_s=1)
    try:
        job.wait_for_batch(batch)
        engines = job.engines()
        assert engines
        if is_killed:
            job.jvm().kill()
        code = job.wait()
        # The end of the JVM tells them to end.
        assert not wait_until_ended(engines, timeout_s=15)
    finally:
        job.end()
    assert is_killed or code == 0, job.tail()
    return max(job.rows())


def test_a_restart_on_the_same_machine_downloads_no_sst(
    s3_audited: AuditedS3, tmp_path: Path
) -> None:
    """Each start of a large query would download all of its state: after a kill, after an end."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    local = tmp_path / "local"
    conf = {CAIRN_CONF + "localDir": str(local)}
    s3 = s3a_conf(s3_audited.settings)
    query = Query("windows_append", events, f"{s3_audited.url}/query", SUBJECT, 2, s3)
    job = tmp_path / "job"
    last = run_job(job, query, conf, KILL_AFTER_BATCH, is_killed=True)

    for number, end in enumerate(("kill -9", "orderly end")):
        assert local_files(local) == ["cairn-cache-"], end
        events.add_files(FILES + number, 1)
        s3_audited.restart_count()
        last = run_job(job, query, conf, last + 1)

        assert downloads(s3_audited, "snapshot") > 0, f"after a {end} no snapshot was loaded"
        assert downloads(s3_audited, "sst") == 0, end
