"""The checkpoint is on S3: what it costs in requests, and what a killed driver finds there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.differential import Run
from harness.events import Events
from harness.job import JobProcess, Query
from harness.operators import BY_NAME
from harness.s3 import S3Bucket
from harness.s3_audit import AuditedS3
from harness.spark import SUBJECT, new_session, s3a_conf

pytestmark = pytest.mark.usefixtures("driver")

FILES = 5
PARTITIONS = 2
FIRST_COUNTED_BATCH = 2
KILL_AFTER_BATCH = 1


def test_a_commit_costs_one_put_a_partition_and_nothing_else(
    s3_audited: AuditedS3, tmp_path: Path
) -> None:
    """People pay by the request, and each one more is latency in every batch."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    conf = s3a_conf(s3_audited.settings)
    checkpoint = f"{s3_audited.url}/query"
    run = Run(BY_NAME["windows_update"], events, checkpoint, SUBJECT, 2, conf)
    run.before_batch[FIRST_COUNTED_BATCH] = s3_audited.restart_count

    run.advance()

    commits = PARTITIONS * (run.record.last_batch + 1 - FIRST_COUNTED_BATCH)
    # The probe comes once a worker and bucket, in checkpoint format 2 with the first snapshot.
    other = ("/snapshot/", "/sst/", "/.cairn-probe-")
    s3_audited.assert_only("query/state/", {"PutObject": commits}, leave_out=other)


def test_a_killed_driver_goes_on_from_s3(s3_bucket: S3Bucket, tmp_path: Path) -> None:
    """Executors in a cloud have nothing but the bucket when they come back."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    conf = s3a_conf(s3_bucket.settings)
    query = Query("distinct", events, f"{s3_bucket.url}/query", SUBJECT, 2, conf)
    first = JobProcess(tmp_path / "job", [query], pause_s=1)
    try:
        first.wait_for_batch(KILL_AFTER_BATCH)
        first.jvm().kill()
        first.wait()
        reached = set(first.rows())
    finally:
        first.end()
    second = JobProcess(tmp_path / "job", [query])
    try:
        code = second.wait()
    finally:
        second.end()

    assert code == 0, second.tail()
    assert not second.error(), second.error()
    assert len(reached) < FILES, "the job had ended before it was killed"
    given = sorted(row for rows in second.rows().values() for row in rows)
    expected = BY_NAME["distinct"].batch(new_session({}), events)
    assert given == sorted(map(repr, expected.collect()))
