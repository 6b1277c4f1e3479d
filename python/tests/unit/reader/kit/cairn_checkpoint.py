"""A checkpoint of an aggregation under Cairn's provider, in checkpoint format 2, without Spark."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "property" / "engine"))

from rig import Rig, family
from small_checkpoint import CONF, SmallCheckpoint, key_row, value_row

from cairn.ids import StoreId

RETAINED = 4
SNAPSHOTS = (3, 6, 9)
NEWEST = 11
USERS = 400
_PUT = 1
_FAMILY = family(0, multi=False)
_CAIRN = {
    "spark.sql.streaming.stateStore.providerClass": "io.cairn.spark.CairnStateStoreProvider",
    "spark.sql.shuffle.partitions": "1",
}


class CairnCheckpoint:
    """The logs of a query, and the objects of its only partition, which a worker writes.

    The worker takes ``SNAPSHOTS``, and deletes the changelogs up to the first of them. The logs
    have one batch more than ``RETAINED``, as Spark leaves them.

    Args:
        folder: of the checkpoint.
        local: for the worker.
    """

    def __init__(self, folder: Path, local: Path) -> None:
        self.folder = folder
        self.store = folder / "state/0/0"
        self._logs = SmallCheckpoint(folder, CONF | _CAIRN, partitions=1)
        conf = {"minDeltasForSnapshot": 3, "minBatchesToRetain": RETAINED}
        rig = Rig(local, str(self.store), 2, conf, store=StoreId(0, 0))
        id_: str | None = None
        for version in range(1, NEWEST + 1):
            rig.load(version - 1, id_)
            users = range(USERS) if version == 1 else range(version, USERS, 10)
            rig.write(
                [
                    (_PUT, 0, b"\0" + key_row(user), b"\0" + value_row(version, user), 0)
                    for user in users
                ]
            )
            id_ = str(rig.commit(version, id_, [_FAMILY])["checkpoint_id"])
            self._logs.log(version - 1, {"0": [[id_]]})
            rig.load(version, id_)
            if version in SNAPSHOTS:
                if version == SNAPSHOTS[-1]:
                    rig.compact()  # so that it has other files than those before it
                rig.maintain(cleanup=False)
        rig.maintain()
        rig.crash()
        for batch in range(NEWEST - RETAINED - 1):
            (folder / f"offsets/{batch}").unlink()
            (folder / f"commits/{batch}").unlink()

    def at(self, folder: Path) -> CairnCheckpoint:
        """Return the checkpoint in a folder to which it was copied."""
        copied = copy.copy(self)
        copied.folder, copied.store = folder, folder / self.store.relative_to(self.folder)
        return copied

    def changelog(self, version: int) -> Path:
        """Return the changelog of a version."""
        (path,) = self.store.glob(f"changelog/{version}_*.arrow")
        return path

    def manifest(self, version: int) -> Path:
        """Return the manifest of a snapshot."""
        (path,) = self.store.glob(f"snapshot/{version}_*.json")
        return path

    def files(self, version: int) -> set[Path]:
        """Return the files that a manifest names."""
        names = json.loads(self.manifest(version).read_bytes())["files"]
        return {self.store / one["object"] for one in names}
