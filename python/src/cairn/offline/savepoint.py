"""Savepoints: a batch of a running or stopped query is kept, listed, given up.

Layer: offline.  Spec: docs/checkpoint-format.md#savepoint, ADR 45. No hold: the query goes on. All
pins are stored first, then the savepoint's object; deletion is the other way round. What a killed
process leaves in between are pins without a savepoint, which ``gc`` deletes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cairn.checkpoint.presence import is_stored
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.errors import (
    AlreadyExistsError,
    BusyError,
    CairnError,
    CorruptError,
    DataError,
    InvalidError,
    MissingError,
    NotThereError,
)
from cairn.format import pin, savepoint
from cairn.format.names import (
    CHANGELOG_PREFIX,
    SNAPSHOT_PREFIX,
    new_savepoint_id,
    savepoint_pin_name,
)
from cairn.format.savepoint import SavedFile, SavedStore, Savepoint
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX
from cairn.offline.hold import list_unheld
from cairn.offline.parallel import in_parallel
from cairn.offline.spark_files import next_plan
from cairn.offline.stores import PartitionStore, cairn_stores
from cairn.reader.batch import BatchView
from cairn.reader.savepoints import names_of, read_savepoint, savepoint_names
from cairn.reader.spark.operators import metadata_key
from cairn.reader.spark.schema_files import schema_keys
from cairn.reader.verify import read_ids
from cairn.store.load.lineage import reading_of
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from cairn.clock import Clock, Entropy
    from cairn.ids import VersionRef
    from cairn.reader.spark.logs import Batches
    from cairn.reader.stores.opening import StorePlace
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
THREADS = 32
"""Their requests are small, and wait for the storage."""
_FILE_BYTES_MAX = 1 << 26
SETTLING_S = 10
"""A purge that has listed the pins before has deleted what it deletes by then."""
DEAD_MS = 3_600_000
"""Pins without a savepoint are dead if they are older: their creator has ended, or gives up."""
_CREATION_MS_MAX = DEAD_MS // 2
_NS_PER_MS = 1_000_000
_QUERY_ID = "metadata"


@dataclass(frozen=True, slots=True)
class _Kept:
    """A store of the batch, and what its version needs."""

    at: PartitionStore
    saved: SavedStore
    lineage: tuple[VersionRef, ...]
    oldest: tuple[str, ...]

    def pin_name(self, savepoint_id: str) -> str:
        return savepoint_pin_name(savepoint_id, self.saved.base.version, self.saved.ref.version)


def create(
    checkpoint: ObjectStore,
    *,
    name: str | None = None,
    batch: int | None = None,
    dry_run: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
) -> Savepoint:
    """Keep a batch; return the savepoint, which exists then.

    After an error the pins that were stored are deleted, as far as that is possible; after
    ``UnavailableError`` the savepoint may exist.

    Args:
        checkpoint: at the query's checkpoint location.
        name: ``None``: made of batch and time.
        batch: a committed one; ``None``: the newest.
        dry_run: nothing is stored.
        clock: tells the time.
        entropy: makes the id unique.

    Raises:
        AlreadyExistsError: there is a savepoint of this name.
        NotThereError: the batch is not committed, or not retained any more; says which is.
        UnsupportedStateError: it is a checkpoint of Spark's own provider.
        InUseError: a command changes the checkpoint.
        BusyError: it took half an hour.
        ConfigError: no savepoint has such a name.
        ConditionalPutUnsupportedError: of two savepoints of one name both would be created.
        UnavailableError and other storage errors.
    """
    chosen = _choose(checkpoint, _unheld(checkpoint), batch)
    now = checkpoint.server_time() or clock.now()
    name = savepoint.checked_name(f"batch-{chosen}-{now:%Y%m%dT%H%M%SZ}" if name is None else name)
    if name in savepoint_names(checkpoint):
        raise _exists(checkpoint, name)
    if not dry_run:
        checkpoint.probe_conditional_put()
    began_ns = clock.monotonic_ns()
    view = BatchView(checkpoint, chosen)
    stores = list(cairn_stores(view))
    files = _files(checkpoint, view)
    kept = in_parallel(partial(_look, checkpoint), stores, threads=THREADS)
    made = Savepoint(
        name=name,
        savepoint_id=new_savepoint_id(entropy),
        batch=chosen,
        checkpoint_format=view.checkpoint_format,
        created_at_ms=int(now.timestamp() * 1000),
        files=files,
        stores=tuple(one.saved for one in kept),
    )
    if dry_run:
        return made
    try:
        in_parallel(partial(_pin, checkpoint, made), kept, threads=THREADS)
        _require_retained(checkpoint, made, kept, clock)
    except BaseException:
        _unpin(checkpoint, made)
        raise
    try:
        checkpoint.put_if_absent(made.key, savepoint.encode(made))
    except AlreadyExistsError:
        _unpin(checkpoint, made)
        raise _exists(checkpoint, name) from None
    except InvalidError:
        _unpin(checkpoint, made)
        raise  # after other errors it may exist: its pins stay
    if clock.monotonic_ns() - began_ns > _CREATION_MS_MAX * _NS_PER_MS:
        _delete(checkpoint, made)
        raise BusyError(
            "the savepoint took more than half an hour, and was given up",
            object_name=checkpoint.object_url(made.key),
            next_step="repeat it",
        )
    return made


def delete(checkpoint: ObjectStore, name: str, *, dry_run: bool = False) -> Savepoint | None:
    """Give up a savepoint; the next purges of the query, or ``gc``, delete what it kept alone.

    Returns what it was; ``None``: its object is damaged.

    Args:
        checkpoint: at the query's checkpoint location.
        name: its name.
        dry_run: nothing is deleted.

    Raises:
        NotThereError: there is none of this name.
        FormatVersionError: a newer release has written it.
        ConfigError: no savepoint has such a name.
        UnavailableError and other storage errors: if its object is gone, ``gc`` deletes the pins.
    """
    try:
        found = read_savepoint(checkpoint, name)
    except CorruptError:
        # Which pins are its own is not known any more: they have no savepoint then.
        if not dry_run:
            checkpoint.delete([savepoint.key_of(name)])
        return None
    if not dry_run:
        _delete(checkpoint, found)
    return found


def _unheld(checkpoint: ObjectStore) -> Batches:
    found, held = list_unheld(checkpoint)
    if held is not None:
        raise held
    return found


def _choose(checkpoint: ObjectStore, batches: Batches, batch: int | None) -> int:
    committed = batches.committed
    chosen = max(committed, default=-1) if batch is None else batch
    if chosen in committed:
        return chosen
    what = "the query has not committed a batch yet"
    if committed:
        shown = f"{committed[0]} to {committed[-1]}"
        what = f"batch {chosen} is not committed; committed are: {shown}"
    raise NotThereError(
        what,
        object_name=checkpoint.object_url(COMMITS_PREFIX),
        next_step="choose one of these; `cairn ls` lists them",
    )


def _exists(checkpoint: ObjectStore, name: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"there is a savepoint {name!r}",
        object_name=checkpoint.object_url(savepoint.key_of(name)),
        next_step="choose another name, or delete that one",
    )


def _files(checkpoint: ObjectStore, view: BatchView) -> tuple[SavedFile, ...]:
    """Return Spark's files that the batch needs and that may go or change later."""
    keys = {_QUERY_ID, f"{OFFSETS_PREFIX}{view.batch}", f"{COMMITS_PREFIX}{view.batch}"}
    # Spark does not start without the plan before; the plan of the next batch is repeated.
    optional = {f"{OFFSETS_PREFIX}{view.batch - 1}"} if view.batch else set()
    if next_plan(view) is not None:
        optional.add(f"{OFFSETS_PREFIX}{view.batch + 1}")
    keys |= optional
    for operator in view.operators:
        of_operator = metadata_key(checkpoint, operator.id, view.batch)
        keys |= set() if of_operator is None else {of_operator}
        for store in operator.stores:
            named = set(schema_keys(operator, store))
            keys |= named
            optional |= named - set(store.schema_keys)

    def read(key: str) -> SavedFile | None:
        try:
            return SavedFile(key, checkpoint.get(key, max_bytes=_FILE_BYTES_MAX).data)
        except MissingError:
            if key in optional:
                return None
            raise

    return tuple(one for one in in_parallel(read, sorted(keys), threads=THREADS) if one is not None)


