"""S3 as it is found: encryption, keys that change, roles, proxies, servers that lack a feature."""

from __future__ import annotations

import base64
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from s3_stub import Answer, Request, S3Stub, refusal

from cairn.checksum import crc32c_file
from cairn.clock import FakeClock
from cairn.errors import (
    AccessError,
    ClosedError,
    ConditionalPutUnsupportedError,
    ConfigError,
    CredentialsExpiredError,
    UnavailableError,
)
from cairn.storage.s3.client import acquire, release
from cairn.storage.s3.settings import S3Settings
from cairn.storage.s3.store import S3Store
from cairn.storage.s3.transfer import PARTS_ABOVE_BYTES
from harness.minio import create_certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from botocore.awsrequest import AWSPreparedRequest

    from cairn.storage.s3.client import SharedClient

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def stub() -> Iterator[S3Stub]:
    """A server."""
    with S3Stub() as stub:
        yield stub


def open_store(stub: S3Stub, **more: str) -> S3Store:
    """Open a store; an empty setting is absent."""
    settings = S3Settings.from_mapping({**stub.settings, **more})
    return S3Store("s3://bucket/state", settings, clock=FakeClock())


@contextmanager
def shared_client(settings: S3Settings, bucket: str = "bucket") -> Iterator[SharedClient]:
    """Return the client of all stores with these settings."""
    client = acquire(settings.for_bucket(bucket))
    try:
        yield client
    finally:
        release(client)


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({"sse": "AES256"}, ("x-amz-server-side-encryption", "AES256")),
        ({"sse": "aws:kms", "sse_kms_key": "k"}, ("x-amz-server-side-encryption", "aws:kms")),
        ({"sse": "aws:kms:dsse"}, ("x-amz-server-side-encryption", "aws:kms:dsse")),
        (
            {"sse_customer_key": KEY},
            ("x-amz-server-side-encryption-customer-key", KEY),
        ),
    ],
)
def test_every_put_has_the_headers_of_encryption_and_checksum(
    stub: S3Stub, tmp_path: Path, settings: dict[str, str], header: tuple[str, str]
) -> None:
    """A policy may deny PUTs without them: the probe was refused, and so every query."""
    (tmp_path / "file").write_bytes(b"sst")

    with open_store(stub, **settings) as store:
        store.probe_conditional_put()
        store.put("changelog/1.arrow", b"rows")
        store.put_if_absent("changelog/2.arrow", b"rows")
        store.upload("sst/1.sst", tmp_path / "file", crc32c=crc32c_file(tmp_path / "file"))

    puts = stub.of("PUT")
    assert len(puts) == 9
    assert all(put.headers.get(header[0]) == header[1] for put in puts)
    assert all("x-amz-checksum-crc32c" in put.headers for put in puts)


def test_a_customers_key_is_sent_with_every_read(stub: S3Stub) -> None:
    """The server has only the hash of the key: it cannot read the object without it."""
    with open_store(stub, sse_customer_key=KEY) as store:
        store.put("changelog/1.arrow", b"rows")
        store.get("changelog/1.arrow")
        store.get_start("changelog/1.arrow", 2)

    gets = stub.of("GET")
    assert len(gets) == 2
    assert {get.headers["x-amz-server-side-encryption-customer-key"] for get in gets} == {KEY}


def _large_file(folder: Path) -> Path:
    path = folder / "file"
    with path.open("wb") as file:
        file.truncate(PARTS_ABOVE_BYTES + 1)
    return path


def _upload_in_parts(request: Request) -> Answer | None:
    if request.method != "POST":
        return None
    started = b"<Start><UploadId>u</UploadId></Start>"
    completed = b"<Completed><ETag>x</ETag></Completed>"
    return 200, {}, started if request.path.endswith("uploads") else completed


