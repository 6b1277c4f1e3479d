"""Whole queries with Cairn's checkpoint file manager: requests, two drivers, lost answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.differential import Run
from harness.events import Events
from harness.job import JobProcess, Query
from harness.operators import BY_NAME
from harness.processes import wait_until
from harness.spark import SUBJECT, s3a_conf
from harness.tcp_proxy import Fault, TcpProxy

if TYPE_CHECKING:
    from pathlib import Path

    from harness.s3 import S3Bucket, S3Endpoint
    from harness.s3_audit import AuditedS3

pytestmark = pytest.mark.usefixtures("driver")

BATCHES = 14
FIRST_COUNTED_BATCH = 2


def run_on(bucket_url: str, settings: dict[str, str], folder: Path, files: int, **conf: str) -> Run:
    """Return a query with one input file per batch and its checkpoint in the bucket."""
    events = Events(folder / "input")
    events.add_files(0, files)
    return Run(
        BY_NAME["windows_update"],
        events,
        f"{bucket_url}/query",
        SUBJECT,
        2,
        {**s3a_conf(settings), **conf},
    )


def test_a_batch_writes_offsets_and_commit_and_asks_nothing(
    s3_audited: AuditedS3, tmp_path: Path
) -> None:
    """Spark's own manager sends fifty requests for them. The file source has a log of its own."""
    # Offsets and commits are purged; a file source lists its log only after five more batches.
    purge = {"spark.sql.streaming.minBatchesToRetain": "5"}
    run = run_on(s3_audited.url, s3_audited.settings, tmp_path, BATCHES, **purge)
    run.before_batch[FIRST_COUNTED_BATCH] = s3_audited.restart_count

    run.advance()

    batches = run.record.last_batch + 1 - FIRST_COUNTED_BATCH
    requests = [
        entry
        for entry in s3_audited.settled()
        if entry.key.startswith("query/") and not entry.key.startswith("query/state/")
    ]
    folders = {
        name: [entry.api for entry in requests if entry.key.startswith(f"query/{name}/")]
        for name in ("offsets", "commits", "sources")
    }
    # Batch 2 had written its offsets and its sources when the count began.
    assert folders == {
        "offsets": ["PutObject"] * (batches - 1),
        "commits": ["PutObject"] * batches,
        "sources": ["PutObject"] * (BATCHES - 1 - FIRST_COUNTED_BATCH),
    }
    assert len(requests) == sum(map(len, folders.values())), requests


def test_a_foreign_entry_ends_the_query_and_stays(s3_bucket: S3Bucket, tmp_path: Path) -> None:
    """The entry of a second driver must be neither read as ours nor overwritten."""
    run = run_on(s3_bucket.url, s3_bucket.settings, tmp_path, 5)
    client = s3_bucket.endpoint.client()
    entry = {"Bucket": s3_bucket.name, "Key": "query/commits/2"}
    run.before_batch[2] = lambda: client.put_object(**entry, Body=b"theirs")

    with pytest.raises(Exception, match="Multiple streaming queries are concurrently using"):
        run.advance()

    assert client.get_object(**entry)["Body"].read() == b"theirs"
    client.close()


def test_of_two_drivers_at_least_one_fails(s3_bucket: S3Bucket, tmp_path: Path) -> None:
    """Both would run each batch, and the sink would receive it twice."""
    events = Events(tmp_path / "input")
    events.add_files(0, 10)
    conf = s3a_conf(s3_bucket.settings)
    query = Query("distinct", events, f"{s3_bucket.url}/query", SUBJECT, 2, conf)
    first = JobProcess(tmp_path / "first", [query], pause_s=3)
    second = None
    try:
        first.wait_for_batch(0)
        second = JobProcess(tmp_path / "second", [query])
        jobs = [first, second]
        wait_until(
            lambda: any(job.error() or job.has_ended for job in jobs), 120, "an error", first.tail
        )
        first.hurry()
        codes = [job.wait() for job in jobs]
    finally:
        first.end()
        if second is not None:
            second.end()

    assert codes == [0, 0]
    # Both, if each has created the next entry of one of Spark's logs.
    failed = [job for job in jobs if job.error()]
    assert failed
    for job in failed:
        # Both write offsets and commit of a batch, and the log of the input's files.
        error = job.error()
        found = re.search(
            "Multiple streaming (queries are concurrently using|jobs detected)", error
        )
        assert found, error
        # The cause of Spark's error, or a warning before it if Spark found the other one's entry.
        text = job.log.read_text(errors="replace")
        if "FileStreamSource.fetchMaxOffset" in text:
            continue  # it lists its log twice as it starts: the entry may be among the known ones
        assert "[CAIRN_FENCED] two drivers use one checkpoint" in text
        assert f"{s3_bucket.url}/query/" in text
        assert "end one of the two queries" in text
    if len(failed) == len(jobs):
        again = JobProcess(tmp_path / "again", [query])
        try:
            assert again.wait() == 0
        finally:
            again.end()
        assert not again.error(), again.error()
        jobs.append(again)
    rows = {batch: of_batch for job in jobs for batch, of_batch in job.rows().items()}
    assert sorted(row for batch in rows.values() for row in batch) == query.batch_rows()


@pytest.mark.parametrize("entry", ["offsets/2", "commits/2"])
def test_a_lost_answer_does_not_end_the_query(
    s3_server: S3Endpoint, s3_bucket: S3Bucket, tmp_path: Path, entry: str
) -> None:
    """The network loses an answer now and then; the entry is stored."""
    with TcpProxy(s3_server.endpoint_url) as proxy:
        settings = {**s3_bucket.settings, "endpoint_url": proxy.url}
        run = run_on(s3_bucket.url, settings, tmp_path, 5)
        fault = proxy.add(Fault(b"PUT ", contains=entry.encode(), drops_answer=True))

        run.advance()

    assert fault.applied == 1
    assert run.record.last_batch >= 4
