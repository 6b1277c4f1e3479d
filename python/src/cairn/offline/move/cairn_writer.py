"""CairnWriter: writes the state of a store as a seed, a snapshot that builds on nothing.

Layer: offline.move.  Spec: docs/checkpoint-format.md#seed. The snapshot has all rows, and the
version before the one that is written; the changelog of that one has no rows, and makes it durable.
Rows pass through a local RocksDB, which sorts what memory does not hold.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from cairn.checkpoint.upload import SnapshotContent, SnapshotUploader, SnapshotWriter
from cairn.errors import BusyError
from cairn.format import changelog
from cairn.format.header import Base, ChangelogHeader
from cairn.format.ops import OP_PUT
from cairn.ids import CheckpointId, VersionRef
from cairn.offline.move.committing import attempt_of, commit_version
from cairn.offline.move.family_types import column_families
from cairn.offline.move.sorted_rows import in_key_order
from cairn.offline.move.stored_values import stored_values
from cairn.offline.move.target import Written
from cairn.reader.spark.logs import ROW_CHECKSUM
from cairn.reader.stores.values import ValueForm
from cairn.rocks import RocksDb, engine_description

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.checkpoint.transfers import TransferResources
    from cairn.offline.move.target import TargetStore
    from cairn.reader.rows.stored import StoredRows
    from cairn.rocks import RocksMemory
    from cairn.storage.base import ObjectStore

RUN_BYTES = 32 << 20
"""Keys and values that are sorted at once: a file of RocksDB."""
_STEP_ROWS = 1 << 16
_GRACE_MS = 3_600_000
"""An upload of more than half of this stores a pin, so that no sweep takes its files."""


class CairnWriter:
    """See the module, and ``StateWriter``.

    Args:
        root: the objects of the store; ``close`` closes them.
        target: what is written.
        directory: on the local disk, not there yet; as large as the store.
        memory: of RocksDB.
        resources: of uploads.
        work: names this piece of work.
    """

    def __init__(
        self,
        root: ObjectStore,
        target: TargetStore,
        directory: Path,
        memory: RocksMemory,
        resources: TransferResources,
        *,
        work: str,
    ) -> None:
        self._root = root
        self._target = target
        self._directory = directory
        self._resources = resources
        self._work = work
        self._families = column_families(target)
        self._lists = frozenset(one.id for one in self._families.values() if one.multi)
        has_checksums = target.conf.flag(ROW_CHECKSUM)
        self._forms = {
            one.name: ValueForm(one.form.is_list, has_checksums, b"") for one in target.families
        }
        self._counts = {one.id: 0 for one in self._families.values()}
        self._run: list[pa.RecordBatch] = []
        self._run_bytes = 0
        directory.mkdir(parents=True)
        self._db = RocksDb(directory / "db", memory, create=True, multi_families=self._lists)

    def add(self, family: str, rows: StoredRows) -> None:
        """See ``StateWriter``."""
        count = len(rows.keys)
        if not count:
            return
        cf = self._families[family].id
        values = stored_values(rows.keys, rows.values, self._forms[family])
        columns: list[Any] = [
            pa.array(np.full(count, OP_PUT, np.uint8)),
            pa.array(np.full(count, cf, np.uint16)),
            rows.keys.cast(pa.binary()),
            values.cast(pa.binary()),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=changelog.CHANGELOG_SCHEMA)
        self._counts[cf] += count
        self._run.append(batch)
        self._run_bytes += batch.nbytes
        if self._run_bytes >= RUN_BYTES:
            self._write_run()

    def _write_run(self) -> None:
        """Sort what is in memory, and make it a file of the database."""
        if not self._run:
            return
        rows = pa.Table.from_batches(self._run).combine_chunks().to_batches()[0]
        self._run, self._run_bytes = [], 0
        rows = in_key_order(rows)
        ingestion = self._db.new_ingestion(
            rows, self._target.version, self._lists, may_begin_lists=False
        )
        if not self._db.write(ingestion, lambda: True):
            while ingestion.rows_left:
                ingestion.add(_STEP_ROWS)
            ingestion.finish()
        self._db.ingest(ingestion)

    def finish(self) -> Written:
        """See ``StateWriter``."""
        self._write_run()
        self._db.flush()
        snapshot = self._directory / "snapshot"
        self._db.checkpoint(snapshot)
        entropy, now = self._resources.entropy, self._resources.clock.now()
        now_ms = int(now.timestamp() * 1000)
        seed = VersionRef(self._target.version - 1, CheckpointId.new(entropy))
        families = tuple(self._families.values())
        uploader = SnapshotUploader(
            self._root,
            self._target.store,
            SnapshotWriter(self._work, str(self._target.store), engine_description()),
            self._resources,
            grace_ms=_GRACE_MS,
        )
        content = SnapshotContent(
            ref=seed,
            counts=self._counts,
            column_families=families,
            max_cf_id=max(self._counts),
            changelogs=(),
        )
        stored = uploader.upload(
            snapshot, content, known={}, previous=None, pending=uploader.new_pending()
        )
        if not stored.won:
            raise BusyError("another writer has stored this snapshot", next_step="repeat it")
        ref = VersionRef(self._target.version, CheckpointId.new(entropy))
        header = ChangelogHeader(
            store=self._target.store,
            ref=ref,
            attempt=attempt_of(self._work),
            base=Base(seed.version, seed.checkpoint_id),
            lineage=(ref,),
            counts=self._counts,
            column_families=families,
            max_cf_id=max(self._counts),
            written_at_ms=now_ms,
        )
        data = changelog.encode(header, ())
        format_ = self._target.checkpoint_format
        commit_version(self._root, header, data, format_)
        return Written(
            checkpoint_id=None if format_ == 1 else str(ref.checkpoint_id),
            keys={name: self._counts[one.id] for name, one in self._families.items()},
            stored_bytes=stored.uploaded_bytes + len(data),
        )

    def close(self) -> None:
        """See ``StateWriter``."""
        self._db.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._root.close()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
