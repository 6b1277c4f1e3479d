"""examine: all checks, in the order in which a job meets them.

Layer: doctor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cairn.doctor.location import check_location
from cairn.doctor.machine import check_folders, check_hadoop, check_open_files
from cairn.doctor.packages import check_packages, check_python
from cairn.doctor.settings import check_engine_python, check_settings
from cairn.doctor.spark import check_java, check_s3_jars, check_spark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cairn.doctor.check import Check


def examine(
    location: str | None = None,
    options: Mapping[str, Any] | None = None,
    job: Mapping[str, str] | None = None,
    *,
    may_write: bool = False,
) -> Iterator[Check]:
    """Yield what was checked on this machine.

    Args:
        location: the query's ``checkpointLocation``; ``None``: it is not checked.
        options: of its storage, as ``cairn.open_checkpoint`` takes them.
        job: settings of the job.
        may_write: whether an object may be created at the location, and deleted.
    """
    settings = job or {}
    yield from check_python()
    yield from check_packages()
    yield from check_java()
    yield from check_spark()
    yield from check_open_files(settings)
    yield from check_folders(settings)
    yield from check_hadoop()
    yield from check_settings(settings)
    yield from check_engine_python(settings)
    if location is not None:
        yield from check_location(location, options or {}, may_write=may_write)
        yield from check_s3_jars(location, settings)
