# ruff: noqa: ANN401 - arguments go on as they are
"""An instance in this process, with the threads and directories that a worker would lend it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from cairn.checkpoint.sst_cache import SstCache
from cairn.config import EngineConf
from cairn.engine.event_loop import EventLoop
from cairn.format.header import ColumnFamily
from cairn.ids import Attempt, StoreId
from cairn.rocks import RocksMemory
from cairn.storage.open import open_store
from cairn.store.commit import CommitRequest
from cairn.store.durable import Durable
from cairn.store.instance import ProviderInstance
from cairn.store.load import LoadRequest
from cairn.store.reads import ScanRequest
from cairn.store.resources import PendingBytes, WorkerResources
from cairn.store.writes import WRITES_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

Result = TypeVar("Result")
STORE = StoreId(0, 3)


def family(number: int, *, multi: bool) -> ColumnFamily:
    name = "default" if number == 0 else f"family{number}"
    return ColumnFamily(number, name, multi, False, False, "key", "value", "encoder")  # noqa: FBT003


class Rig:
    """One worker's worth of threads, and one instance.

    Args:
        local: the local disk.
        url: where the objects are.
        checkpoint_format: Spark's.
        conf: of the instance.
    """

    def __init__(self, local: Path, url: str, checkpoint_format: int, conf: dict[str, Any]) -> None:
        self.owner = EventLoop(self._idle_work)
        pool = ThreadPoolExecutor(4)
        self.pools = [pool, ThreadPoolExecutor(2), ThreadPoolExecutor(2)]
        self.services = WorkerResources(
            owner=self.owner,
            memory=RocksMemory(4 << 20, 4 << 20),
            background=pool,
            sorting=pool,
            maintenance=pool,
            downloads=self.pools[1],
            uploads=self.pools[2],
            cache=SstCache(local / "sst", 1 << 26),
            pending=PendingBytes(1 << 20),
        )
        durable = Durable.of(
            open_store(url, {}),
            STORE,
            checkpoint_format,
            EngineConf.from_mapping(conf),
            run_id="run",
            instance=str(local),
            services=self.services,
        )
        self.instance = ProviderInstance(1, durable, local / "i1", self.services)
        self.number = 0
        self.frames = self.rows = 0
        self.keys: list[tuple[int, bytes]] = []
        self.owner.start()

    def _idle_work(self) -> bool:
        if self.instance.local.has_work:
            self.instance.local.apply_slice()
            return True
        return self.instance.local.join_one_long_list()

    def load(self, version: int, checkpoint_id: str | None, **more: Any) -> dict[str, Any]:
        self.number += 1
        self.frames = self.rows = 0
        self.keys = []
        return self.instance.load(LoadRequest(self.number, version, checkpoint_id, **more))

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        columns = list(zip(*rows, strict=True))
        batch = pa.record_batch(
            [pa.array(c, f.type) for c, f in zip(columns, WRITES_SCHEMA, strict=True)],
            schema=WRITES_SCHEMA,
        )
        self.frames += 1
        self.rows += len(rows)
        self.keys += [(cf, key) for _, cf, key, *_ in rows]
        number, sequence = self.number, self.frames
        self.owner.run(lambda: self.instance.take_writes(number, sequence, batch))

    def commit(
        self,
        version: int,
        base: str | None,
        families: list[ColumnFamily],
        attempt: int = 0,
        *,
        snapshot: bool = False,
    ) -> dict[str, Any]:
        return self.instance.commit(
            CommitRequest(
                session=self.number,
                frames=self.frames,
                rows=self.rows,
                are_distinct=len(self.keys) == len(set(self.keys)),
                version=version,
                base_checkpoint_id=base,
                families=tuple(families),
                max_cf_id=9,
                attempt=Attempt("run", 1, 0, 0, attempt),
                snapshot=snapshot,
            )
        )

    def contents(self, cf: int, version: int, page_rows: int = 5) -> dict[bytes, bytes]:
        """Scan a family, all deltas up to ``version`` applied."""
        self.owner.run_stepwise(self.instance.local.until_applied(version))
        found: dict[bytes, bytes] = {}
        start, inclusive = None, True
        while True:
            request = ScanRequest(cf, start, inclusive, None, page_rows, 1 << 20)
            page = self.read(partial(self.instance.scan, self.number, request))
            found |= dict(zip(page.keys, page.values, strict=True))
            if not page.more:
                return found
            start, inclusive = page.keys[-1], False

    def get(self, cf: int, keys: list[bytes]) -> list[bytes | None]:
        return self.read(lambda: self.instance.get(self.number, [cf] * len(keys), keys))[1]

    def read(self, read: Callable[[], Generator[None, None, Result]]) -> Result:
        """Run a read when all that was written is in a run, as the data channel does."""
        written = threading.Event()
        self.owner.run(partial(self.instance.when_written, self.number, written.set))
        assert written.wait(20)
        return self.owner.run_stepwise(read())

    def crash(self) -> None:
        """Leave everything as it is on disk, as a dead process does."""
        self.owner.stop()
        for pool in self.pools:
            pool.shutdown()
        # What a dead process cannot do and a test must: give back memory and descriptors. The
        # directory is never opened again, so what this flushes is seen by nobody.
        self.instance.local.close()