def _look(checkpoint: ObjectStore, at: PartitionStore) -> _Kept:
    """Return what the version of a store needs, by its header.

    Of a large changelog the header is not verified. But it has ids of 128 random bits, and the
    object of the oldest one is looked for later.
    """
    with at.open() as root:
        try:
            header = at.versions(root).read_header(at.version, at.checkpoint_id).header
        except MissingError as failure:
            raise _not_retained(checkpoint, at, failure.object_name) from failure
    version = StoreVersion.of_header(header)
    saved = SavedStore(at.id, header.ref, header.base)
    return _Kept(at, saved, header.lineage, reading_of(version).oldest)


def _pin(checkpoint: ObjectStore, made: Savepoint, one: _Kept) -> None:
    content = pin.encode(
        one.at.id,
        run_id="savepoint",
        instance=made.name,
        written_at_ms=made.created_at_ms,
        checkpoint_id=one.saved.ref.checkpoint_id,
    )
    checkpoint.put(f"{one.at.folder}/{one.pin_name(made.savepoint_id)}", content)


def _require_retained(
    checkpoint: ObjectStore, made: Savepoint, kept: list[_Kept], clock: Clock
) -> None:
    """Check that the batch was retained when its pins were stored.

    All writers retain two versions at least, and none has one that is not planned.

    Raises:
        NotThereError: it was not.
    """
    batches = _unheld(checkpoint)
    in_parallel(partial(_require_oldest, checkpoint), kept, threads=THREADS)
    if made.batch in batches.committed and batches.planned[-1] <= made.batch + 1:
        return
    # A purge that has listed the pins before may be deleting objects.
    clock.sleep(SETTLING_S)
    in_parallel(partial(_require_all, checkpoint), kept, threads=THREADS)


