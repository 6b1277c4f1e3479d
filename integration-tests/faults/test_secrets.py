"""Nothing that a run on S3 leaves behind, or shows while it runs, contains a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cairn.format import changelog
from harness.events import Events
from harness.heap_dump import HeapDump, write_heap_dump
from harness.job import JobProcess, Query
from harness.processes import Process
from harness.s3 import S3Bucket
from harness.spark import CAIRN_CONF, SUBJECT, s3a_conf

pytestmark = pytest.mark.usefixtures("driver")

FILES = 4
KILL_AFTER_BATCH = 1
TOKEN = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""The form of a worker's token."""

CAIRN = "io.cairn."
HEAP_DUMPS = 3
# What holds secrets by its nature: settings, clients, and the buffers of Py4J.
OF_OTHERS = ("org.apache.hadoop.", "org.apache.spark.", "software.amazon.", "py4j.")

Found = tuple[str, bytes]


def test_a_run_on_s3_leaves_no_secret_anywhere(s3_bucket: S3Bucket, tmp_path: Path) -> None:
    """Logs, event logs and checkpoints are copied to places where more people may read them.

    The run has both checkpoint formats, snapshots, a worker killed in a batch, and a query whose
    settings the storage refuses.
    """
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    conf = s3a_conf(s3_bucket.settings)
    refused = {**conf, CAIRN_CONF + "s3.region": "wrong region"}
    unreachable = {**conf, CAIRN_CONF + "s3.endpoint": "http://127.0.0.1:1"}
    queries = [
        Query("distinct", events, f"{s3_bucket.url}/one", SUBJECT, 2, conf),
        Query("windows_update", events, f"{s3_bucket.url}/two", SUBJECT, 1, conf),
        Query("windows_update", events, f"{s3_bucket.url}/three", SUBJECT, 1, refused),
        Query("windows_update", events, f"{s3_bucket.url}/four", SUBJECT, 2, unreachable),
    ]
    (tmp_path / "event-log").mkdir()
    job = JobProcess(
        tmp_path / "job",
        queries,
        {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (tmp_path / "event-log").as_uri(),
            "spark.log.level": "INFO",
            CAIRN_CONF + "localDir": str(tmp_path / "local"),
        },
        pause_s=1,
    )
    try:
        job.wait_for_batch(KILL_AFTER_BATCH)
        shown = [found for one in [job.jvm(), *job.engines()] for found in of_process(one)]
        job.engines()[0].kill()
        code = job.wait()
    finally:
        job.end()
    left = [*shown, *of_folder(tmp_path, leave_out=tmp_path / "job" / "job.json")]
    left += of_bucket(s3_bucket)

    assert code == 0, job.tail()
    assert job.all_rows() == queries[0].batch_rows()
    assert job.error(2)
    assert job.error(3)
    kinds = {kind_of(name) for name, _ in left}
    assert kinds >= {"cmdline", "environ", "job.log", "event log", "error.txt"}
    assert kinds >= {".sst", ".arrow", ".json", "offsets", "commits"}
    assert with_secret(left, s3_bucket.endpoint.secret_key) == []
    tokens = [name for name, data in shown if "cmdline" in name and TOKEN.search(data)]
    assert tokens + [name for name, data in left if "job.log" in name and TOKEN.search(data)] == []


@pytest.mark.slow  # Three heap dumps. In `make test` the test above searches all that a run leaves.
def test_no_object_of_cairn_s_holds_a_secret(s3_bucket: S3Bucket, tmp_path: Path) -> None:
    """Heap dumps are sent around. Hadoop's settings have the key, and Cairn keeps no other copy."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    conf = s3a_conf(s3_bucket.settings)
    query = Query("windows_update", events, f"{s3_bucket.url}/heap", SUBJECT, 2, conf)
    known = str(tmp_path / "local")
    job = JobProcess(tmp_path / "job", [query], {CAIRN_CONF + "localDir": known}, pause_s=2)
    dumps = [tmp_path / f"heap-{number}" for number in range(HEAP_DUMPS)]
    try:
        for batch, dump in enumerate(dumps):
            job.wait_for_batch(batch)
            write_heap_dump(job.jvm().pid, dump)
    finally:
        job.end()

    # A dump may be taken in a call that sends the secret: one of them is between two calls.
    for dump in dumps:
        heap = HeapDump(dump, CAIRN)
        # It is there, in Hadoop's settings; and the search finds what Cairn holds.
        assert heap.contains(s3_bucket.endpoint.secret_key)
        assert heap.paths_to(known, OF_OTHERS)
        paths = heap.paths_to(s3_bucket.endpoint.secret_key, OF_OTHERS)
        if not paths:
            return
    pytest.fail(f"in all dumps Cairn holds the secret: {paths}")


def test_a_secret_is_found_where_it_is(tmp_path: Path) -> None:
    """A search that finds nothing would always pass: also in what is compressed."""
    (tmp_path / "log").write_text("at Worker: key=hidden-secret")
    (tmp_path / "clean").write_text("nothing")
    vectors = Path(__file__).parents[2] / "spec" / "vectors" / "changelog"
    (tmp_path / "1.arrow").write_bytes((vectors / "all_ops.arrow").read_bytes())

    left = list(of_folder(tmp_path))

    assert [Path(name).name for name in with_secret(left, "hidden-secret")] == ["log"]
    assert [Path(name).name for name in with_secret(left, "value-a")] == ["1.arrow"]


def of_process(process: Process) -> Iterator[Found]:
    """Yield what every user, or the process's own user, can read of it."""
    for what in ("cmdline", "environ"):
        path = Path(f"/proc/{process.pid}/{what}")
        yield f"{process.command[:60]} {what}", path.read_bytes()


def of_folder(folder: Path, leave_out: Path | None = None) -> Iterator[Found]:
    """Yield all files below a folder, except the specification that the test itself wrote."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path != leave_out:
            yield from of_object(str(path), path.read_bytes())


def of_bucket(bucket: S3Bucket) -> Iterator[Found]:
    """Yield all objects with their metadata."""
    client = bucket.endpoint.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket.name):
        for item in page.get("Contents", []):
            answer = client.get_object(Bucket=bucket.name, Key=item["Key"])
            yield f"{item['Key']} metadata", repr(answer["Metadata"]).encode()
            yield from of_object(item["Key"], answer["Body"].read())
    client.close()


def of_object(name: str, data: bytes) -> Iterator[Found]:
    """Yield an object's bytes; of a changelog also its rows, which are compressed."""
    yield name, data
    if name.endswith(".arrow"):
        found = changelog.decode(data, object_name=name)
        yield name, b"\n".join(value or b"" for value in found.table["value"].to_pylist())


def kind_of(name: str) -> str:
    """Return what a place is: the end of its name, or its folder."""
    path = Path(name.removesuffix(" metadata"))
    if path.parent.name in ("offsets", "commits"):
        return path.parent.name
    if "event-log" in path.parts:
        return "event log"
    if path.suffix in (".sst", ".arrow", ".json"):
        return path.suffix
    return path.name.split(" ")[-1]


def with_secret(left: Iterable[Found], secret: str) -> list[str]:
    """Return the places that have the secret, as text in one of two encodings."""
    forms = (secret.encode(), secret.encode("utf-16-le"))
    return sorted({name for name, data in left if any(form in data for form in forms)})
