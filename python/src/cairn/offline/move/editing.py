"""StoreEditor: writes stores with some rows added, replaced or left out, beside their last version.

Layer: offline.move. The stores that nothing edits get a version with the same rows, at the price of
a small object or none: see ``unchanged_stores``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.errors import InternalError
from cairn.format import changelog
from cairn.ids import CheckpointId, VersionRef
from cairn.offline.move.committing import attempt_of, commit_version
from cairn.offline.move.moving import Move, Moved, StoreMover, StoreRef
from cairn.offline.parallel import in_parallel
from cairn.offline.stores import cairn_stores

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from cairn.clock import Clock, Entropy
    from cairn.offline.move.moving import FamilyRows
    from cairn.offline.stores import PartitionStore
    from cairn.reader.batch import BatchView
    from cairn.reader.families import Family
    from cairn.reader.rows.stored import StoredRows
    from cairn.reader.stores.opening import StorePlace

_THREADS = 16


class Edit(Protocol):
    """What is done to rows. Other processes get it as a pickle."""

    def rows(
        self, family: Family, partition: int, rows: Iterator[StoredRows]
    ) -> Iterator[StoredRows]:
        """Yield the rows that a family of a store has afterwards, each key once.

        Args:
            family: the family.
            partition: the partition of the store.
            rows: those that it has.
        """
        ...


@dataclass(frozen=True, slots=True)
class EditMove(Move):
    """A move within a checkpoint, from its last version to the next one.

    Attributes:
        edit: what is done to the rows.
    """

    edit: Edit | None = None

    def mover(self) -> StoreEditor:
        """See ``Move``."""
        return StoreEditor(self)


class StoreEditor(StoreMover):
    """See the module. Not thread-safe.

    Args:
        move: what all stores have in common.
    """

    def __init__(self, move: EditMove) -> None:
        if move.edit is None:
            raise InternalError("nothing is to be edited")
        self._edit = move.edit
        super().__init__(move)

    def move(self, ref: StoreRef) -> Moved:
        """Write a store with the edited rows, read it back, and store the result.

        Its digests are those of the edited rows; see ``StoreMover.move``.
        """
        operator, place, rows = self._look(ref)
        return self._write(ref, operator, place, rows, self._edited(place, ref, rows))

    def _edited(
        self, place: StorePlace, ref: StoreRef, rows: Iterable[FamilyRows]
    ) -> Iterator[tuple[FamilyRows, StoredRows]]:
        for one in rows:
            before = (some for _, some in self._read(place, ref, [one]))
            for some in self._edit.rows(one.family, ref.partition, before):
                if len(some.keys):
                    yield one, some


def unchanged_stores(
    view: BatchView,
    others: Collection[StoreRef],
    token: str,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
) -> dict[StoreRef, Moved]:
    """Give all stores of a batch but some a next version with the same rows; return their ids.

    In checkpoint format 2 that is the id of an empty commit, and no object. In format 1 it is what
    an empty commit of the engine is there: a changelog without rows, on the same base.

    Args:
        view: the batch.
        others: the stores that are written otherwise.
        token: names this piece of work.
        clock: tells the time.
        entropy: makes ids.

    Raises:
        CorruptError, MissingError: a store's last changelog cannot be read.
    """
    stores = [
        store
        for store in cairn_stores(view)
        if StoreRef(store.id.operator, store.id.name, store.id.partition) not in others
    ]
    carry = partial(_carry, token=token, clock=clock, entropy=entropy)
    found = in_parallel(carry, stores, threads=_THREADS)
    return {one.store: one for one in found}


def _carry(store: PartitionStore, *, token: str, clock: Clock, entropy: Entropy) -> Moved:
    ref = StoreRef(store.id.operator, store.id.name, store.id.partition)
    version = store.version + 1
    if store.checkpoint_id is not None:
        real = VersionRef.named(store.version, store.checkpoint_id)
        return Moved(ref, real.id_at(version), {}, {}, 0)
    with store.open() as root:
        before = store.versions(root).read(store.version, None).header
        new = VersionRef(version, CheckpointId.new(entropy))
        now_ms = int(clock.now().timestamp() * 1000)
        header = replace(
            before,
            ref=new,
            attempt=attempt_of(token),
            lineage=(*before.lineage, new),
            written_at_ms=now_ms,
        )
        data = changelog.encode(header, ())
        commit_version(root, header, data, 1)
    return Moved(ref, None, {}, {}, len(data))
