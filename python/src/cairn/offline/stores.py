"""The stores of one of Cairn's checkpoints at a batch, one per partition.

Layer: offline.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.stored_versions import DAMAGES, StoredVersions
from cairn.errors import AccessError, MissingError, UnsupportedStateError
from cairn.format.names import ChangelogName, ManifestName, parse_name
from cairn.ids import StoreId, VersionRef
from cairn.reader.audit import audit_cairn
from cairn.reader.findings import Place
from cairn.reader.stores.cairn import CairnRows
from cairn.reader.verify import versions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cairn.errors import CairnError
    from cairn.reader.batch import BatchView
    from cairn.reader.findings import Finding
    from cairn.reader.stores.base import ReadLimits
    from cairn.reader.stores.opening import StorePlace
    from cairn.reader.verify import Ids
    from cairn.storage.base import ObjectStore

_DAMAGED = frozenset({"object-missing", "object-damaged"})


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a store has found.

    Attributes:
        failure: why nothing leads to the version; ``None``: its rows could be read.
        damaged: objects that are missing or damaged, and what is wrong with them.
    """

    failure: CairnError | None
    damaged: Mapping[str | None, str]


@dataclass(frozen=True, slots=True)
class PartitionStore:
    """One store of an operator in one partition, at the version of a batch."""

    stores: StorePlace
    partition: int

    @property
    def id(self) -> StoreId:
        """What its objects name."""
        return StoreId(self.stores.operator, self.partition, self.stores.store)

    @property
    def place(self) -> Place:
        """What findings name."""
        return Place(self.stores.operator, self.partition, self.stores.store)

    @property
    def folder(self) -> str:
        """Its root, relative to the checkpoint."""
        return self.stores.folder(self.partition)

    @property
    def checkpoint_format(self) -> int:
        """Spark's, 1 or 2."""
        return 1 if self.stores.unique_ids is None else 2

    @property
    def version(self) -> int:
        """Spark's number of the version."""
        return self.stores.version

    @property
    def checkpoint_id(self) -> str | None:
        """Spark's id of the version; ``None`` in checkpoint format 1."""
        return self.stores.id_of(self.partition)

    def open(self) -> ObjectStore:
        """Return its objects; the caller closes them."""
        objects = self.stores.objects
        return objects.at(objects.object_url(self.folder))

    def versions(self, root: ObjectStore) -> StoredVersions:
        """Return what reads its changelogs and manifests."""
        return StoredVersions(root, self.id, self.checkpoint_format)

    def look(self, ids: Ids, limits: ReadLimits) -> Look:
        """Read all rows of the version, undecoded, and compare its objects with their checksums.

        Args:
            ids: of the committed batches, by batch.
            limits: of the memory.

        Raises:
            AccessError, FormatVersionError, UnavailableError, ...: that is not known.
        """
        try:
            with self.open_rows(limits) as rows:
                for family in rows.families:
                    for _ in rows.rows(family):
                        pass
                around = rows.gone_around
        except DAMAGES as failure:
            _require_access((failure, failure.__cause__))
            return Look(failure, {})
        _require_access(around)
        damaged = {one.object_name: one.message for one in around}
        for found in self.audit(ids, reads_content=True):
            damaged.setdefault(found.object_name, found.message)
        return Look(None, damaged)

    def audit(self, ids: Ids, *, reads_content: bool) -> Iterator[Finding]:
        """Yield the objects that are missing or damaged.

        Args:
            ids: see ``look``.
            reads_content: see ``audit_cairn``.
        """
        versions: dict[int, str | None] = {}
        for batch, one in ids.items():
            if batch < self.version:
                with suppress(MissingError):  # a damaged entry
                    versions.update(versions_of(self.stores, self.partition, {batch: one}))
        audit = audit_cairn(self.stores, self.partition, versions, reads_content=reads_content)
        for found in audit:
            if found.rule in _DAMAGED and not self._is_later(found.object_name or ""):
                yield found

    def _is_later(self, url: str) -> bool:
        """Return whether an object is of a later version, which is given up."""
        objects = self.stores.objects
        name = parse_name(url.removeprefix(objects.object_url(self.folder) + "/"))
        return isinstance(name, (ChangelogName, ManifestName)) and name.version > self.version

    def open_rows(self, limits: ReadLimits) -> CairnRows:
        """Return the rows of the version; the caller closes them."""
        root = self.open()
        try:
            return CairnRows(self.versions(root), self.version, self.checkpoint_id, limits)
        except BaseException:
            root.close()
            raise

    def newest(self, versions: StoredVersions) -> VersionRef:
        """Return the object that has the content of the version: that of its real version.

        Raises:
            DataError: it cannot be read.
        """
        if self.checkpoint_id is not None:
            return VersionRef.named(self.version, self.checkpoint_id)
        return versions.read_header(self.version, None).header.ref


def _require_access(failures: Iterable[BaseException | None]) -> None:
    """Raise the failure that says nothing of the object: whoever runs this may not read it."""
    for failure in failures:
        if isinstance(failure, AccessError):
            raise failure


def cairn_stores(view: BatchView) -> Iterator[PartitionStore]:
    """Yield all stores of a batch, in all partitions.

    Raises:
        UnsupportedStateError: it is the state of another provider.
    """
    if view.provider != "cairn":
        raise UnsupportedStateError(
            "this is a checkpoint of Spark's own provider, which Cairn only reads",
            object_name=view.objects.url,
            next_step="`cairn verify` says what is wrong with it, and what mends it",
        )
    for operator in view.operators:
        for store in operator.stores:
            place = view.place(operator, store)
            for partition in range(view.partitions(operator)):
                yield PartitionStore(place, partition)
