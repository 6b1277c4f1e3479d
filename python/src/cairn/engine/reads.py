"""Replies to GET, SCAN and CHANGES: rows, or an error that names the store and its version.

Layer: engine.  Spec: docs/architecture.md#data-channel. On the owner thread.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from cairn.errors import CairnError, InvalidError, unexpected
from cairn.protocol import frames
from cairn.store.reads import ScanRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from cairn.engine.channel import Connection
    from cairn.protocol.frames import Header
    from cairn.store.instance import ProviderInstance
    from cairn.store.resources import WorkerResources

    Serve = Callable[[ProviderInstance, Header, memoryview, Connection], None]
    Steps = Generator[None, None, tuple[pa.RecordBatch, bool]]
    Reader = Callable[[ProviderInstance, Header, memoryview], Steps]

_LOG = logging.getLogger(__name__)
_ORIGIN = pa.uint8()
_BYTES = pa.binary()
# Of a reply, which holds little else where one value is as large.
MAX_VALUES_BYTES = frames.MAX_REPLY_BYTES - (1 << 20)


def reported(
    failure: Exception, instance: ProviderInstance, version: int | None = None
) -> CairnError:
    """Return an error for the shim; one that nobody foresaw is logged, as its text stays here.

    Args:
        failure: what a frame met.
        instance: whose frame.
        version: that it concerns; by default the one at which the instance stands.
    """
    if not isinstance(failure, CairnError):
        _LOG.error("a frame of %s failed", instance.durable.store, exc_info=failure)
    standing = instance.standing
    if version is None and standing is not None:
        version = standing.version
    return unexpected(failure).with_context(store=str(instance.durable.store), version=version)


def _check_size(values: Iterable[bytes]) -> None:
    size = sum(map(len, values))
    if size > MAX_VALUES_BYTES:
        raise InvalidError(
            f"a value, or the list of one key, of {size} bytes is over the limit of "
            f"{MAX_VALUES_BYTES}",
            code="CAIRN_ROW_TOO_LARGE",
            next_step="make the query's lists shorter: by time to live, timers, or clearing them",
        )


def _reply_rows(
    to: Connection, header: Header, rows: pa.RecordBatch, *, applied: int, more: bool
) -> None:
    to.reply(
        header,
        frames.encode_rows(rows),
        rows=rows.num_rows,
        applied=applied,
        flags=frames.FLAG_MORE if more else 0,
    )


class ReadService:
    """Answers the kinds of frame that read.

    Args:
        services: of the worker.
    """

    def __init__(self, services: WorkerResources) -> None:
        self._services = services
        self._kinds: dict[int, Serve] = {
            frames.GET: partial(self._serve_rows, self._get),
            frames.SCAN: partial(self._serve_rows, self._scan),
            frames.CHANGES: self._changes,
        }

    def knows(self, kind: int) -> bool:
        """Whether frames of a kind are answered here."""
        return kind in self._kinds

    def serve(
        self, instance: ProviderInstance, header: Header, payload: memoryview, to: Connection
    ) -> None:
        """Answer a frame of a known kind, now or later; never raises."""
        try:
            self._kinds[header.kind](instance, header, payload, to)
        except Exception as failure:  # noqa: BLE001 - whatever it is, a task waits for it
            to.reply_error(header, reported(failure, instance))

    def _serve_rows(
        self,
        reader: Reader,
        instance: ProviderInstance,
        header: Header,
        payload: memoryview,
        to: Connection,
    ) -> None:
        def begin() -> None:
            # No later: of what is applied meanwhile the first rows know nothing.
            applied = instance.local.applied_through
            steps = reader(instance, header, payload)

            def step() -> bool:
                try:
                    next(steps)
                except StopIteration as end:
                    rows, more = end.value
                    _reply_rows(to, header, rows, applied=applied, more=more)
                except Exception as failure:  # noqa: BLE001 - whatever it is, a task waits for it
                    to.reply_error(header, reported(failure, instance))
                else:
                    return not to.closed
                return False

            # Most reads are done by one step; what takes longer lets others in.
            if step():
                self._services.owner.post_steps(step)

        instance.when_written(header.session & 0xFFFFFFFF, begin)

    def _get(self, instance: ProviderInstance, header: Header, payload: memoryview) -> Steps:
        cf, key = frames.decode_rows(payload, frames.GET_SCHEMA).columns
        origins, values = yield from instance.get(
            header.session & 0xFFFFFFFF,
            cast("list[int]", cf.to_pylist()),
            cast("list[bytes]", key.to_pylist()),
        )
        _check_size(value for value in values if value is not None)
        reply = pa.RecordBatch.from_arrays(
            [pa.array(origins, _ORIGIN), pa.array(values, _BYTES)], schema=frames.GET_REPLY_SCHEMA
        )
        return reply, len(origins) < len(cf)

    def _scan(self, instance: ProviderInstance, header: Header, payload: memoryview) -> Steps:
        columns = frames.decode_rows(payload, frames.SCAN_SCHEMA).columns
        cf, start, inclusive, end, limit_rows, limit_bytes = (one[0].as_py() for one in columns)
        page = yield from instance.scan(
            header.session & 0xFFFFFFFF,
            ScanRequest(
                cf=cf,
                start=start,
                inclusive=bool(inclusive),
                end=end,
                limit_rows=limit_rows,
                limit_bytes=limit_bytes,
            ),
        )
        _check_size(page.values)
        reply = pa.RecordBatch.from_arrays(
            [
                pa.array(page.origins, _ORIGIN),
                pa.array(page.keys, _BYTES),
                pa.array(page.values, _BYTES),
            ],
            schema=frames.SCAN_REPLY_SCHEMA,
        )
        return reply, page.more

    def _changes(
        self, instance: ProviderInstance, header: Header, payload: memoryview, to: Connection
    ) -> None:
        columns = frames.decode_rows(payload, frames.CHANGES_SCHEMA).columns
        version, checkpoint_id, from_row, limit_rows = (one[0].as_py() for one in columns)

        def read() -> None:
            # A changelog may have to be fetched: in a thread, and the reply is the owner's again.
            try:
                page, more = instance.changes.page(
                    version, checkpoint_id.decode(), from_row, limit_rows
                )
                applied = instance.local.applied_through
                rows = page or pa.RecordBatch.from_pylist([], frames.CHANGES_REPLY_SCHEMA)
            except Exception as failure:  # noqa: BLE001 - whatever it is, a task waits for it
                problem = reported(failure, instance, version)
                self._services.owner.post(lambda: to.reply_error(header, problem))
                return
            self._services.owner.post(
                lambda: _reply_rows(to, header, rows, applied=applied, more=more)
            )

        self._services.downloads.submit(read)
