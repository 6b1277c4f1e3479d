"""The checkpoint file manager, file by file, on real S3."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from harness.checkpoint_files import CheckpointFiles, causes
from harness.spark import driver_jvm, driver_log
from harness.tcp_proxy import Fault, TcpProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.s3 import S3Bucket, S3Endpoint
    from harness.s3_audit import AuditedS3

pytestmark = pytest.mark.usefixtures("driver")

LOG = "query/offsets"
SECOND_DRIVER = "io.cairn.spark.metadata.SecondDriver"
PURGED_PER_REQUEST = 100


def refusal(status: bytes, code: bytes) -> bytes:
    """Return an answer of S3 with an error."""
    body = b"<Error><Code>%b</Code><Message>no</Message></Error>" % code
    head = b"HTTP/1.1 %b\r\nContent-Type: application/xml\r\nConnection: close\r\n" % status
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


CONFLICT = refusal(b"409 Conflict", b"ConditionalRequestConflict")
NOT_IMPLEMENTED = refusal(b"501 Not Implemented", b"NotImplemented")
NOT_ALLOWED = refusal(b"405 Method Not Allowed", b"MethodNotAllowed")


def files_of(bucket: S3Bucket, endpoint_url: str = "", **conf: str) -> CheckpointFiles:
    """Return a new manager of the log's folder, as a driver has it after its start."""
    settings = dict(bucket.settings)
    if endpoint_url:
        settings["endpoint_url"] = endpoint_url
        # Hadoop keeps one client per bucket; this one has another address.
        conf = {"fs.s3a.impl.disable.cache": "true", **conf}
    return CheckpointFiles(f"{bucket.url}/{LOG}", settings, conf)


def stored(bucket: S3Bucket, name: str) -> bytes:
    """Return an object of the log, read by another client."""
    client = bucket.endpoint.client()
    try:
        found = client.get_object(Bucket=bucket.name, Key=f"{LOG}/{name}")
        return bytes(found["Body"].read())
    finally:
        client.close()


def store(bucket: S3Bucket, name: str, content: bytes) -> None:
    """Write an object of the log, as another program would."""
    client = bucket.endpoint.client()
    client.put_object(Bucket=bucket.name, Key=f"{LOG}/{name}", Body=content)
    client.close()


@pytest.fixture
def proxy(s3_server: S3Endpoint) -> Iterator[TcpProxy]:
    """A proxy between manager and server."""
    with TcpProxy(s3_server.endpoint_url) as proxy:
        yield proxy


def test_an_entry_of_a_log_is_one_put_and_nothing_else(s3_audited: AuditedS3) -> None:
    """Every batch writes two entries; each more request adds its round trip to the batch."""
    log = CheckpointFiles(f"{s3_audited.url}/{LOG}", s3_audited.settings).open_log()
    for batch in range(2):
        assert not log.exists(str(batch))
        log.create(str(batch), b"v1\n{}")
    s3_audited.restart_count()

    for batch in range(2, 12):
        name = f"{batch}.compact" if batch == 9 else str(batch)
        assert not log.exists(name)
        log.create(name, b"v1\n{}")
        assert log.exists(name)
        assert log.read(name) == b"v1\n{}"

    assert s3_audited.counted("query", user_agent="") == {"PutObject": 10}


@pytest.mark.parametrize("is_audited", [True, False], ids=["audited", "without S3A's auditing"])
def test_a_put_does_not_wait_for_an_interim_answer(
    proxy: TcpProxy, s3_bucket: S3Bucket, *, is_audited: bool
) -> None:
    """The interim answer (100 Continue) doubles the time of a PUT on a distant server.

    S3A's auditing, which a job may turn off, is what installs the interceptor.
    """
    asking = proxy.add(Fault(b"PUT ", contains=b"100-continue", times=100))
    sent = proxy.add(Fault(b"PUT ", contains=b"offsets/", times=100))  # what is not asking
    conf = {"fs.s3a.impl.disable.cache": "false", "fs.s3a.audit.enabled": str(is_audited).lower()}
    log = files_of(s3_bucket, proxy.url, **conf)

    log.create("0", b"v1")
    log.create("1.zip", b"x" * 1000, replace=True)

    assert asking.applied == 0
    assert sent.applied >= 2


