"""Shared by the tests of the checkpoint layer: machines over one in-memory object store."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cairn.checkpoint.commit_point import commit_changelog
from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.pending_upload import PendingUpload
from cairn.checkpoint.purge import Purger, PurgeResult
from cairn.checkpoint.recovery import Recovery
from cairn.checkpoint.retention import KeptVersions
from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.transfers import TransferResources
from cairn.checkpoint.upload import (
    SnapshotContent,
    SnapshotResult,
    SnapshotUploader,
    SnapshotWriter,
)
from cairn.checksum import crc32c
from cairn.clock import SYSTEM_ENTROPY, Clock, FakeClock
from cairn.format import changelog
from cairn.format.changelog import CHANGELOG_SCHEMA, Changelog
from cairn.format.header import Base, ChangelogHeader, ColumnFamily
from cairn.format.manifest import ChangelogRef, Manifest, SstFile
from cairn.format.ops import OP_DELETE, OP_PUT
from cairn.ids import Attempt, CheckpointId, StoreId, VersionRef
from cairn.storage.memory import MemoryBucket, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

STORE = StoreId(0, 3)
DEFAULT = ColumnFamily(
    id=0,
    name="default",
    multi=False,
    internal=False,
    ordered=False,
    key_type="int",
    value_type="int",
    key_encoder="NoPrefix",
)
GRACE_MS = 60_000
TRANSFERS = ThreadPoolExecutor(2, "transfers")

Content = dict[bytes, bytes]


class Crash(BaseException):
    """The writer's process crashes."""


def crash_at(wanted: str, hits: int = 1) -> FaultHook:
    """Return a hook that crashes at the fault point ``wanted``, the ``hits``-th time."""
    left = [hits]

    def hook(point: str) -> None:
        if point == wanted:
            left[0] -= 1
            if not left[0]:
                raise Crash(point)

    return hook


def attempt(task_attempt: int, *, run: str = "run", app_start_ms: int = 1000) -> Attempt:
    """Return an attempt of a run."""
    return Attempt(run, app_start_ms, 0, 0, task_attempt)


def new_id() -> CheckpointId:
    """Return a new checkpoint id."""
    return CheckpointId.new(SYSTEM_ENTROPY)


EMPTY_BASE = Base(0, None)


@dataclass(frozen=True)
class ModelVersion:
    """A version with its content, base and lineage; a writer commits on top of it."""

    ref: VersionRef | None = None
    content: Mapping[bytes, bytes] = field(default_factory=dict)
    base: Base = EMPTY_BASE
    lineage: tuple[VersionRef, ...] = ()
    empty_commits: int = 0

    @property
    def version(self) -> int:
        """Spark's version."""
        return 0 if self.ref is None else self.ref.version + self.empty_commits

    @property
    def checkpoint_id(self) -> str:
        """Spark's id of the version, in format 2."""
        assert self.ref is not None
        return self.ref.id_at(self.version)


def draft(
    model: ModelVersion, writes: Mapping[bytes, bytes | None], writer: Attempt
) -> tuple[ChangelogHeader, bytes, ModelVersion]:
    """Return header, bytes and resulting version of a commit of ``writes`` on ``model``."""
    ref = VersionRef(model.version + 1, new_id())
    content = dict(model.content)
    for key, value in writes.items():
        if value is None:
            content.pop(key, None)
        else:
            content[key] = value
    header = ChangelogHeader(
        store=STORE,
        ref=ref,
        attempt=writer,
        base=model.base,
        lineage=(*model.lineage, ref),
        counts={0: len(content)},
        column_families=(DEFAULT,),
        max_cf_id=0,
        written_at_ms=0,
    )
    rows = sorted(writes.items())
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([OP_DELETE if value is None else OP_PUT for _, value in rows], pa.uint8()),
            pa.array([0] * len(rows), pa.uint16()),
            pa.array([key for key, _ in rows], pa.binary()),
            pa.array([value for _, value in rows], pa.binary()),
        ],
        schema=CHANGELOG_SCHEMA,
    )
    data = changelog.encode(header, [batch])
    return header, data, ModelVersion(ref, content, model.base, header.lineage)


