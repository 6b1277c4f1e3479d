"""FrameService: takes WRITES, and answers GET, SCAN and CHANGES.

Layer: engine.  Spec: docs/protocol.md#data-channel. On the event loop.

A read crosses: ``Connection`` (bytes), ``FrameService`` (frames), ``ProviderInstance`` (which
session and database), ``store.reads`` (spill over committed rows), ``RocksDb``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from cairn.errors import CairnError, InvalidError, ProtocolError, unexpected
from cairn.protocol import frames
from cairn.protocol.session_id import SessionId
from cairn.store.reads import ScanRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Executor

    from cairn.engine.channel import Connection
    from cairn.engine.event_loop import EventLoop
    from cairn.protocol.frames import Header
    from cairn.store.instance import ProviderInstance

    Steps = Generator[None, None, tuple[pa.RecordBatch, bool]]

_LOG = logging.getLogger(__name__)
_ORIGIN = pa.uint8()
_BYTES = pa.binary()
# Of a reply, which holds little else where one value is as large.
MAX_VALUES_BYTES = frames.MAX_REPLY_BYTES - (1 << 20)


@dataclass(slots=True)
class _Request:
    """A frame that expects a reply."""

    instance: ProviderInstance
    session: int
    header: Header
    payload: memoryview
    connection: Connection

    def reply(self, rows: pa.RecordBatch, *, applied: int, more: bool) -> None:
        self.connection.reply(
            self.header,
            frames.encode_rows(rows),
            rows=rows.num_rows,
            applied=applied,
            flags=frames.FLAG_MORE if more else 0,
        )

    def fail(self, failure: Exception) -> None:
        self.connection.reply_error(self.header, reported(failure, self.instance))


class FrameService:
    """See the module.

    Args:
        find_instance: returns the instance of a number, or raises ``RetryableError``.
        event_loop: runs the steps of long reads.
        downloads: threads that read pages of changes.
    """

    def __init__(
        self,
        find_instance: Callable[[int], ProviderInstance],
        event_loop: EventLoop,
        downloads: Executor,
    ) -> None:
        self._find_instance = find_instance
        self._event_loop = event_loop
        self._downloads = downloads
        self._kinds: dict[int, Callable[[_Request], None]] = {
            frames.GET: lambda request: self._read(request, _get),
            frames.SCAN: lambda request: self._read(request, _scan),
            frames.CHANGES: self._read_changes,
        }

    def on_frame(self, header: Header, payload: memoryview, connection: Connection) -> None:
        """Serve one frame; see ``channel.Dispatcher``."""
        session = SessionId.unpack(header.session)
        if header.kind == frames.WRITES:
            self._take_writes(session, header, payload, connection)
            return
        serve = self._kinds.get(header.kind)
        if serve is None:
            raise ProtocolError(f"the engine knows no frames of kind 0x{header.kind:02x}")
        instance = self._find_instance(session.instance)
        request = _Request(instance, session.number, header, payload, connection)

        def serve_when_applied(failure: CairnError | None) -> None:
            try:
                if failure is None:
                    serve(request)
                else:
                    request.fail(failure)
            except Exception as problem:  # noqa: BLE001 - whatever it is, a task waits for it
                request.fail(problem)

        try:
            instance.when_applied(header.applied, serve_when_applied)
        except CairnError as failure:
            request.fail(failure)

    def _take_writes(
        self, session: SessionId, header: Header, payload: memoryview, connection: Connection
    ) -> None:
        try:
            instance = self._find_instance(session.instance)
        except CairnError:
            return  # the commit fails with the same error
        try:
            rows = frames.decode_rows(payload, frames.WRITES_SCHEMA)
            instance.take_writes(session.number, header.sequence, rows)
            if instance.pause_if_full(session.number, connection.resume):
                connection.pause()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the commit must report it
            instance.refuse_writes(session.number, reported(failure, instance))

    def _read(self, request: _Request, read: Callable[[_Request], Steps]) -> None:
        def begin() -> None:
            # Before the first row is read: the reply says nothing of deltas applied after it.
            applied = request.instance.state.local.applied_through
            steps = read(request)

            def step() -> bool:
                try:
                    next(steps)
                except StopIteration as end:
                    rows, more = end.value
                    request.reply(rows, applied=applied, more=more)
                except Exception as failure:  # noqa: BLE001 - whatever it is, a task waits for it
                    request.fail(failure)
                else:
                    return not request.connection.is_closed
                return False

            # One step is enough for most reads; other work runs between the steps of a longer one.
            if step():
                self._event_loop.post_steps(step)

        request.instance.when_readable(request.session, begin)

    def _read_changes(self, request: _Request) -> None:
        columns = frames.decode_rows(request.payload, frames.CHANGES_SCHEMA).columns
        version, checkpoint_id, from_row, limit_rows = (one[0].as_py() for one in columns)
        instance = request.instance

        def read() -> None:
            # In a thread, as the changelog may have to be fetched; the event loop replies.
            try:
                page, more = instance.changes.page(
                    version, checkpoint_id.decode(), from_row, limit_rows
                )
                applied = instance.state.local.applied_through
                rows = page or pa.RecordBatch.from_pylist([], frames.CHANGES_REPLY_SCHEMA)
            except Exception as failure:  # noqa: BLE001 - whatever it is, a task waits for it
                error = reported(failure, instance, version)
                self._event_loop.post(lambda: request.fail(error))
            else:
                self._event_loop.post(lambda: request.reply(rows, applied=applied, more=more))

        self._downloads.submit(read)


def _get(request: _Request) -> Steps:
    cf, key = frames.decode_rows(request.payload, frames.GET_SCHEMA).columns
    origins, values = yield from request.instance.get(
        request.session, cast("list[int]", cf.to_pylist()), cast("list[bytes]", key.to_pylist())
    )
    _check_size(value for value in values if value is not None)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(origins, _ORIGIN), pa.array(values, _BYTES)], schema=frames.GET_REPLY_SCHEMA
    )
    return rows, len(origins) < len(cf)


def _scan(request: _Request) -> Steps:
    columns = frames.decode_rows(request.payload, frames.SCAN_SCHEMA).columns
    cf, start, inclusive, end, limit_rows, limit_bytes = (one[0].as_py() for one in columns)
    page = yield from request.instance.scan(
        request.session, ScanRequest(cf, start, bool(inclusive), end, limit_rows, limit_bytes)
    )
    _check_size(page.values)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(page.origins, _ORIGIN),
            pa.array(page.keys, _BYTES),
            pa.array(page.values, _BYTES),
        ],
        schema=frames.SCAN_REPLY_SCHEMA,
    )
    return rows, page.more


def reported(
    failure: Exception, instance: ProviderInstance, version: int | None = None
) -> CairnError:
    """Return an error for the shim. An unexpected one is logged, as its text is not sent.

    Args:
        failure: of a frame.
        instance: of the frame.
        version: that it concerns; by default the current one.
    """
    if not isinstance(failure, CairnError):
        _LOG.error("a frame of %s failed", instance.store, exc_info=failure)
    current = instance.state.version
    if version is None and current is not None:
        version = current.version
    return unexpected(failure).with_context(store=instance.store, version=version)


def _check_size(values: Iterable[bytes]) -> None:
    size = sum(map(len, values))
    if size > MAX_VALUES_BYTES:
        raise InvalidError(
            f"a value, or the list of one key, of {size} bytes is over the limit of "
            f"{MAX_VALUES_BYTES}",
            code="CAIRN_ROW_TOO_LARGE",
            next_step="make the query's lists shorter: by time to live, timers, or clearing them",
        )