def test_a_customers_key_is_sent_with_each_request_of_an_upload_in_parts(
    stub: S3Stub, tmp_path: Path
) -> None:
    """The server encrypts the checksums too: without the key it cannot complete the upload."""
    stub.answer = _upload_in_parts
    source = _large_file(tmp_path)

    with open_store(stub, sse_customer_key=KEY) as store:
        store.upload("sst/1.sst", source, crc32c=crc32c_file(source))

    sent = [*stub.of("POST"), *stub.of("PUT")]
    assert len(sent) > 3
    assert {
        request.headers.get("x-amz-server-side-encryption-customer-key") for request in sent
    } == {KEY}


PAGE = b"<!DOCTYPE html><html><body>Please log in<br></body></html>"
# botocore takes what is no XML for an error of the server, and other XML for an empty answer.
NO_ANSWER = "answer is not S3's|the server failed"
WELL_FORMED_PAGE = b"<html><body>Please log in</body></html>"


@pytest.mark.parametrize("page", [PAGE, WELL_FORMED_PAGE], ids=["html", "xhtml"])
@pytest.mark.parametrize(
    "call",
    [
        lambda store: list(store.list("pin/")),
        lambda store: store.get("changelog/1.arrow"),
        lambda store: store.put("changelog/1.arrow", b"rows"),
        lambda store: store.put_if_absent("changelog/1.arrow", b"rows"),
    ],
    ids=["list", "get", "put", "put_if_absent"],
)
def test_the_page_of_a_proxy_is_no_answer(
    stub: S3Stub, page: bytes, call: Callable[[S3Store], object]
) -> None:
    """It is sent with status 200: the list had no pins, and a commit was not stored."""
    stub.answer = lambda _: (200, {"Content-Type": "text/html"}, page)

    with open_store(stub) as store, pytest.raises(UnavailableError, match=NO_ANSWER):
        call(store)


@pytest.mark.parametrize(
    ("listing", "said"),
    [
        ("<IsTruncated>false</IsTruncated>{}", "has a key that was not asked for"),
        ("<IsTruncated>true</IsTruncated>", "is cut, and does not say how it continues"),
    ],
    ids=["other keys", "no continuation"],
)
def test_a_listing_that_is_not_of_the_prefix_is_no_empty_one(
    stub: S3Stub, listing: str, said: str
) -> None:
    """A gateway may cut the begin of all keys: a sweep would find no manifest and no pin."""
    item = (
        "<Contents><Key>pin/1</Key><Size>1</Size>"
        "<LastModified>2023-01-02T00:00:00.000Z</LastModified></Contents>"
    )
    body = f"<ListBucketResult>{listing.format(item)}</ListBucketResult>".encode()
    stub.answer = lambda _: (200, {"Content-Type": "application/xml"}, body)

    with open_store(stub) as store, pytest.raises(UnavailableError, match=said) as raised:
        list(store.list("pin/"))

    assert raised.value.object_name == "s3://bucket/state/pin/"


@pytest.mark.parametrize("page", [b"404 page not found", WELL_FORMED_PAGE, b""])
@pytest.mark.parametrize(
    "call",
    [
        lambda store: list(store.list("pin/")),
        lambda store: store.get("pin/1"),
        lambda store: store.get_start("snapshot/1.json", 1),
    ],
    ids=["list", "get", "get_start"],
)
def test_a_404_of_a_proxy_is_no_absent_object(
    stub: S3Stub, page: bytes, call: Callable[[S3Store], object]
) -> None:
    """While a gateway starts, it knows no route: pins and snapshots were taken for deleted."""
    stub.answer = lambda _: (404, {"Content-Type": "text/plain"}, page)

    with (
        open_store(stub) as store,
        pytest.raises(UnavailableError, match=r"the server does not know the address: .* 404"),
    ):
        call(store)


