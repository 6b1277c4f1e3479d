"""Nothing that a run on S3 leaves behind, or shows while it runs, contains a secret."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.event_log import event_log_conf
from harness.events import Events
from harness.heap_dump import HeapDump, write_heap_dump
from harness.job import JobProcess, Query
from harness.processes import Process
from harness.s3 import S3Bucket, S3Endpoint, fresh_bucket
from harness.s3_servers import temporary_keys, trust_options
from harness.secret_search import Found, of_bucket, of_folder, of_process, with_secret
from harness.spark import CAIRN_CONF, JVM_OPTIONS, REPOSITORY, STATE_STORE, SUBJECT, s3a_conf

pytestmark = pytest.mark.usefixtures("driver")

FILES = 4
KILL_AFTER_BATCH = 1
TOKEN = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""The form of a worker's token."""

PASSWORD = "recognised-proxy-password"  # noqa: S105 - no real one
CUSTOMER_KEY = base64.b64encode(b"recognised-customer-key-32-bytes").decode()
# As SECURITY.md says: Spark's own does not match the customer's key.
REDACTION = "(?i)secret|password|token|access[.]?key|encryption[.]key|external[.]id"
TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
CAIRN = "io.cairn."
DUMP_IN_BATCH = 1
LONG_PAUSE_S = 15
# What holds secrets by its nature: settings, clients, and the buffers of Py4J.
OF_OTHERS = ("org.apache.hadoop.", "org.apache.spark.", "software.amazon.", "py4j.")


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
        shown = [found for one in [job.jvm(), *job.engines()] for found in shown_by(one)]
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


@pytest.mark.slow  # In `make test` a worker alone has these: python/tests/engine/test_secrets.py
def test_a_run_leaves_no_session_token_proxy_password_or_customer_key(
    s3_binary_server: S3Endpoint, tls_server: S3Endpoint, tmp_path: Path
) -> None:
    """They are given to fewer clusters, and are as secret.

    MinIO takes a request to a proxy as one to itself, so it is its own proxy. With TLS it accepts
    the customer's key.
    """
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    with fresh_bucket(s3_binary_server) as plain, fresh_bucket(tls_server) as encrypted:
        settings = plain.settings
        keys = temporary_keys(settings, {"RoleArn": "arn:minio:iam:::role/cairn"})
        by_proxy = by_proxy_conf(settings, keys)
        with_key = with_key_conf(encrypted, tls_server)
        queries = [
            Query("distinct", events, f"{plain.url}/one", SUBJECT, 2, by_proxy),
            Query("distinct", events, f"{encrypted.url}/two", SUBJECT, 2, with_key),
        ]
        for refused in (by_proxy, with_key):
            wrong = {**refused, CAIRN_CONF + "s3.region": "wrong region"}
            queries.append(Query("distinct", events, f"{plain.url}/three", SUBJECT, 2, wrong))
        queries[3] = replace(queries[3], checkpoint=f"{encrypted.url}/four")
        options = f"{JVM_OPTIONS} {trust_options(str(tls_server.ca_bundle), tmp_path)}"
        logs = tmp_path / "event-log"
        logs.mkdir()
        job = JobProcess(
            tmp_path / "job",
            queries,
            {
                **event_log_conf(logs),
                "spark.redaction.regex": REDACTION,
                "spark.log.level": "INFO",
                "spark.driver.extraJavaOptions": options,
                CAIRN_CONF + "localDir": str(tmp_path / "local"),
            },
            pause_s=1,
        )
        shown: list[Found] = []
        try:
            for number in range(2):
                job.wait_for_batch(KILL_AFTER_BATCH, number)
                shown += [found for one in [job.jvm(), *job.engines()] for found in shown_by(one)]
                job.engines()[0].kill()
            code = job.wait()
        finally:
            job.end()
        left = [*shown, *of_folder(tmp_path, leave_out=tmp_path / "job" / "job.json")]
        left += of_bucket(plain)

    assert code == 0, job.tail()
    for number in range(2):
        assert job.all_rows(number) == queries[number].batch_rows(), job.error(number)
        assert job.error(2 + number)
    kinds = {kind_of(name) for name, _ in left}
    assert kinds >= {"cmdline", "environ", "job.log", "event log", "error.txt", ".sst", ".arrow"}
    assert f"`{REDACTION}`" in (REPOSITORY / "SECURITY.md").read_text()
    secrets = [keys["secret_key"], keys["session_token"], PASSWORD, CUSTOMER_KEY]
    assert {one: with_secret(left, one) for one in secrets} == {one: [] for one in secrets}


