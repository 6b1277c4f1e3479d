"""The checkpoint is on S3: the number of requests, and recovery after the driver was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.differential import Run
from harness.events import Events
from harness.job import Query, continue_after_a_kill
from harness.operators import BY_NAME
from harness.s3 import S3Bucket
from harness.s3_audit import AuditedS3
from harness.spark import STATE_STORE, SUBJECT, s3a_conf

pytestmark = pytest.mark.usefixtures("driver")

FILES = 5
PARTITIONS = 2
FIRST_COUNTED_BATCH = 2


def test_a_commit_costs_one_put_per_partition_and_nothing_else(
    s3_audited: AuditedS3, tmp_path: Path
) -> None:
    """Users pay per request, and each additional request adds latency to every batch."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    # Without snapshots: these look first whether the checkpoint is still the same one.
    conf = s3a_conf(s3_audited.settings) | {STATE_STORE + "minDeltasForSnapshot": "1000"}
    checkpoint = f"{s3_audited.url}/query"
    run = Run(BY_NAME["windows_update"], events, checkpoint, SUBJECT, 2, conf)
    run.before_batch[FIRST_COUNTED_BATCH] = s3_audited.restart_count

    run.advance()

    commits = PARTITIONS * (run.record.last_batch + 1 - FIRST_COUNTED_BATCH)
    # One probe per worker and bucket; in checkpoint format 2 it runs before the first snapshot.
    other = ("/snapshot/", "/sst/", "/.cairn-probe-")
    s3_audited.assert_only("query/state/", {"PutObject": commits}, leave_out=other)


def test_a_query_continues_from_s3_after_its_driver_was_killed(
    s3_bucket: S3Bucket, tmp_path: Path
) -> None:
    """New executors in a cloud have nothing but the bucket."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    conf = s3a_conf(s3_bucket.settings)
    query = Query("distinct", events, f"{s3_bucket.url}/query", SUBJECT, 2, conf)

    job = continue_after_a_kill(query, tmp_path)

    assert job.all_rows() == query.batch_rows()
