"""A checkpoint of Cairn's own: the logs of a query without Spark, and stores that engines write."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from rig import Rig, family
from small_checkpoint import PARTITIONS, SmallCheckpoint

import cairn
from cairn.format.ops import OP_DELETE, OP_PUT
from cairn.format.spark_log import OWN_PROVIDER, PROVIDER
from cairn.ids import StoreId
from cairn.protocol.frames import PRESENCE_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from spark_store_files import Change

_FAMILY = family(0, multi=False)
# What Spark's encoders begin each key and value with.
_FORM = b"\0"
_HOURS_S = 10 * 3600


class RunningCheckpoint(SmallCheckpoint):
    """See the module.

    Args:
        folder: of the checkpoint.
        local: the local disk of the engine.
        checkpoint_format: Spark's.
        conf: of the engine.
        key_type: Spark's name of the type of the key.

    Attributes:
        ids: the checkpoint ids of the stores at each version; ``None`` in checkpoint format 1.
        stores: the engine's instances, one per partition.
    """

    def __init__(
        self,
        folder: Path,
        local: Path,
        checkpoint_format: int = 2,
        conf: Mapping[str, int] | None = None,
        key_type: str = "long",
    ) -> None:
        super().__init__(folder, {PROVIDER: OWN_PROVIDER}, key_type)
        self.checkpoint_format = checkpoint_format
        self._local = local
        self._engine_conf = {"minDeltasForSnapshot": 3, "minBatchesToRetain": 100, **(conf or {})}
        self._runs = 0
        self.ids: list[list[str | None]] = [[None] * PARTITIONS]
        self.stores: list[Rig] = []
        self.start()

    def start(self) -> None:
        """Start the engine again, with another local disk, behind the newest commit."""
        self._runs += 1
        for partition in range(PARTITIONS):
            self.stores.append(
                Rig(
                    self._local / f"{self._runs}-{partition}",
                    str(self.folder / f"state/0/{partition}"),
                    self.checkpoint_format,
                    self._engine_conf,
                    run=f"run{self._runs}",
                    beside=self.stores[0] if self.stores else None,
                    store=StoreId(0, partition),
                )
            )

    def stop(self) -> None:
        """End the engine, as a dead process; the logs become old."""
        for rig in reversed(self.stores):
            rig.crash()
        self.stores.clear()
        for log in ("offsets", "commits"):
            for path in (self.folder / log).iterdir():
                age(path)

    def go_back(self, batch: int) -> None:
        """Continue behind a batch, as Spark does after its logs were shortened."""
        del self.rows[batch + 1 :]
        del self.ids[batch + 2 :]

    def go_on_at(self, folder: Path, local: Path, batch: int, conf: Mapping[str, int]) -> None:
        """Continue behind a batch as another query, to which a command has given its state.

        The engine of the former place goes on to live.

        Args:
            folder: of the other checkpoint.
            local: the local disk of its engine.
            batch: the newest one there.
            conf: other settings of the engine.
        """
        self.folder, self._local = folder, local
        self.rows, self.ids = self.rows[: batch + 1], self.ids[: batch + 2]
        self._engine_conf = {**self._engine_conf, **conf}
        self.stores = []
        self.start()

    def adopt(self, rows: dict[int, tuple[int, int]]) -> None:
        """Continue behind a batch that a command has appended, with these rows."""
        batch = len(self.rows)
        entry = (self.folder / f"commits/{batch}").read_bytes().partition(b"\n")[2]
        ids = json.loads(entry).get("stateUniqueIds")
        found = [None] * PARTITIONS if ids is None else [one for (one,) in ids["0"]]
        self.ids.append(found)
        self.rows.append(dict(rows))

    def snapshot(self) -> None:
        """Take snapshots where they are due."""
        for rig in self.stores:
            rig.maintain(cleanup=False)

    def state(self) -> dict[int, tuple[int, int]]:
        """Return the state at the newest batch, as the reader has it."""
        with cairn.open_checkpoint(str(self.folder)) as checkpoint:
            table = checkpoint.state().to_table().to_pylist()
        return {row["user"]: (row["max"], row["max_2"]) for row in table}

    def _commit(self, batch: int, by_partition: Mapping[int, list[Change]]) -> None:
        ids: list[str | None] = []
        for partition, writes in by_partition.items():
            rig = self.stores[partition]
            before = rig.load(batch, self.ids[-1][partition])["checkpoint_id"]
            rows = [
                (
                    OP_DELETE if kind == "delete" else OP_PUT,
                    0,
                    _FORM + key,
                    _stored(value),
                    PRESENCE_UNKNOWN,
                )
                for kind, key, value in writes
            ]
            if rows:
                rig.write(rows)
            answer = rig.commit(batch + 1, before, [_FAMILY])
            ids.append(str(answer["checkpoint_id"]))
        has_ids = self.checkpoint_format == 2
        self.ids.append(ids if has_ids else [None] * PARTITIONS)
        self.log_commit(batch, {"0": [[one] for one in ids]} if has_ids else None)


def _stored(value: bytes) -> bytes | None:
    return _FORM + value if value else None


def age(path: Path) -> None:
    """Let a file be ten hours old; one that is so already stays as it is."""
    modified_s = path.stat().st_mtime
    if time.time() - modified_s < _HOURS_S / 2:
        os.utime(path, (modified_s - _HOURS_S, modified_s - _HOURS_S))
