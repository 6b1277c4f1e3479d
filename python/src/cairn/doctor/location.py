"""The location of a checkpoint: can it be listed and read, can it be written, whose clock is right.

Layer: doctor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cairn.clock import SYSTEM_CLOCK, Clock
from cairn.doctor.check import Check, ok, problem, warning
from cairn.errors import CairnError, ConditionalPutUnsupportedError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cairn.storage.base import ObjectStore

_QUERY_ID: Final = "metadata"
_START_BYTES: Final = 1024
_SKEW_S: Final = 60
_REFUSED_SKEW_S: Final = 15 * 60
_UNKNOWN: Final = "correct what the message names"


def check_location(
    location: str, options: Mapping[str, Any], *, may_write: bool, clock: Clock = SYSTEM_CLOCK
) -> Iterator[Check]:
    """Check a location.

    Args:
        location: the query's ``checkpointLocation``.
        options: of its storage, as ``cairn.open_checkpoint`` takes them.
        may_write: whether the probe for conditional PUT may create and delete an object.
        clock: this machine's.
    """
    try:
        from cairn.location import open_location  # noqa: PLC0415 - packages may be missing

        store = open_location(location, options)
    except ImportError as failure:
        cure = "install the packages that are missing"
        yield problem("location", f"{location} cannot be opened: {failure}", cure)
        return
    except CairnError as failure:
        yield _failed("location", failure)
        return
    with store:
        store.cleans = False
        try:
            yield from _check_reading(store)
            yield from check_clock(store, clock)
        except CairnError as failure:
            yield _failed("location", failure)
            return
        yield from _check_checkpoint(store)
        if may_write:
            yield from _check_writing(store)


def _failed(name: str, failure: CairnError) -> Check:
    text = f"[{failure.code}] {failure.message}"
    if failure.object_name:
        text += f" ({failure.object_name})"
    return problem(name, text, failure.next_step or _UNKNOWN)


def _check_reading(store: ObjectStore) -> Iterator[Check]:
    is_empty = next(iter(store.list("")), None) is None
    if is_empty:
        text = f"{store.url} is empty, or does not exist: a new query can begin here"
        yield ok("location list", text)
        return
    yield ok("location list", store.url)
    try:
        store.get_start(_QUERY_ID, _START_BYTES)
    except DataError:
        cure = "name the query's checkpointLocation, the folder that has offsets and commits"
        yield warning(
            "location get", f"there is no object {_QUERY_ID}: this is no checkpoint", cure
        )
        return
    yield ok("location get", store.object_url(_QUERY_ID))


def check_clock(store: ObjectStore, clock: Clock) -> Iterator[Check]:
    """Compare this machine's clock with that of the storage, if it has one of its own."""
    before = clock.now()
    server = store.server_time()
    if server is None:
        return
    # Its text has whole seconds.
    skew = (server - before - (clock.now() - before) / 2).total_seconds()
    found = f"this machine's clock differs from the server's by {abs(skew):.0f} s"
    cure = "let this machine take its time from a server (NTP)"
    if abs(skew) >= _REFUSED_SKEW_S:
        yield problem("clock", f"{found}: S3 refuses requests", cure)
    elif abs(skew) >= _SKEW_S:
        yield warning("clock", found, cure)
    else:
        yield ok("clock", found)


def _check_checkpoint(store: ObjectStore) -> Iterator[Check]:
    """Check whose state the checkpoint has: a query keeps its provider."""
    try:
        from cairn.reader.spark.logs import list_batches, read_conf  # noqa: PLC0415 - see above

        planned = list_batches(store).planned
        provider = read_conf(store, planned[-1]).provider
    except ImportError:
        return  # a finding of the packages
    except CairnError:
        return  # no checkpoint yet, or one that `cairn verify` looks at
    if provider == "cairn":
        yield ok("checkpoint", f"batch {planned[-1]}, of Cairn's provider")
    else:
        yield warning(
            "checkpoint",
            f"its state is of Spark's provider {provider}: a query keeps its provider",
            "for Cairn, start the query with a new checkpointLocation",
        )


def _check_writing(store: ObjectStore) -> Iterator[Check]:
    try:
        store.probe_conditional_put()
    except ConditionalPutUnsupportedError as failure:
        yield warning("location write", failure.message, failure.next_step or _UNKNOWN)
    except CairnError as failure:
        yield _failed("location write", failure)
    else:
        yield ok("location write", "an object was created once, and deleted")