def commit(
    objects: MemoryStore,
    model: ModelVersion,
    writes: Mapping[bytes, bytes | None],
    writer: Attempt,
    *,
    checkpoint_format: int,
    fault: FaultHook = no_fault,
) -> ModelVersion:
    """Commit ``writes`` on ``model``; return the new version."""
    header, data, after = draft(model, writes, writer)
    commit_changelog(objects, header, data, checkpoint_format=checkpoint_format, fault=fault)
    return after


def apply(content: Content, table: pa.Table) -> None:
    """Apply a changelog's rows."""
    for row in table.to_pylist():
        if row["op"] == OP_DELETE:
            content.pop(row["key"], None)
        else:
            content[row["key"]] = row["value"]


def write_directory(directory: Path, content: Mapping[bytes, bytes]) -> None:
    """Create a directory like a RocksDB checkpoint: two "SSTs" by key, and the small files.

    As in one database directory, a file's name is never reused for other content.
    """
    directory.mkdir(parents=True)
    for index in range(2):
        part = {k.hex(): v.hex() for k, v in sorted(content.items()) if k[-1] % 2 == index}
        number = 2 * crc32c(repr(part).encode()) + index
        (directory / f"{number:010d}.sst").write_text(repr(part))
    (directory / "CURRENT").write_text("MANIFEST-000001\n")
    (directory / "MANIFEST-000001").write_bytes(b"\x00\x01")
    (directory / "OPTIONS-000003").write_text("[Version]")
    (directory / "LOG").write_text("for people")


def read_directory(directory: Path) -> Content:
    """Return the content that ``write_directory`` wrote."""
    assert (directory / "CURRENT").read_text() == "MANIFEST-000001\n"
    content: Content = {}
    for path in sorted(directory.glob("*.sst")):
        part: dict[str, str] = eval(path.read_text())  # noqa: S307 -- our own repr
        content.update({bytes.fromhex(k): bytes.fromhex(v) for k, v in part.items()})
    return content


def fetch_changelogs(recovery: Recovery, lineage: tuple[VersionRef, ...]) -> list[Changelog]:
    """Return the changelogs of a lineage."""
    return [recovery.fetch_head(ref.version, ref.checkpoint_id) for ref in lineage]


class OneAfterTheOther(Executor):
    """Runs each call when it is submitted: the same steps give the same state."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401
        """Run the call."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as failure:  # noqa: BLE001 - the future's caller gets it
            future.set_exception(failure)
        return future