@pytest.mark.slow  # Heap dumps. In `make test` the test above searches all that a run leaves.
def test_no_object_of_cairn_s_holds_a_secret(
    s3_binary_server: S3Endpoint, tls_server: S3Endpoint, tmp_path: Path
) -> None:
    """Heap dumps are sent around. Hadoop's settings have the key, and Cairn keeps no other copy.

    Each dump is taken in a pause of the sink: the tasks have ended, and Spark's files of the batch
    are written before and after it. The maintenance does not run, so no call that sends a secret is
    under way.
    """
    events = Events(tmp_path / "input")
    events.add_files(0, DUMP_IN_BATCH + 1)
    known = str(tmp_path / "local")
    with fresh_bucket(s3_binary_server) as plain, fresh_bucket(tls_server) as encrypted:
        keys = temporary_keys(plain.settings, {"RoleArn": "arn:minio:iam:::role/cairn"})
        by_proxy = by_proxy_conf(plain.settings, keys)
        with_key = with_key_conf(encrypted, tls_server)
        secrets = [
            [keys["secret_key"], keys["session_token"], PASSWORD],
            [encrypted.endpoint.secret_key, CUSTOMER_KEY],
        ]
        queries = [
            Query("windows_update", events, f"{plain.url}/heap", SUBJECT, 2, by_proxy),
            Query("windows_update", events, f"{encrypted.url}/heap", SUBJECT, 2, with_key),
        ]
        options = f"{JVM_OPTIONS} {trust_options(str(tls_server.ca_bundle), tmp_path)}"
        conf = {
            "spark.driver.extraJavaOptions": options,
            STATE_STORE + "maintenanceInterval": "1h",
            CAIRN_CONF + "localDir": known,
        }
        job = JobProcess(tmp_path / "job", queries, conf, pause_s=LONG_PAUSE_S)
        dumps = [tmp_path / f"heap-{number}" for number in range(len(queries))]
        try:
            for number, dump in enumerate(dumps):
                job.wait_for_pause(DUMP_IN_BATCH, number)
                write_heap_dump(job.jvm().pid, dump)
                assert DUMP_IN_BATCH not in job.rows(number), "the pause was over"
        finally:
            job.end()

    for dump, of_query in zip(dumps, secrets, strict=True):
        heap = HeapDump(dump, CAIRN)
        # They are there, in Hadoop's settings; and the search finds what Cairn holds.
        assert [secret for secret in of_query if not heap.contains(secret)] == []
        assert heap.paths_to(known, OF_OTHERS)
        paths = {secret: heap.paths_to(secret, OF_OTHERS) for secret in of_query}
        assert paths == {secret: [] for secret in of_query}


def test_a_secret_is_found_where_it_is(tmp_path: Path) -> None:
    """A search that finds nothing would always pass: also in what is compressed."""
    (tmp_path / "log").write_text("at Worker: key=hidden-secret")
    (tmp_path / "clean").write_text("nothing")
    vectors = Path(__file__).parents[2] / "spec" / "vectors" / "changelog"
    (tmp_path / "1.arrow").write_bytes((vectors / "all_ops.arrow").read_bytes())

    left = list(of_folder(tmp_path))

    assert [Path(name).name for name in with_secret(left, "hidden-secret")] == ["log"]
    assert [Path(name).name for name in with_secret(left, "value-a")] == ["1.arrow"]


def by_proxy_conf(settings: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, str]:
    """Return settings with temporary keys, by a proxy with a password: MinIO is its own."""
    proxy = urlsplit(settings["endpoint_url"])
    return {
        **s3a_conf({**settings, **keys}),
        "fs.s3a.session.token": keys["session_token"],
        "fs.s3a.aws.credentials.provider": TEMPORARY,
        "fs.s3a.proxy.host": str(proxy.hostname),
        "fs.s3a.proxy.port": str(proxy.port),
        "fs.s3a.proxy.username": "cairn",
        "fs.s3a.proxy.password": PASSWORD,
    }


def with_key_conf(bucket: S3Bucket, server: S3Endpoint) -> dict[str, str]:
    """Return settings with the customer's key, which MinIO accepts with TLS only."""
    return {
        **s3a_conf(bucket.settings),
        "fs.s3a.connection.ssl.enabled": "true",
        "fs.s3a.encryption.algorithm": "SSE-C",
        "fs.s3a.encryption.key": CUSTOMER_KEY,
        CAIRN_CONF + "s3.caBundle": str(server.ca_bundle),
    }


def shown_by(process: Process) -> Iterator[Found]:
    """Yield what can be read of a process."""
    return of_process(process.pid, process.command[:60])


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