def test_purged_entries_are_deleted_a_hundred_per_request(s3_audited: AuditedS3) -> None:
    """Spark purges two entries per batch; the bill would double."""
    log = CheckpointFiles(f"{s3_audited.url}/{LOG}", s3_audited.settings).open_log()
    last = PURGED_PER_REQUEST + 5
    for batch in range(last + 1):
        log.create(str(batch), b"v1")
    s3_audited.restart_count()

    for batch in range(PURGED_PER_REQUEST + 3):
        log.delete(str(batch))
        if batch < PURGED_PER_REQUEST - 1:
            assert not log.exists(str(batch))
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        log.read(str(PURGED_PER_REQUEST + 1))

    assert s3_audited.counted("query", user_agent="") == {"DeleteMultipleObjects": 1}
    left = [str(batch) for batch in range(PURGED_PER_REQUEST + 3, last + 1)]
    assert log.names() == sorted(left)
    again = CheckpointFiles(log.folder, s3_audited.settings)
    assert again.names() == sorted(left)


def test_a_purged_name_can_be_created_again(s3_bucket: S3Bucket) -> None:
    """A deletion that comes late must not delete the new file."""
    log = files_of(s3_bucket)
    for batch in range(3):
        log.create(str(batch), b"old")
    log.delete("0")

    log.create("0", b"new")
    log.manager.close()

    assert stored(s3_bucket, "0") == b"new"


def test_deleting_the_newest_entries_is_not_deferred(s3_bucket: S3Bucket) -> None:
    """Spark cuts a log back before it runs batches again: they must not come back."""
    log = files_of(s3_bucket)
    for batch in range(4):
        log.create(str(batch), b"x")

    for batch in (2, 3):
        log.delete(str(batch))

    assert files_of(s3_bucket).names() == ["0", "1"]
    assert not log.exists("2")
    log.create("2", b"again")
    assert stored(s3_bucket, "2") == b"again"


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed else []) for seed in range(6)]
)
def test_random_histories_equal_a_dictionary(s3_bucket: S3Bucket, seed: int) -> None:
    """What the manager remembers, and the deletions that it puts off, must never show."""
    history = History(s3_bucket, seed)
    actions = [
        *(12 * [history.add] + 10 * [history.purge] + 6 * [history.look] + 2 * [history.add_again]),
        *(history.cut, history.list, history.restart, history.meet_another_driver),
    ]

    for _ in range(120):
        history.chance.choice(actions)()
        history.look()

    history.log.manager.close()
    observer = files_of(s3_bucket)
    assert {name: observer.read(name) for name in observer.names()} == {
        str(batch): content for batch, content in history.present.items()
    }


