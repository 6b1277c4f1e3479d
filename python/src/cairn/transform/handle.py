"""Spark's handle of a processor, whose state variables are read and written in bulk.

Depends on private parts of PySpark 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import StructType

from cairn.transform.lists import BulkLists, BulkListState
from cairn.transform.maps import BulkMaps
from cairn.transform.timers import BulkClient, TimerIterator
from cairn.transform.values import BulkValues


class BulkHandle(StatefulProcessorHandle):
    """The handle of one task; the server creates the state variables as for Spark."""

    def __init__(self, client: BulkClient) -> None:
        super().__init__(client)
        self._client = client

    # ruff: noqa: N802, N803 - Spark's names

    def getValueState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ValueState:
        """Return a value state."""
        state = super().getValueState(stateName, schema, ttlDurationMs)
        self._client.add_variable(stateName)
        bulk = BulkValues(self._client, state._valueStateClient, stateName)  # noqa: SLF001
        state._valueStateClient = bulk  # type: ignore[assignment] # noqa: SLF001
        return state

    def getListState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ListState:
        """Return a list state."""
        state = super().getListState(stateName, schema, ttlDurationMs)
        self._client.add_variable(stateName)
        bulk = BulkLists(self._client, state._listStateClient, stateName)  # noqa: SLF001
        return BulkListState(bulk, stateName)  # type: ignore[arg-type]

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        """Return a map state."""
        state = super().getMapState(stateName, userKeySchema, valueSchema, ttlDurationMs)
        self._client.add_variable(stateName)
        bulk = BulkMaps(self._client, state._mapStateClient, stateName)  # noqa: SLF001
        state._mapStateClient = bulk  # type: ignore[assignment] # noqa: SLF001
        return state

    def listTimers(self) -> Iterator[int]:
        """Return the times of the present key's timers, in ms."""
        return TimerIterator(self._client)