class World:
    """One bucket, and machines that use it.

    Args:
        folder: their disks.
        checkpoint_format: of the checkpoint.
        executor: runs their transfers.

    Attributes:
        run: id of the query's run.
    """

    def __init__(
        self, folder: Path, checkpoint_format: int, executor: Executor = TRANSFERS
    ) -> None:
        self.clock = FakeClock()
        self.bucket = MemoryBucket()
        self.checkpoint_format = checkpoint_format
        self.run = "run"
        self._folder = folder
        self._executor = executor
        self._directories = 0
        self.objects = self.connect()

    def connect(self, clock: Clock | None = None) -> MemoryStore:
        """Return a store over the bucket, with its own counters."""
        return MemoryStore("memory://bucket/state/0/3", self.bucket, clock or self.clock)

    def log(self, prefix: str, *batches: int) -> None:
        """Replace a log that Spark's driver keeps beside the state."""
        checkpoint = MemoryStore("memory://bucket", self.bucket, self.clock)
        checkpoint.delete([info.key for info in checkpoint.list(prefix)])
        for batch in batches:
            checkpoint.put(f"{prefix}{batch}", b"v1\n{}")

    def delete_checkpoint(self) -> None:
        """Delete all objects, and Spark's logs."""
        with self.bucket.lock:
            self.bucket.entries.clear()

    def folder(self, name: str = "d") -> Path:
        """Return a path that does not exist yet."""
        self._directories += 1
        return self._folder / f"{name}{self._directories}"

    def recovery(
        self,
        objects: MemoryStore | None = None,
        *,
        store: StoreId = STORE,
        cache: SstCache | None = None,
    ) -> Recovery:
        """Return the recovery of a fresh machine."""
        return Recovery(
            objects or self.objects,
            store,
            self.checkpoint_format,
            self.transfers(cache),
        )

    def transfers(self, cache: SstCache | None = None) -> TransferResources:
        """Return the resources of a fresh machine."""
        cache = cache or SstCache(self.folder("cache"), 1 << 20)
        return TransferResources(cache, self._executor, self._executor, 2, self.clock)

    def uploader(
        self,
        instance: str = "1",
        *,
        cache: SstCache | None = None,
        fault: FaultHook = no_fault,
    ) -> SnapshotUploader:
        """Return an uploader of snapshots."""
        return SnapshotUploader(
            self.objects,
            STORE,
            SnapshotWriter(self.run, instance, {"name": "test"}),
            self.transfers(cache),
            grace_ms=GRACE_MS,
            fault=fault,
        )

    def commit(
        self,
        model: ModelVersion,
        writes: Mapping[bytes, bytes | None],
        writer: Attempt,
        fault: FaultHook = no_fault,
    ) -> ModelVersion:
        """Commit ``writes`` on ``model``; return the new version."""
        form = self.checkpoint_format
        return commit(self.objects, model, writes, writer, checkpoint_format=form, fault=fault)

    def purge(
        self,
        manifest: Manifest,
        kept: KeptVersions,
        store_time: datetime | None,
        *,
        age_ms: int = 0,
        is_garbage_young: bool = False,
        fault: FaultHook = no_fault,
    ) -> PurgeResult:
        """Purge as the writer of ``manifest`` does."""
        purger = Purger(self.objects, self.checkpoint_format, grace_ms=GRACE_MS, fault=fault)
        result = purger.purge(
            manifest, kept, store_time, age_ms=age_ms, is_garbage_young=is_garbage_young
        )
        assert result is not None
        return result

    def snapshot(
        self,
        model: ModelVersion,
        *,
        changelogs: tuple[ChangelogRef, ...],
        previous: Manifest | None = None,
        known: Mapping[str, SstFile] | None = None,
        instance: str = "1",
        pending: PendingUpload | None = None,
        fault: FaultHook = no_fault,
    ) -> SnapshotResult:
        """Upload a snapshot of ``model``."""
        assert model.ref is not None
        directory = self.folder("checkpoint")
        write_directory(directory, model.content)
        content = SnapshotContent(
            ref=model.ref,
            counts={0: len(model.content)},
            column_families=(DEFAULT,),
            max_cf_id=0,
            changelogs=changelogs,
        )
        uploader = self.uploader(instance, fault=fault)
        return uploader.upload(
            directory,
            content,
            known=known or {},
            previous=previous,
            pending=pending or uploader.new_pending(),
        )

    def load(self, version: int, checkpoint_id: str | None) -> Content:
        """Load a version on a fresh machine."""
        recovery = self.recovery()
        if checkpoint_id is None:
            head = recovery.fetch_head(version, None)
        else:
            real = VersionRef.named(version, checkpoint_id)
            head = recovery.fetch_head(real.version, real.checkpoint_id)
        base, lineage = head.header.base.ref, head.header.lineage
        content: Content = {}
        if base is not None:
            target = self.folder("load")
            recovery.materialize(recovery.fetch_manifest(base), target)
            content = read_directory(target)
        for found in [*fetch_changelogs(recovery, lineage[:-1]), head]:
            apply(content, found.table)
        assert head.header.counts[0] == len(content)
        return content

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of objects."""
        return [info.key for info in self.objects.list(prefix)]


def on_own_snapshot(model: ModelVersion) -> ModelVersion:
    """Return ``model`` with a snapshot of itself as its base."""
    assert model.ref is not None
    return replace(model, base=Base(model.ref.version, model.ref.checkpoint_id), lineage=())


def changelog_ref(model: ModelVersion) -> ChangelogRef:
    """Return the entry of a manifest for the changelog of ``model``."""
    assert model.ref is not None
    return ChangelogRef(model.ref, model.base)
