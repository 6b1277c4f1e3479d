"""StoreEngine: an engine in this process, which takes a snapshot of one version of a store.

Layer: offline. The load finds a way around damaged objects, and the snapshot shares no file with
them, as in a running query (docs/semantics.md#damaged-objects).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.config import EngineConf
from cairn.engine.directories import WorkerDirectories
from cairn.engine.resources import WorkerLimits, make_resources
from cairn.errors import BusyError
from cairn.protocol.calls import LoadRequest
from cairn.protocol.session_id import SessionId
from cairn.rocks import engine_description
from cairn.store.front.instance import ProviderInstance
from cairn.store.snapshot import snapshot

if TYPE_CHECKING:
    from cairn.ids import StoreId
    from cairn.storage.base import ObjectStore
    from cairn.store.state.snapshot_runs import SnapshotDone

_LIMITS = WorkerLimits(memory_bytes=256 << 20, local_disk_bytes=1 << 30)
# All versions stay: what retention keeps is the query's to decide.
_CONF = EngineConf(min_versions_to_retain=1 << 62)
_CLEAN_UP_WAIT_S = 60.0


class StoreEngine:
    """See the module. It uses the local disk: as much as the largest partition has.

    Args:
        local_dir: where; ``None``: the folder of temporary files.
        token: names this piece of work.
    """

    def __init__(self, local_dir: Path | None, token: str) -> None:
        temporary = Path(tempfile.gettempdir())
        local_dir = local_dir or temporary / f"cairn-offline-{os.getuid()}"
        self._directories = WorkerDirectories(local_dir, temporary)
        self._resources, self._event_loop = make_resources(self._directories, _LIMITS)
        self._token = token
        self._opened = 0

    def __enter__(self) -> Self:
        """Start its threads."""
        self._event_loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End them, and free the disk."""
        self._event_loop.stop()
        self._directories.remove()

    def take_snapshot(
        self, root: ObjectStore, store: StoreId, version: int, checkpoint_id: str | None
    ) -> SnapshotDone:
        """Load a version and store a snapshot of it; return what was uploaded.

        Args:
            root: the objects of the store; this closes them.
            store: the store.
            version: 1 or more.
            checkpoint_id: Spark's id of it; ``None`` in checkpoint format 1.

        Raises:
            MissingError, CorruptError: nothing leads to the version.
            CairnError: no partial snapshot is visible.
        """
        self._opened += 1
        checkpoint = StoreCheckpoint(
            root,
            store,
            1 if checkpoint_id is None else 2,
            _CONF,
            SnapshotWriter("repair", f"{self._token}/{self._opened}", engine_description()),
            self._resources.transfers,
        )
        directory = self._directories.instance_directory(self._opened)
        instance = ProviderInstance(checkpoint, directory, self._resources)
        try:
            session = SessionId(self._opened, 1)
            instance.load(LoadRequest(self._opened, session, version, checkpoint_id))
            done = snapshot.begin(instance.state, is_forced=True)[0].result()
            self._resources.snapshots.wait(_CLEAN_UP_WAIT_S)
        finally:
            instance.close()
        if not done.is_stored:
            raise BusyError(
                "the snapshot was not stored: there is one of this version, or the objects changed",
                store=str(store),
                version=version,
                next_step="repeat the command",
            )
        return done
