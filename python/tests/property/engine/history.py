"""A store with the model of all its versions, for property tests in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rig import Rig, family

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.storage.progress import Progress

PUT, DELETE = 1, 2
FAMILY = family(0, multi=False)
CONF = {"minDeltasForSnapshot": 1, "minBatchesToRetain": 100}
Rows = dict[bytes, bytes]
Writes = dict[bytes, bytes | None]


class History:
    """A store that keeps all changelogs, and the rows of each of its versions."""

    def __init__(self, folder: Path, checkpoint_format: int) -> None:
        self.folder = folder
        self.objects = folder / "objects"
        self.checkpoint_format = checkpoint_format
        self.rows: list[Rows] = [{}]
        self.ids: list[str | None] = [None]
        self.rigs = 0
        self.rig = self._new_rig()
        self.load(0)

    @property
    def newest(self) -> int:
        return len(self.ids) - 1

    def restart(self, version: int) -> dict[str, Any]:
        """Load a version in a worker whose local directory is empty."""
        self.rig.crash()
        self.rig = self._new_rig()
        return self.load(version)

    def _new_rig(self) -> Rig:
        self.rigs += 1
        local = self.folder / f"local{self.rigs}"
        return Rig(local, str(self.objects), self.checkpoint_format, CONF)

    def load(self, version: int, progress: Progress | None = None) -> dict[str, Any]:
        has_ids = self.checkpoint_format == 2
        return self.rig.load(version, self.ids[version] if has_ids else None, progress)

    def commit(self, writes: Writes) -> None:
        self.rig.write([(PUT if v else DELETE, 0, k, v, 0) for k, v in writes.items()])
        answer = self.rig.commit(self.newest + 1, self.ids[-1], [FAMILY])
        self.rows.append({k: v for k, v in {**self.rows[-1], **writes}.items() if v})
        self.ids.append(answer["checkpoint_id"])
        self.load(self.newest)

    def run(self, steps: list[Writes | str]) -> None:
        for step in steps:
            if isinstance(step, dict):
                self.commit(step)
            elif step == "snapshot":
                self.rig.maintain()
            else:
                self.restart(self.newest)
        # No snapshot is stored after the damage.
        self.restart(0)