def test_the_page_of_a_proxy_is_no_answer_to_a_deletion(stub: S3Stub) -> None:
    """It was reported as a bug of Cairn's; a deletion is repeated by the next purge."""
    stub.answer = lambda _: (200, {"Content-Type": "text/html"}, PAGE)

    with open_store(stub) as store, pytest.raises(UnavailableError, match=NO_ANSWER):
        store.delete(["changelog/1.arrow"])


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_page_at_the_end_of_an_upload_in_parts_leaves_its_outcome_to_a_head(
    stub: S3Stub, tmp_path: Path, *, is_stored: bool
) -> None:
    """The server may have completed the upload before the proxy answered."""
    put_ids: list[str] = []

    def answer(request: Request) -> Answer | None:
        if request.path.endswith("uploads"):
            put_ids.append(request.headers["x-amz-meta-cairn-put-id"])
        if request.method == "POST" and not request.path.endswith("uploads"):
            if is_stored:
                metadata = {"x-amz-meta-cairn-put-id": put_ids[0]}
                stub.objects["bucket/state/sst/1.sst"] = b"whole", metadata
            return 200, {"Content-Type": "text/html"}, WELL_FORMED_PAGE
        if request.method == "DELETE":
            return 204, {}, b""  # of an upload that has ended
        if request.method == "PUT":
            return 200, {"ETag": '"part"'}, b""
        return _upload_in_parts(request)

    stub.answer = answer
    source = _large_file(tmp_path)

    with open_store(stub) as store:
        if is_stored:
            assert store.upload("sst/1.sst", source, crc32c=crc32c_file(source)).year == 2023
        else:
            with pytest.raises(UnavailableError, match=NO_ANSWER):
                store.upload("sst/1.sst", source, crc32c=crc32c_file(source))

    assert len(stub.of("HEAD")) == 1


def test_a_server_without_conditions_takes_large_files_too(stub: S3Stub, tmp_path: Path) -> None:
    """It answers each request with a condition with 501; snapshots do not need one."""

    def answer(request: Request) -> Answer | None:
        if "if-none-match" in request.headers:
            return refusal(501, "NotImplemented")
        if "if-match" in request.headers:
            return refusal(404, "NoSuchKey")
        return _upload_in_parts(request)

    stub.answer = answer
    source = _large_file(tmp_path)

    with open_store(stub) as store:
        with pytest.raises(ConditionalPutUnsupportedError, match="ignores If-None-Match"):
            store.probe_conditional_put()
        store.upload("sst/1.sst", source, crc32c=crc32c_file(source))

    assert any(request.path.endswith("uploads") for request in stub.of("POST"))


def test_own_success_is_recognised_by_a_header_in_capitals(stub: S3Stub) -> None:
    """Names of headers have no case, and a proxy may capitalise them: the commit failed."""

    def lose_answer(request: Request) -> Answer | None:
        if request.method != "PUT":
            return None
        metadata = {"X-Amz-Meta-Cairn-Put-Id": request.headers["x-amz-meta-cairn-put-id"]}
        stub.objects[request.key] = request.body, metadata
        return refusal(500, "InternalError")

    stub.answer = lose_answer

    with open_store(stub) as store:
        store.put_if_absent("changelog/1.arrow", b"rows")

        assert store.get("changelog/1.arrow").data == b"rows"
    assert len(stub.of("HEAD")) == 1


def test_a_store_whose_conditional_put_is_not_atomic_is_detected(stub: S3Stub) -> None:
    """It refuses a create that comes later, but not one at the same time: both writers win."""
    creates = []

    def answer(request: Request) -> Answer | None:
        if request.method == "PUT" and "if-none-match" in request.headers:
            creates.append(request)
            if len(creates) <= 3:
                stub.objects[request.key] = request.body, {}
                return 200, {"ETag": '"x"', "Content-Length": "0"}, b""
            return refusal(412, "PreconditionFailed")
        return None

    stub.answer = answer

    with (
        open_store(stub) as store,
        pytest.raises(ConditionalPutUnsupportedError, match="of concurrent requests"),
    ):
        store.probe_conditional_put()


def test_the_result_of_the_probe_is_kept(stub: S3Stub) -> None:
    """A snapshot on such a store would cost six more requests each time."""
    stub.ignores_conditions = True

    with open_store(stub, max_attempts="2") as store:
        for _ in range(3):
            with pytest.raises(ConditionalPutUnsupportedError, match=r"None-Match and If-Match:"):
                store.probe_conditional_put()

    assert len(stub.of("PUT")) == 6


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "MissingContentMD5"), (400, "InvalidRequest"), (501, "NotImplemented")],
)
def test_a_server_that_refuses_bulk_deletions_gets_single_ones(
    stub: S3Stub, status: int, code: str
) -> None:
    """Retention and clean-up failed for ever on such a server, and the bucket grew."""
    stub.answer = lambda request: refusal(status, code) if request.method == "POST" else None

    with open_store(stub) as store:
        for key in ("a", "b", "c"):
            store.put(key, b"1")
        store.delete(["a", "absent", "b"])
        store.delete(["c"])

        assert list(store.list("")) == []
    assert len(stub.of("POST")) == 1


