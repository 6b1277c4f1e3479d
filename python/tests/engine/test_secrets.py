"""Nothing that a worker shows or leaves behind contains a secret of its storage.

As `integration-tests/faults/test_secrets.py`, for the secrets with which few servers of the tests
work: the stub of S3 accepts all of them, and is its own proxy and token service.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from client import PUT, EngineError, Store, WorkerProcess

from harness.secret_search import Found, of_folder, of_object, of_process, with_secret

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage" / "kit"))

from s3_stub import Answer, Request, S3Stub, refusal

URL = "s3://bucket/state/0/3"
PASSWORD = "recognised-proxy-password"  # noqa: S105 - no real one, as the others
CUSTOMER_KEY = base64.b64encode(b"recognised-customer-key-32-bytes").decode()
SENT = {
    "access_key": "AKOFTHECALLER",
    "secret_key": "recognised-secret-key",
    "session_token": "recognised-session-token",
    "sse_customer_key": CUSTOMER_KEY,
    "role_external_id": "recognised-external-id",
}
RECEIVED = {"SecretAccessKey": "recognised-role-secret", "SessionToken": "recognised-role-token"}
SECRETS = [
    SENT["secret_key"],
    SENT["session_token"],
    CUSTOMER_KEY,
    "recognised-customer-key-32-bytes",
    SENT["role_external_id"],
    PASSWORD,
    f"me:{PASSWORD}",
    *RECEIVED.values(),
    "ab" * 32,  # the worker's token
]
_ROLE = (
    '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
    "<Credentials><AccessKeyId>AKOFTHEROLE</AccessKeyId>"
    + "".join(f"<{name}>{value}</{name}>" for name, value in RECEIVED.items())
    + "<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>"
    "</AssumeRoleResult></AssumeRoleResponse>"
)


class Server:
    """S3, its token service and the proxy before them.

    Attributes:
        refuses: the part of a request's path, or of its body, for which the answer is 403.
    """

    def __init__(self, stub: S3Stub) -> None:
        stub.answer = self._answer
        self.stub = stub
        self.refuses = ""

    def _answer(self, request: Request) -> Answer | None:
        if self.refuses and self.refuses in request.path + request.body.decode("latin-1"):
            # Some servers repeat the request.
            sent = f"{request.headers}{request.body[:300]!r}".replace("<", "").replace("&", "")
            status, headers, body = refusal(403, "AccessDenied")
            return status, headers, body.replace(b"no", sent.encode())
        if b"Action=AssumeRole" in request.body:
            return 200, {"Content-Type": "text/xml"}, _ROLE.encode()
        return None

    @property
    def settings(self) -> dict[str, str]:
        proxy = self.stub.url.replace("http://", f"http://me:{PASSWORD}@")
        return {
            **SENT,
            "endpoint_url": "http://s3.example.invalid",
            "region": "us-east-1",
            "proxy_url": proxy,
            "role_arn": "arn:aws:iam::123456789012:role/cairn",
            "sts_endpoint_url": "http://sts.example.invalid",
            "max_attempts": "1",
        }

    def sent(self) -> bytes:
        """Return all that it received, apart from objects."""
        return b"".join(
            f"{one.headers}".encode() + (one.body if one.method == "POST" else b"")
            for one in self.stub.requests
        )

    def objects(self) -> Iterator[Found]:
        for key, (data, metadata) in self.stub.objects.items():
            yield f"{key} metadata", repr(metadata).encode()
            yield from of_object(key, data)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test's own."""
    with S3Stub() as stub:
        yield Server(stub)


def error_of(action: Callable[[], object]) -> Found:
    """Return the error of a call, as the shim receives it."""
    with pytest.raises(EngineError) as raised:
        action()
    return f"error {raised.value.code}", repr(raised.value.fields).encode()


def load(worker: WorkerProcess, settings: Any) -> None:  # noqa: ANN401 - wrong types too
    """Load a version with other settings of the storage."""
    Store(worker, 2, URL, storage=settings).load(1)


def test_a_worker_leaves_no_secret_of_its_storage(
    spawn: Callable[..., WorkerProcess],
    server: Server,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Logs, errors and checkpoints are copied to places where more people may read them.

    The worker loads, commits, takes a snapshot and is killed; the next one recovers, and is
    refused by the bucket, the token service and the proxy.
    """
    first = spawn()
    store = Store(first, 1, URL, conf={"minDeltasForSnapshot": "1"}, storage=server.settings)
    store.load(0)
    for number in range(2):
        store.write([(PUT, 0, b"key-%d-%d" % (number, row), b"v" * 500) for row in range(2_000)])
        store.commit()
        store.load(store.version, store.checkpoint_id)
    maintained = first.call(
        "maintain", instance=1, storage=server.settings, snapshot=True, cleanup=True
    )
    left = [*of_process(first.pid, "worker"), *of_folder(tmp_path / "local")]
    first.kill()
    left += of_folder(tmp_path / "local")

    second = spawn()
    again = Store(second, 1, URL, storage=server.settings)
    again.load(store.version, store.checkpoint_id)
    again.write([(PUT, 0, b"key", b"value")])
    server.refuses = "/changelog/"
    errors = [error_of(again.commit)]
    server.refuses = "AssumeRole"
    other = server.settings | {"role_session_name": "other"}
    key = SENT["secret_key"]
    wrong: list[Any] = [
        other,
        other | {"proxy_url": f"http://me:{PASSWORD}@[::1"},
        {"secret_key": [key]},
        [key],
        key,
    ]
    errors += [error_of(partial(load, second, settings)) for settings in wrong]
    left += [*of_process(second.pid, "worker"), *of_folder(tmp_path / "local")]
    second.close()
    printed = capfd.readouterr()
    left += [("log", (printed.out + printed.err).encode()), *errors, *server.objects()]

    assert maintained["snapshot_version"] > 0
    assert {name for name, _ in errors} == {
        "error CAIRN_ACCESS_DENIED",
        "error CAIRN_CONFIG",
        "error CAIRN_PROTOCOL",
    }
    places = {Path(name.removesuffix(" metadata")).suffix for name, _ in left}
    assert places >= {".arrow", ".json", ".sst"}
    assert {place: with_secret(left, place) for place in SECRETS} == {s: [] for s in SECRETS}
    arrived = server.sent()
    for secret in (*list(SENT.values())[2:], RECEIVED["SessionToken"]):
        assert secret.encode() in arrived.replace(b"%3D", b"="), f"{secret} was not used"
    assert base64.b64encode(f"me:{PASSWORD}".encode()) in arrived