class History:
    """A log and a dictionary to which the same things happen."""

    def __init__(self, bucket: S3Bucket, seed: int) -> None:
        self.chance = random.Random(seed)
        self.present: dict[int, bytes] = {}
        self.log = files_of(bucket).open_log()
        self._bucket = bucket
        self._next = 0

    def _content(self) -> bytes:
        return self.chance.randbytes(8) * self.chance.choice([1, 1, 1, 40_000])

    def add(self) -> None:
        """Create the next entry."""
        content = self._content()
        assert not self.log.exists(str(self._next))
        self.log.create(str(self._next), content)
        self.present[self._next] = content
        self._next += 1

    def add_again(self) -> None:
        """Create an entry that exists."""
        if self.present:
            with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
                self.log.create(str(self.chance.choice(list(self.present))), b"again")

    def purge(self) -> None:
        """Delete the oldest entry; sometimes create it again, as a repaired checkpoint may."""
        if len(self.present) > 1:
            batch = min(self.present)
            self.log.delete(str(batch))
            del self.present[batch]
            if self.chance.random() < 0.2:
                self.present[batch] = self._content()
                self.log.create(str(batch), self.present[batch])

    def cut(self) -> None:
        """Delete the newest entry."""
        if self.present:
            self._next = max(self.present)
            self.log.delete(str(self._next))
            del self.present[self._next]

    def list(self) -> None:
        """List the log."""
        if self.present:
            assert self.log.names() == sorted(map(str, self.present))

    def restart(self) -> None:
        """Continue in a new driver."""
        self.log.manager.close()
        self.log = files_of(self._bucket).open_log()

    def meet_another_driver(self) -> None:
        """Lose the next entry, and continue in a new driver."""
        self.present[self._next] = self._content()
        store(self._bucket, str(self._next), self.present[self._next])
        with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
            self.log.create(str(self._next), b"ours")
        self._next += 1
        self.restart()

    def look(self) -> None:
        """Ask for some entries, and read those that exist."""
        for batch in self.chance.sample(range(self._next + 3), 3):
            assert self.log.exists(str(batch)) == (batch in self.present), batch
            if batch in self.present:
                assert self.log.read(str(batch)) == self.present[batch], batch


def test_of_two_drivers_the_second_fails_and_is_told_why(s3_bucket: S3Bucket) -> None:
    """Two drivers on one checkpoint would mix their batches."""
    first, second = files_of(s3_bucket), files_of(s3_bucket)
    for log in (first, second):
        log.open_log()
    first.create("0", b"first")

    with pytest.raises(Py4JJavaError) as raised:
        second.create("0", b"second")

    exists, reason = causes(raised.value)[:2]
    assert exists.startswith("org.apache.hadoop.fs.FileAlreadyExistsException")
    assert "[CAIRN_FENCED] two drivers use one checkpoint" in reason
    assert f"{s3_bucket.url}/{LOG}/0 exists, written at" in reason
    assert "by application local-" in reason
    assert "Next: end one of the two queries" in reason
    assert stored(s3_bucket, "0") == b"first"


def test_a_restarted_driver_sees_what_another_one_has_created_since(s3_bucket: S3Bucket) -> None:
    """It lists the log of the input's files first, and later reads the batch that goes on."""
    first, second = files_of(s3_bucket), files_of(s3_bucket)
    first.open_log()
    first.create("0", b"first")
    second.open_log()
    assert not second.exists("1")

    first.create("1", b"first")

    with driver_log(SECOND_DRIVER) as log:
        assert second.exists("1")
        assert second.read("1") == b"first"
    said = log.toString()
    assert "[CAIRN_FENCED] two drivers use one checkpoint" in said
    assert f"{s3_bucket.url}/{LOG}/1 exists, written at" in said
    assert "by application local-" in said


def test_entries_of_an_earlier_driver_are_no_second_driver(s3_bucket: S3Bucket) -> None:
    """Every restart finds them."""
    files_of(s3_bucket).open_log().create("0", b"first")
    restarted = files_of(s3_bucket).open_log()

    with driver_log(SECOND_DRIVER) as log:
        assert restarted.exists("0")
        restarted.create("1", b"second")
        assert restarted.exists("1")
    assert log.toString() == ""


def test_the_object_of_another_program_stays(s3_bucket: S3Bucket) -> None:
    """Only its owner knows what it is."""
    store(s3_bucket, "1", b"foreign")
    log = files_of(s3_bucket)
    log.create("0", b"ours")

    with pytest.raises(Py4JJavaError) as raised:
        log.create("1", b"ours")

    assert "by another program; this driver is" in causes(raised.value)[1]
    assert stored(s3_bucket, "1") == b"foreign"


@pytest.mark.parametrize("size_bytes", [10, 3 << 20], ids=["in memory", "streamed"])
def test_a_lost_answer_is_recognised_as_own_success(
    proxy: TcpProxy, s3_bucket: S3Bucket, size_bytes: int
) -> None:
    """The retry meets the object of the first PUT: that is no second driver."""
    content = os.urandom(size_bytes)
    log = files_of(s3_bucket, proxy.url)
    fault = proxy.add(Fault(b"PUT ", contains=b"offsets/0", drops_answer=True))

    log.create("0", content)

    assert fault.applied == 1
    assert stored(s3_bucket, "0") == content