def test_deletions_without_permission_are_no_reason_for_single_ones(stub: S3Stub) -> None:
    """A thousand more refusals would follow."""
    stub.answer = lambda request: refusal(403, "AccessDenied") if request.method == "POST" else None

    with open_store(stub) as store, pytest.raises(AccessError):
        store.delete(["a", "b"])

    assert stub.of("DELETE") == []


def test_throttled_uploads_do_not_slow_commits(stub: S3Stub, tmp_path: Path) -> None:
    """After a 503 the client for uploads sends a request or two per second; commits are others."""
    (tmp_path / "file").write_bytes(b"sst")
    is_slow = [True]
    stub.answer = lambda request: (
        refusal(503, "SlowDown") if "/sst/" in request.path and is_slow[0] else None
    )

    with open_store(stub, max_attempts="3") as store:
        with pytest.raises(UnavailableError, match="slow down"):
            store.upload("sst/1.sst", tmp_path / "file", crc32c=crc32c_file(tmp_path / "file"))
        is_slow[0] = False
        began = time.monotonic()
        for number in range(60):
            store.put(f"changelog/{number}.arrow", b"rows")
        took_s = time.monotonic() - began

    assert len(stub.of("PUT")) == 63
    assert took_s < 10, "sixty commits took as long as throttled uploads"