def _require_oldest(checkpoint: ObjectStore, one: _Kept) -> None:
    with one.at.open() as root:
        if one.oldest and not any(is_stored(root, name) for name in one.oldest):
            raise _not_retained(checkpoint, one.at, root.object_url(one.oldest[0]))


def _require_all(checkpoint: ObjectStore, one: _Kept) -> None:
    with one.at.open() as root:
        there = {
            info.key for prefix in (SNAPSHOT_PREFIX, CHANGELOG_PREFIX) for info in root.list(prefix)
        }
        for names in names_of(one.saved, one.lineage):
            if there.isdisjoint(names):
                raise _not_retained(checkpoint, one.at, root.object_url(names[0]))


def _not_retained(
    checkpoint: ObjectStore, at: PartitionStore, object_name: str | None
) -> NotThereError:
    """Return the error of a batch that retention has deleted, with the oldest that it has not."""
    newer = [one for one in _unheld(checkpoint).committed if one >= at.version]
    ids = read_ids(checkpoint, newer)
    first, end = 0, len(newer)
    while first < end:  # retention deletes from the oldest on
        middle = (first + end) // 2
        found = ids.get(newer[middle])
        place = at.stores.at_batch(newer[middle], None if found is None else found.unique_ids)
        is_there = _is_there(place, at)
        first, end = (first, middle) if is_there else (middle + 1, end)
    step = (
        f"choose batch {newer[first]} or a later one"
        if first < len(newer)
        else "run `cairn verify`, which shows what is missing"
    )
    return NotThereError(
        f"the state of batch {at.version - 1} is not retained any more",
        store=str(at.id),
        version=at.version,
        object_name=object_name,
        next_step=step,
    )


def _is_there(stores: StorePlace, like: PartitionStore) -> bool:
    at = PartitionStore(stores, like.partition)
    with at.open() as root:
        try:
            header = at.versions(root).read_header(at.version, at.checkpoint_id).header
        except DataError:
            return False
        oldest = reading_of(StoreVersion.of_header(header)).oldest
        return not oldest or any(is_stored(root, name) for name in oldest)


def _unpin(checkpoint: ObjectStore, made: Savepoint) -> None:
    """Delete the pins after a failure. What is left is unfinished. Never raises."""
    try:
        _delete_pins(checkpoint, made)
    except CairnError as failure:
        _LOG.warning("pins of savepoint %s are left for gc: %s", made.savepoint_id, failure)


def _delete(checkpoint: ObjectStore, found: Savepoint) -> None:
    checkpoint.delete([found.key])
    _delete_pins(checkpoint, found)


def _delete_pins(checkpoint: ObjectStore, found: Savepoint) -> None:
    checkpoint.delete([pin_key(found, one) for one in found.stores])


def pin_key(found: Savepoint, one: SavedStore) -> str:
    """Return the key of a store's pin, relative to the checkpoint's location."""
    name = savepoint_pin_name(found.savepoint_id, one.base.version, one.ref.version)
    return f"{one.store.folder}/{name}"
