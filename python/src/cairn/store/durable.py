"""Durable: an instance's objects, as loading and committing ask for them.

Layer: store, over ``checkpoint``. Thread-safe; knows no RocksDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.commit import commit_changelog
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy
from cairn.errors import MissingError
from cairn.format import changelog as changelog_format
from cairn.format.header import ChangelogHeader
from cairn.format.names import changelog_name, plain_changelog_name
from cairn.ids import CheckpointId, VersionRef
from cairn.store.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from cairn.config import EngineConf
    from cairn.ids import Attempt, StoreId
    from cairn.storage.base import ObjectStore

_MS = 1_000_000


@dataclass(frozen=True)
class Changelog:
    """A changelog as loading uses it."""

    standing: Standing
    batches: list[pa.RecordBatch]
    size_bytes: int


@dataclass(frozen=True)
class Written:
    """What a commit wrote, and how long its two halves took."""

    standing: Standing
    size_bytes: int
    encode_ms: float
    put_ms: float


@dataclass(frozen=True)
class Durable:
    """See the module.

    Args:
        objects: at the store's root.
        store: whose they are.
        checkpoint_format: Spark's, 1 or 2.
        conf: of the instance.
        run_id: of the query's run.
        instance: who we are, for manifests.
    """

    objects: ObjectStore
    store: StoreId
    checkpoint_format: int
    conf: EngineConf
    run_id: str = ""
    instance: str = ""
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = SYSTEM_ENTROPY

    def read(self, version: int, checkpoint_id: str | None) -> Changelog:
        """Return a version's changelog, verified.

        Args:
            version: 1 or more.
            checkpoint_id: of the attempt; ``None`` in format 1 for whichever stands there.

        Raises:
            MissingError, DamagedError: the object, named.
        """
        wanted = None if checkpoint_id is None else CheckpointId.parse(checkpoint_id)
        if self.checkpoint_format == 1:
            found = self._read_named(plain_changelog_name(version), version, None)
            if wanted is None or found.standing.checkpoint_id == wanted:
                return found
            # Another attempt replaced it: what our lineage names was kept under its own name.
        if wanted is None:
            raise MissingError(
                "checkpoint format 2 loads by checkpoint id, and none was given",
                store=str(self.store),
                version=version,
            )
        return self._read_named(changelog_name(VersionRef(version, wanted)), version, wanted)

    def _read_named(self, name: str, version: int, wanted: CheckpointId | None) -> Changelog:
        data = self.objects.get(name).data
        decoded = changelog_format.decode(
            data,
            object_name=self.objects.object_url(name),
            store=self.store,
            version=version,
            checkpoint_id=wanted,
        )
        return Changelog(Standing.of_header(decoded.header), decoded.table.to_batches(), len(data))

    def write(
        self, draft: Standing, changes: Sequence[pa.RecordBatch], attempt: Attempt
    ) -> Written:
        """Make a version durable: one PUT.

        Args:
            draft: the version, with the lineage before it and no ref.
            changes: its rows, at most one a key.
            attempt: who writes.

        Raises:
            FencedError: a newer attempt has the version.
            CairnError: it is not there, or nobody knows.
        """
        began = self.clock.monotonic_ns()
        ref = VersionRef(draft.version, CheckpointId.new(self.entropy))
        header = ChangelogHeader(
            store=self.store,
            ref=ref,
            attempt=attempt,
            base=draft.base,
            lineage=(*draft.lineage, ref),
            counts=draft.counts,
            column_families=draft.families,
            max_cf_id=draft.max_cf_id,
            written_at_ms=int(self.clock.now().timestamp() * 1000),
        )
        data = changelog_format.encode(header, changes)
        encoded = self.clock.monotonic_ns()
        commit_changelog(
            self.objects, header, data, checkpoint_format=self.checkpoint_format
        )
        return Written(
            standing=Standing.of_header(header),
            size_bytes=len(memoryview(data)),
            encode_ms=(encoded - began) / _MS,
            put_ms=(self.clock.monotonic_ns() - encoded) / _MS,
        )

    def close(self) -> None:
        """Give back connections."""
        self.objects.close()