def test_a_lost_answer_does_not_hide_another_driver(proxy: TcpProxy, s3_bucket: S3Bucket) -> None:
    """The other driver was first, and our PUT's answer was lost: its object is not ours."""
    log = files_of(s3_bucket, proxy.url)
    fault = proxy.add(
        Fault(
            b"PUT ",
            contains=b"offsets/0",
            drops_answer=True,
            before=lambda: files_of(s3_bucket).create("0", b"theirs"),
        )
    )

    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        log.create("0", b"ours")

    assert fault.applied == 1
    assert stored(s3_bucket, "0") == b"theirs"


def test_a_conflict_of_requests_is_retried(proxy: TcpProxy, s3_bucket: S3Bucket) -> None:
    """S3 answers 409 while another request for the same name runs; nobody has the name yet."""
    log = files_of(s3_bucket, proxy.url)
    fault = proxy.add(Fault(b"PUT ", contains=b"offsets/0", times=2, answer=CONFLICT))

    log.create("0", b"ours")

    assert fault.applied == 2
    assert stored(s3_bucket, "0") == b"ours"


def test_a_server_that_cannot_be_reached_is_an_error(proxy: TcpProxy, s3_bucket: S3Bucket) -> None:
    """The batch must not count as written."""
    limits = {"fs.s3a.attempts.maximum": "1", "fs.s3a.retry.limit": "1"}
    log = files_of(s3_bucket, proxy.url, **limits)
    for request in (b"PUT ", b"HEAD "):
        proxy.add(Fault(request, times=1000, drops_answer=True))

    with pytest.raises(Py4JJavaError, match="offsets/0"):
        log.create("0", b"ours")


def test_a_cancelled_file_does_not_exist(s3_bucket: S3Bucket) -> None:
    """Spark cancels a file whose serialization failed half-way."""
    log = files_of(s3_bucket)

    for name, size_bytes in (("small", 10), ("large", 3 << 20)):
        stream = log.begin(name, b"x" * size_bytes)
        stream.cancel()
        stream.close()
        assert not log.exists(name)

    assert not log.exists()


def test_a_file_may_be_replaced_if_spark_says_so(s3_bucket: S3Bucket) -> None:
    """State files and snapshots of Spark's own providers are replaced by retried tasks."""
    log = files_of(s3_bucket)

    for content in (b"1", b"22", b"3" * (3 << 20)):
        log.create("1.zip", content, replace=True)
        assert log.read("1.zip") == content


def test_file_systems_that_somebody_closes_do_not_end_a_query(s3_bucket: S3Bucket) -> None:
    """Any code of a job may call `FileSystem.closeAll()`."""
    cached = {"fs.s3a.impl.disable.cache": "false"}
    log = files_of(s3_bucket, **cached).open_log()
    log.create("0", b"before")

    driver_jvm().org.apache.hadoop.fs.FileSystem.closeAll()

    log.create("1", b"after")
    assert files_of(s3_bucket, **cached).open_log().names() == ["0", "1"]


def test_an_entry_that_was_replaced_is_read_anew(s3_bucket: S3Bucket) -> None:
    """The manager remembers what it wrote, and which entry is the next one."""
    log = files_of(s3_bucket).open_log()
    log.create("0", b"first")
    assert log.read("0") == b"first"

    log.create("0", b"second", replace=True)
    log.create("1", b"next", replace=True)

    assert log.read("0") == b"second"
    assert log.exists("1")


def test_a_large_file_is_created_once(s3_bucket: S3Bucket) -> None:
    """A compacted log of a file source has megabytes."""
    log = files_of(s3_bucket)
    content = os.urandom(3 << 20)
    log.create("9.compact", content)

    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        files_of(s3_bucket).create("9.compact", b"y" * (3 << 20))

    assert log.read("9.compact") == content


