"""S3 refuses a request: the error names the bucket or the missing rights, and has no secret."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from harness.clear_errors import assert_clear
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.s3 import S3Bucket
from harness.spark import CAIRN_CONF, SUBJECT, s3a_conf

pytestmark = pytest.mark.usefixtures("driver")

ANSWERS = {
    "NoSuchBucket": (404, "CAIRN_NO_SUCH_BUCKET"),
    "InvalidAccessKeyId": (403, "CAIRN_ACCESS_DENIED"),
    "SignatureDoesNotMatch": (403, "CAIRN_ACCESS_DENIED"),
}


class Refusal(BaseHTTPRequestHandler):
    """Answers every request with the same error of S3."""

    protocol_version = "HTTP/1.1"
    code = ""

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = f"<Error><Code>{self.code}</Code><Message>no</Message></Error>".encode()
        self.send_response(ANSWERS[self.code][0])
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _refuse  # noqa: N815 - names of the base class

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as in the base class
        """Print nothing."""


@pytest.fixture(params=ANSWERS)
def refusing(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Yield the URL of a server that refuses, and Cairn's code for its refusal."""
    handler = type("OneRefusal", (Refusal,), {"code": request.param})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", ANSWERS[request.param][1]
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_refusal_has_its_own_error(
    s3_bucket: S3Bucket, refusing: tuple[str, str], tmp_path: Path
) -> None:
    """If Spark reaches the bucket and Cairn does not, the error says why, without a secret key."""
    endpoint, code = refusing
    events = Events(tmp_path / "input")
    events.add_files(0, 1)
    conf = {**s3a_conf(s3_bucket.settings), CAIRN_CONF + "s3.endpoint": endpoint}
    checkpoint = f"{s3_bucket.url}/query"
    run = Run(BY_NAME["totals_complete"], events, checkpoint, SUBJECT, conf=conf)

    with pytest.raises(StreamingQueryException) as failure:
        run.advance()

    assert_clear(str(failure.value), code, s3_bucket.name)
    assert s3_bucket.settings["secret_key"] not in str(failure.value)
