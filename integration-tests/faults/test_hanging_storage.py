"""S3 takes the request of a load and never answers: whoever stops the query gets its slots back."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.s3 import S3Bucket, S3Endpoint
from harness.spark import CAIRN_CONF, CONTROL, SUBJECT, s3a_conf
from harness.tcp_proxy import Fault, TcpProxy

pytestmark = pytest.mark.usefixtures("driver")

FILES = 3
# Two tries of a second's grace, on a machine that runs other programs. The storage client would
# wait for two and a half minutes.
SLOTS_ARE_FREE_AFTER_S = 20


def wait_until_applied(fault: Fault) -> None:
    """Wait until a request has met the fault."""
    deadline = time.monotonic() + 60
    while not fault.applied:
        assert time.monotonic() < deadline, "no load sent a request"
        time.sleep(0.05)


def test_a_stopped_query_frees_its_slots_while_the_storage_hangs(
    s3_server: S3Endpoint, s3_bucket: S3Bucket, tmp_path: Path
) -> None:
    """The other queries of the application need the slots, and the query goes on later."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    other = Run(BY_NAME["windows_update"], events, str(tmp_path / "control"), CONTROL, 2)
    control = Control("hanging-storage", other)
    release = threading.Event()
    with TcpProxy(s3_server.endpoint_url) as proxy:
        conf = {**s3a_conf(s3_bucket.settings), CAIRN_CONF + "s3.endpoint": proxy.url}
        url = f"{s3_bucket.url}/query"
        run = Run(BY_NAME["windows_update"], events, url, SUBJECT, 2, conf)
        run.advance()
        control.advance()
        events.add_files(FILES, 2)
        control.advance()
        hanging = proxy.add(Fault(b"GET ", contains=b"/state/0/", times=1000, before=release.wait))

        query = run.start()
        try:
            wait_until_applied(hanging)
            began = time.monotonic()
            query.stop()
            # As many tasks as slots: they run at the same time.
            run.session().range(0, 1000, 1, 2).rdd.map(lambda row: row.id).count()
            took = time.monotonic() - began
        finally:
            release.set()
        run.advance()

    assert took < SLOTS_ARE_FREE_AFTER_S
    assert run.record.rows == control.record.rows