def test_a_folder_exists_after_mkdirs(s3_bucket: S3Bucket) -> None:
    """Spark creates the folders of a new checkpoint, and then asks for them."""
    log = files_of(s3_bucket)
    assert not log.exists()

    log.manager.mkdirs(log.path(""))

    assert log.exists()
    assert files_of(s3_bucket).names() == []


def test_a_server_that_ignores_the_condition_is_refused(
    proxy: TcpProxy, s3_bucket: S3Bucket
) -> None:
    """Two drivers would overwrite each other's files, and nobody would notice."""
    _open_to_everyone(s3_bucket)  # a signature would cover the hidden header
    anonymous = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    log = files_of(s3_bucket, proxy.url, **{"fs.s3a.aws.credentials.provider": anonymous})
    proxy.hidden_header = b"if-none-match"

    with pytest.raises(Py4JJavaError, match="CAIRN_NO_CONDITIONAL_PUT"):
        log.create("0", b"ours")


@pytest.mark.parametrize("size_bytes", [10, 3 << 20], ids=["in memory", "streamed"])
def test_a_server_that_does_not_know_the_condition_is_refused_at_once(
    proxy: TcpProxy, s3_bucket: S3Bucket, size_bytes: int
) -> None:
    """S3A's error names neither the cause nor the way out."""
    log = files_of(s3_bucket, proxy.url)
    fault = proxy.add(Fault(b"PUT ", contains=b"if-none-match", times=9, answer=NOT_IMPLEMENTED))

    with pytest.raises(Py4JJavaError) as raised:
        log.create("0", b"x" * size_bytes)

    error, cause = causes(raised.value)[:2]
    assert "[CAIRN_NO_CONDITIONAL_PUT] the server of s3a://" in error
    assert "does not implement If-None-Match (status 501)" in error
    assert "fs.s3a.create.conditional.enabled" in error
    assert "NotImplemented" in cause
    assert fault.applied == 1
    assert not log.exists("0")


def test_another_refusal_is_not_taken_for_one_of_the_condition(
    proxy: TcpProxy, s3_bucket: S3Bucket
) -> None:
    """S3A has one class for several of them; a server may refuse the method, for example."""
    log = files_of(s3_bucket, proxy.url)
    proxy.add(Fault(b"PUT ", contains=b"if-none-match", times=9, answer=NOT_ALLOWED))

    with pytest.raises(Py4JJavaError) as raised:
        log.create("0", b"ours")

    assert "MethodNotAllowed" in causes(raised.value)[0]
    assert "CAIRN" not in causes(raised.value)[0]


def test_without_the_condition_spark_writes_its_files(s3_bucket: S3Bucket) -> None:
    """A store without conditional PUT is still usable, as with Spark alone."""
    log = files_of(
        s3_bucket,
        **{"fs.s3a.create.conditional.enabled": "false", "fs.s3a.impl.disable.cache": "true"},
    )
    log.manager.mkdirs(log.path(""))

    log.create("0", b"renamed")

    assert stored(s3_bucket, "0") == b"renamed"


def test_a_local_file_is_created_once_and_has_no_file_beside_it(tmp_path: Path) -> None:
    """Spark's own manager would also write a file of checksums, `.0.crc`."""
    log = CheckpointFiles(tmp_path.as_uri(), {})

    log.create("0", b"local")

    assert log.manager.isLocal()
    assert (tmp_path / "0").read_bytes() == b"local"
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        log.create("0", b"again")


def _open_to_everyone(bucket: S3Bucket) -> None:
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": ["*"]},
                "Action": ["s3:PutObject", "s3:DeleteObject", "s3:GetObject", "s3:ListBucket"],
                "Resource": [f"arn:aws:s3:::{bucket.name}", f"arn:aws:s3:::{bucket.name}/*"],
            }
        ],
    }
    client = bucket.endpoint.client()
    client.put_bucket_policy(Bucket=bucket.name, Policy=json.dumps(policy))
    client.close()
