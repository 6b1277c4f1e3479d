"""Replies to GET, SCAN and CHANGES: rows, or an error that names the store and its version.

Layer: engine.  Spec: docs/architecture.md#data-channel. On the owner thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from cairn.engine import frames
from cairn.errors import CairnError, unexpected
from cairn.store.cursors import ScanRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.engine.channel import Connection
    from cairn.engine.frames import Header
    from cairn.store.instance import ProviderInstance
    from cairn.store.services import Services

    Serve = Callable[[ProviderInstance, Header, memoryview, Connection], None]

_LOG = logging.getLogger(__name__)
_ORIGIN = pa.uint8()
_BYTES = pa.binary()


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


class ReadService:
    """Answers the kinds of frame that read.

    Args:
        services: of the worker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kinds: dict[int, Serve] = {
            frames.GET: self._get,
            frames.SCAN: self._scan,
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

    def _get(
        self, instance: ProviderInstance, header: Header, payload: memoryview, to: Connection
    ) -> None:
        cf, key = frames.decode_rows(payload, frames.GET_SCHEMA).columns
        origins, values = instance.get(
            header.session & 0xFFFFFFFF,
            cast("list[int]", cf.to_pylist()),
            cast("list[bytes]", key.to_pylist()),
        )
        reply = pa.RecordBatch.from_arrays(
            [pa.array(origins, _ORIGIN), pa.array(values, _BYTES)], schema=frames.GET_REPLY_SCHEMA
        )
        to.reply(
            header,
            frames.encode_rows(reply),
            rows=len(origins),
            applied=instance.local.applied_through,
        )

    def _scan(
        self, instance: ProviderInstance, header: Header, payload: memoryview, to: Connection
    ) -> None:
        columns = frames.decode_rows(payload, frames.SCAN_SCHEMA).columns
        cf, start, inclusive, end, limit_rows, limit_bytes = (one[0].as_py() for one in columns)
        page = instance.scan(
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
        reply = pa.RecordBatch.from_arrays(
            [
                pa.array(page.origins, _ORIGIN),
                pa.array(page.keys, _BYTES),
                pa.array(page.values, _BYTES),
            ],
            schema=frames.SCAN_REPLY_SCHEMA,
        )
        to.reply(
            header,
            frames.encode_rows(reply),
            rows=len(page.keys),
            applied=instance.local.applied_through,
            flags=frames.FLAG_MORE if page.more else 0,
        )

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
                rows = page or pa.RecordBatch.from_pylist([], frames.CHANGES_REPLY_SCHEMA)
                payload = frames.encode_rows(rows)
            except Exception as failure:  # noqa: BLE001 - whatever it is, a task waits for it
                problem = reported(failure, instance, version)
                self._services.owner.post(lambda: to.reply_error(header, problem))
                return
            self._services.owner.post(
                lambda: to.reply(
                    header,
                    payload,
                    rows=rows.num_rows,
                    applied=instance.local.applied_through,
                    flags=frames.FLAG_MORE if more else 0,
                )
            )

        self._services.downloads.submit(read)
