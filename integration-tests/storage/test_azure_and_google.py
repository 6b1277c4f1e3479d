"""The checkpoint is on abfs or gs, against emulators: a query with a restart has a batch's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.events import Events
from harness.gcs import GCS_JARS, GcsServer
from harness.hdfs import ABFS_JARS
from harness.job import JobProcess, Query
from harness.spark import SUBJECT, class_path

if TYPE_CHECKING:
    from pathlib import Path

    from harness.emulator import Emulator

pytestmark = pytest.mark.usefixtures("driver")


@pytest.mark.parametrize(
    ("server", "checkpoint_format"),
    [
        pytest.param("azurite", 1, marks=pytest.mark.abfs),
        pytest.param("azurite", 2, marks=pytest.mark.abfs),
        pytest.param("gcs", 2, marks=pytest.mark.slow),
    ],
)
def test_a_query_continues(
    server: str, checkpoint_format: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The job has the jar and the settings of the service; nothing is to be set for the state."""
    service: Emulator = request.getfixturevalue(server)
    folder = GCS_JARS if isinstance(service, GcsServer) else ABFS_JARS
    events = Events(tmp_path / "input")
    jars = ":".join([class_path(), *(str(jar) for jar in folder.glob("*.jar"))])
    location = f"{service.url}/query-{checkpoint_format}"
    query = Query("distinct", events, location, SUBJECT, checkpoint_format, service.conf)
    for first in (0, 2):
        events.add_files(first, 2)
        job = JobProcess(tmp_path / "job", [query], {"spark.driver.extraClassPath": jars})
        try:
            code = job.wait()
        finally:
            job.end()
        assert code == 0, job.tail()
        assert not job.error(), job.error()

    assert job.all_rows() == query.batch_rows()