@pytest.mark.parametrize(("code", "status"), [("InvalidAccessKeyId", 403), ("", 403)])
def test_replaced_keys_of_the_aws_chain_are_read_anew(
    stub: S3Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, status: int
) -> None:
    """The client keeps its first keys: every store of the worker failed until it was restarted."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    text = "[default]\naws_access_key_id={}\naws_secret_access_key=secret\n"
    file.write_text(text.format("OLD"))
    stub.answer = lambda request: (
        None
        if request.access_key == "NEW"
        else (refusal(status, code) if code else (status, {}, b""))
    )
    absent = {"access_key": "", "secret_key": ""}

    first = open_store(stub, **absent)
    with pytest.raises(AccessError):
        first.put("a", b"1")
    file.write_text(text.format("NEW"))
    with open_store(stub, **absent) as again:
        again.put("a", b"1")
    first.close()

    assert [put.access_key for put in stub.of("PUT")] == ["OLD", "NEW"]


def test_refusals_leave_all_stores_one_client(
    stub: S3Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each store had one of its own after an hour without access: a gigabyte for eighty stores."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OLD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    absent = {"access_key": "", "secret_key": ""}
    stub.answer = lambda request: (
        None if request.access_key == "NEW" else refusal(403, "AccessDenied")
    )

    stores = [open_store(stub, **absent) for _ in range(3)]
    for place, store in enumerate(stores):
        with pytest.raises(AccessError):
            store.put("a", b"1")
        # As the shim does it: the instance is opened again, and the call is repeated.
        stores[place] = open_store(stub, **absent)
        store.close()
        with pytest.raises(AccessError):
            stores[place].put("a", b"1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEW")
    for store in stores:
        store.put("a", b"1")

    with shared_client(S3Settings.from_mapping({**stub.settings, **absent})) as client:
        assert client.users == len(stores) + 1
    for store in stores:
        store.close()


def test_renewed_keys_are_used_by_the_next_request(
    stub: S3Stub, closed: list[SharedClient]
) -> None:
    """Tokens live for an hour: a request in progress ends with the former ones."""
    arrived, go_on = threading.Event(), threading.Event()

    def late(request: Request) -> None:
        if request.access_key == "AK" and request.method == "GET":
            arrived.set()
            assert go_on.wait(30)

    with open_store(stub) as store, ThreadPoolExecutor(1) as threads:
        store.put("a", b"1")
        stub.answer = late
        reading = threads.submit(store.get, "a")
        assert arrived.wait(30)
        with shared_client(S3Settings.from_mapping(stub.settings)) as former:
            assert former.users == 2
        store.renew({**stub.settings, "access_key": "NEW"})
        open_store(stub, access_key="OTHER").close()  # the former client is the one to close
        assert former in closed
        assert store.get("a").data == b"1"
        go_on.set()
        assert reading.result(30).data == b"1"

    assert [get.access_key for get in stub.of("GET")] == ["AK", "NEW"]
    with pytest.raises(ClosedError):
        store.renew(stub.settings)


def test_keys_that_cannot_be_used_leave_the_former_ones(stub: S3Stub) -> None:
    """A malformed token must not end a query whose present one is still valid."""
    with open_store(stub) as store:
        with pytest.raises(ConfigError):
            store.renew({**stub.settings, "secret_key": ""})
        store.put("a", b"1")

    assert [put.access_key for put in stub.of("PUT")] == ["AK"]


def _role(sts_url: str, **more: str) -> dict[str, str]:
    """Return the settings of a role that the service at ``sts_url`` gives."""
    arn = "arn:aws:iam::123456789012:role/job"
    return {"role_arn": arn, "sts_endpoint_url": sts_url, **more}


_ROLE = """<AssumeRole{kind}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRole{kind}Result><Credentials><AccessKeyId>ROLE</AccessKeyId>
<SecretAccessKey>role-secret</SecretAccessKey><SessionToken>role-token</SessionToken>
<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRole{kind}Result>
</AssumeRole{kind}Response>"""


def _gives_roles(request: Request) -> Answer | None:
    if request.method != "POST" or b"Action=AssumeRole" not in request.body:
        return None
    kind = "WithWebIdentity" if b"WithWebIdentity" in request.body else ""
    return 200, {"Content-Type": "text/xml"}, _ROLE.format(kind=kind).encode()


def test_a_role_is_assumed_with_the_keys_of_the_settings(stub: S3Stub) -> None:
    """Jobs in another account reach the bucket by a role."""
    stub.answer = _gives_roles
    role = _role(
        stub.url, role_external_id="their-id", role_session_name="etl", role_duration_s="900"
    )

    with open_store(stub, **role) as store:
        store.put("a", b"1")
        store.put("b", b"1")

    (asked,) = stub.of("POST")
    assert asked.access_key == "AK"
    for part in (b"RoleSessionName=etl", b"ExternalId=their-id", b"DurationSeconds=900"):
        assert part in asked.body
    assert {put.access_key for put in stub.of("PUT")} == {"ROLE"}
    assert {put.headers["x-amz-security-token"] for put in stub.of("PUT")} == {"role-token"}


def test_a_role_is_asked_for_anew_when_its_keys_are_refused(stub: S3Stub) -> None:
    """A role's session may be revoked long before its keys expire."""
    refused_tokens = set[str]()

    def answer(request: Request) -> Answer | None:
        if request.headers.get("x-amz-security-token") in refused_tokens:
            return refusal(403, "InvalidAccessKeyId")
        given = _gives_roles(request)
        if given is None:
            return None
        number = str(len(stub.of("POST"))).encode()
        return given[0], given[1], given[2].replace(b"role-token", b"role-token-" + number)

    stub.answer = answer
    role = _role(stub.url)

    with open_store(stub, **role) as store:
        store.put("a", b"1")
        refused_tokens.add("role-token-1")
        with pytest.raises(AccessError):
            store.put("a", b"2")
        with open_store(stub, **role) as again:
            again.put("a", b"3")

    assert len(stub.of("POST")) == 2


def test_sts_is_reached_through_the_proxy_too(stub: S3Stub) -> None:
    """In a closed network no executor reaches it directly."""
    stub.answer = _gives_roles
    role = _role("http://sts.example.invalid")
    address = {"endpoint_url": "http://s3.example.invalid", "proxy_url": stub.url}

    with open_store(stub, **role, **address) as store:
        store.put("a", b"1")

    (asked,) = stub.of("POST")
    assert asked.path.startswith("http://sts.example.invalid/")


