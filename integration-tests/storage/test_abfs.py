"""The checkpoint is on abfs, against Azurite: a query with a restart has a batch job's rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.azurite import Azurite
from harness.events import Events
from harness.hdfs import ABFS_JARS
from harness.job import JobProcess, Query
from harness.spark import SUBJECT, class_path

pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.abfs]

FILES = 4


@pytest.mark.parametrize("checkpoint_format", [1, 2])
def test_a_query_continues_from_azure(
    checkpoint_format: int, azurite: Azurite, tmp_path: Path
) -> None:
    """The job has the jar and the key of the account; nothing else is to be set for the state."""
    events = Events(tmp_path / "input")
    jars = ":".join([class_path(), *(str(jar) for jar in ABFS_JARS.glob("*.jar"))])
    location = f"{azurite.url}/query-{checkpoint_format}"
    query = Query("distinct", events, location, SUBJECT, checkpoint_format, azurite.conf)
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
