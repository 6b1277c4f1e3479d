"""FrameService: takes WRITES; answers LOOKUP, GET, SCAN, RANGES, CHANGES, COMMIT.

Layer: engine.  Spec: docs/protocol.md#data-channel. On the event loop.

A read passes through ``Connection`` (bytes), ``FrameService`` (frames), ``ProviderInstance``
(finds session and database), ``store.rows.reads`` (spill over committed rows) and ``RocksDb``.

A LOOKUP of one key that needs no wait is answered by ``look_up_one``, in the call that received it.
All other requests become a ``_Request``, which can wait. A COMMIT runs in a thread of its own.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from cairn.errors import CairnError, ProtocolError, RowTooLargeError, unexpected
from cairn.ids import VERSION_MAX
from cairn.protocol import frames
from cairn.protocol.calls import CommitRequest
from cairn.protocol.session_id import SESSION_NUMBER_BITS, SESSION_NUMBERS, SessionId
from cairn.store.rows.committed import ScanRequest
from cairn.store.rows.merge import value_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Executor

    from cairn.engine.channel import Connection
    from cairn.engine.commit_threads import CommitThreads
    from cairn.engine.event_loop import EventLoop
    from cairn.protocol.calls import CommitAnswer
    from cairn.protocol.frames import Header
    from cairn.storage.hadoop.connections import StorageConnections
    from cairn.store.front.instance import ProviderInstance
    from cairn.store.rows.committed import Page

    # The payload, its rows, and whether more rows follow.
    Reply = tuple[pa.Buffer | bytes, int, bool]
    Steps = Generator[None, None, Reply]

_LOG = logging.getLogger(__name__)
_BYTES = pa.binary()
# A larger value is not copied into one buffer with its header.
_MAX_DIRECT_BYTES = 64 << 10
# Bound of the values in one reply; the rest of a reply is small.
MAX_VALUES_BYTES = frames.MAX_REPLY_BYTES - (1 << 20)


class FrameService:
    """Serves all frames of a worker; see the module.

    Args:
        find_instance: returns the instance of a number, or raises ``UnknownInstanceError``.
        event_loop: runs the steps of long reads.
        downloads: threads that read pages of changes.
        commits: threads that commit.
        storage: takes the connections that serve files.
    """

    def __init__(
        self,
        find_instance: Callable[[int], ProviderInstance],
        event_loop: EventLoop,
        downloads: Executor,
        commits: CommitThreads,
        storage: StorageConnections,
    ) -> None:
        self._find_instance = find_instance
        self.event_loop = event_loop
        self.downloads = downloads
        self._commits = commits
        self._storage = storage

    def on_frame(self, header: Header, payload: bytes | memoryview, connection: Connection) -> None:
        """Serve one frame; see ``channel.Dispatcher``."""
        if header.kind == frames.SERVE_FILES:
            self._storage.add(connection.detach())
            return
        session = SessionId.unpack(header.session)
        if header.kind == frames.WRITES:
            self._take_writes(session, header, payload, connection)
            return
        if header.kind not in _REPLIES:
            raise ProtocolError(f"the engine has no frames of kind 0x{header.kind:02x}")
        instance = self._find_instance(session.instance)
        request = _Request(self, instance, session.number, header, payload, connection)
        if header.kind == frames.COMMIT:
            self._commits.submit(partial(_commit, request))
            return
        try:
            instance.when_applied(header.applied, request.serve)
        except CairnError as failure:
            request.fail(failure)

    def look_up_one(
        self, session: int, sequence: int, required: int, cf: int, key: bytes
    ) -> bytes | None:
        """Answer a LOOKUP of one key, or leave it to ``on_frame``; see ``channel.Dispatcher``."""
        instance = self._find_instance(session >> SESSION_NUMBER_BITS)
        try:
            found = instance.look_up(session & SESSION_NUMBERS, required, cf, key)
        except Exception as failure:
            raise reported(failure, instance) from failure
        if found is None:
            return None
        applied, origin, value = found
        if value is not None and len(value) > _MAX_DIRECT_BYTES:
            return None
        return frames.encode_reply_to_one(session, sequence, applied, (origin, value))

    def _take_writes(
        self,
        session: SessionId,
        header: Header,
        payload: bytes | memoryview,
        connection: Connection,
    ) -> None:
        try:
            instance = self._find_instance(session.instance)
        except CairnError:
            return  # the commit fails with the same error
        target = instance.open_session(session.number)
        if target is None:
            return  # the session has ended
        try:
            rows = frames.decode_rows(payload, frames.WRITES_SCHEMA)
            target.add_frame(header.sequence, rows)
            if target.pause_if_full(connection.resume):
                connection.pause()
        except Exception as failure:  # noqa: BLE001 - the commit must report it
            target.fail(reported(failure, instance))


@dataclass(slots=True)
class _Request:
    """A frame that expects a reply. A task waits for the reply, so every failure must be sent."""

    service: FrameService
    instance: ProviderInstance
    session: int
    header: Header
    payload: bytes | memoryview
    connection: Connection
    steps: Steps = field(init=False)
    applied: int = 0

    def serve(self, failure: CairnError | None) -> None:
        """Reply, now or later. REQUIRES: the required version is applied, or ``failure`` is set."""
        try:
            if failure is not None:
                self.fail(failure)
            elif self.header.kind == frames.CHANGES:
                _read_changes(self)
            else:
                self.instance.when_readable(self.session, self._begin)
        except Exception as problem:  # noqa: BLE001 - see the class
            self.fail(problem)

    def _begin(self) -> None:
        # Set before the first row is read: the read may miss deltas that are applied later.
        self.applied = self.instance.state.local.readable_through
        self.steps = _READS[self.header.kind](self)
        # Most reads need one step. Other work runs between the steps of a longer read.
        if self._step():
            self.service.event_loop.post_steps(self._step)

    def _step(self) -> bool:
        try:
            next(self.steps)
        except StopIteration as end:
            self.reply(*end.value)
        except Exception as failure:  # noqa: BLE001 - see the class
            self.fail(failure)
        else:
            if not self.connection.is_closed:
                return True
            self.steps.close()  # it refers to this request: only the collector would free both
        return False

    def reply(self, payload: pa.Buffer | bytes, rows: int, more: bool) -> None:  # noqa: FBT001 - a `Reply`
        self.connection.reply(
            self.header,
            payload,
            rows=rows,
            applied=self.applied,
            flags=frames.FLAG_MORE if more else 0,
        )

    def fail(self, failure: Exception) -> None:
        self.connection.reply_error(self.header, reported(failure, self.instance))


def _look_up(request: _Request) -> Steps:
    cf, keys = frames.decode_lookup(bytes(request.payload), request.header.rows)
    origins, values = yield from request.instance.get(request.session, cf, keys)
    _check_values(values)
    reply = frames.encode_lookup_reply(origins, values)
    return reply, len(origins), len(origins) < len(keys)


def _get(request: _Request) -> Steps:
    names = frames.decode_rows(request.payload, frames.GET_SCHEMA)
    cf, keys = _only_family(names), cast("list[bytes]", names.column("key").to_pylist())
    origins, values = yield from request.instance.get(request.session, cf, keys)
    request.instance.note_found(request.session, request.applied, names, origins)
    _check_values(values)
    columns: list[pa.Array[Any]] = [
        pa.array(np.frombuffer(origins, np.uint8)),
        pa.array(values, _BYTES),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=frames.GET_REPLY_SCHEMA)
    return rows.serialize(), rows.num_rows, len(origins) < len(keys)


def _scan(request: _Request) -> Steps:
    cf, start, inclusive, end, limit_rows, limit_bytes = _only_row(request, frames.SCAN_SCHEMA)
    page = yield from request.instance.scan(
        request.session, ScanRequest(cf, start, bool(inclusive), end, limit_rows, limit_bytes)
    )
    return _scanned(page)


def _ranges(request: _Request) -> Steps:
    rows = frames.decode_rows(request.payload, frames.RANGES_SCHEMA)
    cf, starts = _only_family(rows), cast("list[bytes]", rows.column("from").to_pylist())
    ends = cast("list[bytes | None]", rows.column("to").to_pylist())
    if len(starts) > frames.MAX_RANGES or not _ascend(starts, ends):
        raise ProtocolError("ranges are too many, or do not ascend")
    ranges = list(zip(starts, ends, strict=True))
    page = yield from request.instance.ranges(request.session, cf, ranges)
    request.instance.note_found_ranges(request.session, request.applied, cf, ranges, page)
    return _scanned(page)


def _only_family(rows: pa.RecordBatch) -> int:
    """Return the family that all rows of a request have."""
    cfs = rows.column("cf").to_numpy()
    if not len(cfs) or (cfs != cfs[0]).any():
        raise ProtocolError("a request is of several families, or empty")
    return int(cfs[0])


def _only_row(request: _Request, schema: pa.Schema) -> list[Any]:
    """Return the values of a request that is one row."""
    rows = frames.decode_rows(request.payload, schema)
    if rows.num_rows != 1:
        raise ProtocolError(f"a request of {rows.num_rows} rows instead of one")
    return [column[0].as_py() for column in rows.columns]


def _ascend(starts: list[bytes], ends: list[bytes | None]) -> bool:
    return all(
        end is not None and end <= following
        for end, following in zip(ends[:-1], starts[1:], strict=True)
    )


def _scanned(page: Page) -> Reply:
    _check_size(value_bytes(page.rows))
    return page.rows.serialize(), page.rows.num_rows, page.through is not None


_READS = {
    frames.LOOKUP: _look_up,
    frames.GET: _get,
    frames.SCAN: _scan,
    frames.RANGES: _ranges,
}
_REPLIES = (*_READS, frames.CHANGES, frames.COMMIT)


def _read_changes(request: _Request) -> None:
    version, name, from_row, limit_rows = _only_row(request, frames.CHANGES_SCHEMA)
    if not 1 <= version <= VERSION_MAX:
        raise ProtocolError(f"a request for the changes of version {version}")
    # A name that is no text is an id of an unknown kind.
    checkpoint_id = name.decode("utf-8", "replace")
    instance, event_loop = request.instance, request.service.event_loop

    def read() -> None:
        # In another thread, because it may fetch the changelog; the event loop replies.
        try:
            page, more = instance.changes.page(version, checkpoint_id, from_row, limit_rows)
            request.applied = instance.state.local.readable_through
            rows = page or pa.RecordBatch.from_pylist([], frames.CHANGES_REPLY_SCHEMA)
        except Exception as failure:  # noqa: BLE001 - a task waits for the reply
            error = reported(failure, instance, version)
            event_loop.post(lambda: request.fail(error))
        else:
            event_loop.post(lambda: request.reply(rows.serialize(), rows.num_rows, more))

    request.service.downloads.submit(read)


def _commit(request: _Request) -> None:
    """Commit a session and reply. In a thread of its own; the event loop sends errors."""
    instance, event_loop = request.instance, request.service.event_loop
    has_replied = False

    def reply(answer: CommitAnswer) -> None:
        nonlocal has_replied
        payload, applied = answer.to_bytes(), instance.state.local.applied_through
        has_replied = True
        request.connection.reply_from_thread(
            request.header, payload, rows=len(answer.counts), applied=applied
        )

    try:
        instance.commit(_commit_request(request), reply)
    except Exception as failure:  # noqa: BLE001 - a task waits for the reply
        error = reported(failure, instance)
        if not has_replied:
            event_loop.post(lambda: request.fail(error))


def _commit_request(request: _Request) -> CommitRequest:
    session = request.header.session
    try:
        arguments = json.loads(bytes(request.payload))
        names = {"instance": session >> SESSION_NUMBER_BITS, "session": session}
        return CommitRequest.from_json(arguments | names)
    except (KeyError, TypeError, ValueError) as failure:
        raise ProtocolError(f"a commit has wrong arguments: {type(failure).__name__}") from failure


def reported(
    failure: Exception, instance: ProviderInstance, version: int | None = None
) -> CairnError:
    """Return a frame's error for the shim; ``version`` is the current one if not given.

    An unexpected error is logged here, because its text is not sent.
    """
    if not isinstance(failure, CairnError):
        _LOG.error("a frame of %s failed", instance.store, exc_info=failure)
    current = instance.state.version
    if version is None and current is not None:
        version = current.version
    return unexpected(failure).with_context(store=instance.store, version=version)


def _check_values(values: Iterable[bytes | None]) -> None:
    _check_size(sum(map(len, filter(None, values))))


def _check_size(size: int) -> None:
    if size > MAX_VALUES_BYTES:
        raise RowTooLargeError(
            f"a value (or the list of one key) has {size} bytes, over the limit of "
            f"{MAX_VALUES_BYTES}",
            next_step="make the query's lists shorter: use a time to live, timers, or clear them",
        )