def test_an_sts_that_cannot_be_reached_is_named(stub: S3Stub) -> None:
    """The S3 server is up: an error with its address would mislead."""
    with S3Stub() as gone:
        pass

    with (
        open_store(stub, **_role(gone.url)) as store,
        pytest.raises(UnavailableError, match=f"the server cannot be reached: {gone.url}"),
    ):
        store.put("a", b"1")

    assert stub.requests == []


def test_a_role_that_is_refused_is_named(stub: S3Stub) -> None:
    """The error of S3's own permissions would send the reader to the bucket's policy."""
    stub.answer = lambda request: refusal(403, "AccessDenied") if request.method == "POST" else None

    with (
        open_store(stub, **_role(stub.url)) as store,
        pytest.raises(AccessError, match="the role cannot be assumed: STS answered 403") as refused,
    ):
        store.put("a", b"1")

    assert "SK" not in str(refused.value)


def test_the_web_identity_of_a_container_is_used(
    stub: S3Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes gives a job a token in a file, and its role in the environment."""
    stub.answer = _gives_roles
    (tmp_path / "token").write_text("web-token")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/job")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", stub.url)

    with open_store(stub, access_key="", secret_key="") as store:
        store.put("a", b"1")

    assert b"WebIdentityToken=web-token" in stub.of("POST")[0].body
    assert stub.of("PUT")[0].access_key == "ROLE"


def test_an_expired_token_is_reported_as_such(stub: S3Stub) -> None:
    """The shim then sends the job's present keys."""
    stub.answer = lambda _: refusal(400, "ExpiredToken")

    with open_store(stub) as store, pytest.raises(CredentialsExpiredError):
        store.put("a", b"1")


def test_requests_go_through_the_proxy(stub: S3Stub) -> None:
    """Executors in a closed network reach S3 by a proxy only."""
    proxy = stub.url.replace("http://", "http://me:hidden@")

    with open_store(stub, endpoint_url="http://s3.example.invalid", proxy_url=proxy) as store:
        store.put("a", b"1")

    (put,) = stub.of("PUT")
    assert put.path == "http://s3.example.invalid/bucket/state/a"
    expected = base64.b64encode(b"me:hidden").decode()
    assert put.headers["proxy-authorization"] == f"Basic {expected}"


def test_a_proxy_that_is_down_is_named_without_its_password() -> None:
    """The error is in Spark's log."""
    with S3Stub() as gone:
        pass
    settings = {
        "endpoint_url": "http://s3.example.invalid",
        "proxy_url": gone_url(gone),
        "max_attempts": "1",
        "access_key": "AK",
        "secret_key": "SK",
    }

    with (
        S3Store("s3://bucket/x", S3Settings.from_mapping(settings)) as store,
        pytest.raises(UnavailableError, match="the proxy cannot be reached") as raised,
    ):
        store.put("a", b"1")

    assert "hidden" not in str(raised.value)


def gone_url(stub: S3Stub) -> str:
    """Return the address of a server that has ended, as a proxy with a password."""
    return stub.url.replace("http://", "http://me:hidden@")


def test_a_server_with_an_own_certificate_needs_its_bundle(tmp_path: Path) -> None:
    """Python does not read the trust store of the JVM, which knows the certificate."""
    create_certificate(tmp_path / "tls")
    certificate, key = tmp_path / "tls" / "public.crt", tmp_path / "tls" / "private.key"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    with S3Stub(tls=tls) as stub:
        with (
            open_store(stub) as store,
            pytest.raises(UnavailableError, match="the TLS connection failed"),
        ):
            store.put("a", b"1")
        with open_store(stub, ca_bundle=str(certificate)) as store:
            store.put("a", b"1")

            assert store.get("a").data == b"1"


def test_a_bundle_that_is_absent_is_named(stub: S3Stub) -> None:
    """Each executor needs the file."""
    with pytest.raises(ConfigError, match=r"/nowhere/ca\.pem does not exist here.*caBundle"):
        open_store(stub, ca_bundle="/nowhere/ca.pem")


@pytest.mark.parametrize(
    ("endpoint_url", "bucket", "path_style", "expected"),
    [
        ("https://s3.example.com", "lake", "false", "https://lake.s3.example.com"),
        ("https://s3.example.com", "lake", "true", "https://s3.example.com/lake"),
        ("https://s3.example.com", "lake", "", "https://s3.example.com/lake"),
        ("https://s3.example.com", "la.ke", "false", "https://s3.example.com/la.ke"),
        ("http://s3.example.com:9000", "lake", "false", "http://lake.s3.example.com:9000"),
        ("http://s3.example.com:9000", "la.ke", "false", "http://s3.example.com:9000/la.ke"),
        ("http://127.0.0.1:9000", "lake", "false", "http://127.0.0.1:9000/lake"),
        ("http://127.0.0.1:9000", "la.ke", "false", "http://127.0.0.1:9000/la.ke"),
        ("http://[::1]:9000", "lake", "false", "http://[::1]:9000/lake"),
        ("http://localhost:9000", "lake", "false", "http://localhost:9000/lake"),
        ("http://minio:9000", "lake", "", "http://minio:9000/lake"),
        ("", "lake", "false", "https://lake.s3.eu-west-1.amazonaws.com"),
        ("", "lake", "", "https://lake.s3.eu-west-1.amazonaws.com"),
        ("", "lake", "true", "https://s3.eu-west-1.amazonaws.com/lake"),
        ("", "la.ke", "false", "https://s3.eu-west-1.amazonaws.com/la.ke"),
    ],
)
def test_the_bucket_is_in_the_host_name_or_in_the_path(
    endpoint_url: str, bucket: str, path_style: str, expected: str
) -> None:
    """Some services answer requests of one style alone, and refuse all others."""
    settings = S3Settings.from_mapping(
        {"endpoint_url": endpoint_url, "path_style": path_style, "region": "eu-west-1"}
        | {"access_key": "a", "secret_key": "b"}
    )

    with S3Store(f"s3a://{bucket}/state", settings) as store:
        assert address_of_get(store, settings, bucket) == f"{expected}/state/a"


class AddressError(Exception):
    """The address of a request that was not sent."""


def address_of_get(store: S3Store, settings: S3Settings, bucket: str) -> str:
    """Return the address to which a GET of the object ``a`` would be sent."""

    def name_address(request: AWSPreparedRequest, **_: object) -> None:
        raise AddressError(request.url)

    with shared_client(settings, bucket) as client:
        client.s3.meta.events.register("before-send.s3", name_address)
        with pytest.raises(AddressError) as named:
            store.get("a")
        client.s3.meta.events.unregister("before-send.s3", name_address)
    return str(named.value)


def test_a_fips_endpoint_gets_the_requests() -> None:
    """Some users may use no other one; the state must not go where Spark's files do not."""
    settings = S3Settings.from_mapping(
        {"region": "us-gov-west-1", "use_fips": "true", "access_key": "a", "secret_key": "b"}
    )

    with S3Store("s3a://lake/state", settings), shared_client(settings, "lake") as shared:
        for client in (shared.s3, shared.bulk):
            url = client.generate_presigned_url("get_object", {"Bucket": "lake", "Key": "a"})
            assert url.startswith("https://lake.s3-fips.us-gov-west-1.amazonaws.com/a?")


def test_an_access_point_is_the_host_of_requests() -> None:
    """Some accounts allow no other way to the bucket; the location still names the bucket."""
    arn = "arn:aws:s3:eu-west-1:123456789012:accesspoint/lake"
    settings = S3Settings.from_mapping(
        {"access_point": arn, "region": "eu-west-1", "path_style": "true", "access_key": "a"}
        | {"secret_key": "b"}
    )

    with S3Store("s3a://bucket/state", settings) as store:
        address = address_of_get(store, settings, "bucket")

    assert address == "https://lake-123456789012.s3-accesspoint.eu-west-1.amazonaws.com/state/a"
