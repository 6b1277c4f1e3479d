"""Savepoints: a batch of a running or stopped query is kept, listed, given up.

Layer: offline.  Spec: docs/checkpoint-format.md#savepoint, ADR 45. No hold: the query goes on. All
pins are stored first, then the savepoint's object; deletion is the other way round. What a killed
process leaves in between are pins without a savepoint, which ``gc`` deletes.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cairn.checkpoint.pins import list_pins
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
    PIN_PREFIX,
    SNAPSHOT_PREFIX,
    SavepointPinName,
    new_savepoint_id,
    parse_name,
    savepoint_pin_name,
)
from cairn.format.savepoint import SavedFile, SavedStore, Savepoint
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX
from cairn.offline.hold import list_unheld
from cairn.offline.stores import PartitionStore, cairn_stores
from cairn.reader.batch import BatchView
from cairn.reader.savepoints import names_of, read_savepoint, savepoint_names
from cairn.reader.spark.operators import metadata_key
from cairn.reader.spark.schema_files import schema_keys
from cairn.reader.verify import read_ids
from cairn.store.load.lineage import reading_of
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from cairn.clock import Clock, Entropy
    from cairn.ids import StoreId, VersionRef
    from cairn.reader.spark.logs import Batches
    from cairn.reader.stores.opening import StorePlace
    from cairn.storage.base import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
_THREADS = 32
_FILE_BYTES_MAX = 1 << 26
_SETTLING_S = 10
"""A purge that has listed the pins before has deleted what it deletes by then."""
DEAD_MS = 3_600_000
"""Pins without a savepoint are dead if they are older: their creator has ended, or gives up."""
_CREATION_MS_MAX = DEAD_MS // 2
_NS_PER_MS = 1_000_000
_QUERY_ID = "metadata"

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SavepointInfo:
    """A savepoint, or the pins that a killed process has left of one.

    Attributes:
        name: ``None``: it is unfinished; nobody can use it, and ``gc`` deletes it.
        savepoint_id: in the names of its pins; ``None``: its object is damaged.
        batch: the batch; ``None``: not known.
        created_at: when it was created; of an unfinished one when a pin was stored.
        stores: how many stores it pins.
        missing_pins: how many of the pins are missing.
        problem: why its object cannot be read; ``None``: it can.
    """

    name: str | None
    savepoint_id: str | None
    batch: int | None
    created_at: datetime | None
    stores: int
    missing_pins: int
    problem: str | None = None

    @property
    def status(self) -> str:
        """``whole``, ``broken`` or ``unfinished``."""
        if self.name is None:
            return "unfinished"
        return "broken" if self.missing_pins or self.problem is not None else "whole"


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
    name = savepoint.checked_name(name or f"batch-{chosen}-{now:%Y%m%dT%H%M%SZ}")
    if name in savepoint_names(checkpoint):
        raise _exists(checkpoint, name)
    checkpoint.probe_conditional_put()
    began_ns = clock.monotonic_ns()
    view = BatchView(checkpoint, chosen)
    stores = list(cairn_stores(view))
    files = _files(checkpoint, view)
    kept = in_parallel(partial(_look, checkpoint), stores)
    made = Savepoint(
        name=name,
        savepoint_id=new_savepoint_id(entropy),
        batch=chosen,
        checkpoint_format=view.checkpoint_format,
        created_at_ms=int(now.timestamp() * 1000),
        files=files,
        stores=tuple(one.saved for one in kept),
    )
    try:
        in_parallel(partial(_pin, checkpoint, made), kept)
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


def delete(checkpoint: ObjectStore, name: str) -> None:
    """Give up a savepoint; the next purges of the query, or ``gc``, delete what it kept alone.

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
        checkpoint.delete([savepoint.key_of(name)])
        return
    _delete(checkpoint, found)


def overview(checkpoint: ObjectStore) -> list[SavepointInfo]:
    """Return the savepoints by batch, then what is left of unfinished ones.

    Costs a LIST per store of the newest batch and of the savepoints.

    Raises:
        NotThereError: there is neither a savepoint nor a query here.
    """
    found: list[Savepoint] = []
    damaged: list[SavepointInfo] = []
    names = savepoint_names(checkpoint)
    for name in names:
        try:
            found.append(read_savepoint(checkpoint, name))
        except NotThereError:
            continue  # deleted since the listing
        except DataError as failure:
            damaged.append(SavepointInfo(name, None, None, None, 0, 0, failure.message))
    pins: dict[str, dict[str, int]] = {}
    stores = {one.store for each in found for one in each.stores}
    with suppress(*([NotThereError] if names else [])):
        stores |= _newest_stores(checkpoint)
    for of_store in in_parallel(partial(_pins_of, checkpoint), sorted(stores)):
        for id_, url, stored_ms in of_store:
            pins.setdefault(id_, {})[url] = stored_ms
    whole = [
        _info(one, pins.pop(one.savepoint_id, {}))
        for one in sorted(found, key=lambda one: (one.batch, one.created_at_ms))
    ]
    # If an object is damaged, these pins may be its own.
    left = [
        SavepointInfo(None, id_, None, _time(min(urls.values())), len(urls), 0)
        for id_, urls in sorted(pins.items())
        if not damaged
    ]
    return [*whole, *damaged, *left]


def savepoint_ids(checkpoint: ObjectStore) -> frozenset[str] | None:
    """Return the ids of all savepoints; ``None``: the object of one cannot be read."""
    try:
        return frozenset(
            read_savepoint(checkpoint, name).savepoint_id for name in savepoint_names(checkpoint)
        )
    except NotThereError:
        return None  # deleted since the listing
    except DataError as failure:
        _LOG.warning("no pin of a savepoint is deleted: %s", failure)
        return None


def dead_pins(root: ObjectStore, ids: Collection[str], old_ms: int) -> list[str]:
    """Return the names of a store's pins that belong to no savepoint; one LIST.

    Args:
        root: at the store's root.
        ids: of the savepoints, listed after ``old_ms`` was computed.
        old_ms: younger pins may be of a savepoint that is being created; at most the present time
            minus ``DEAD_MS``, by the storage's clock.
    """
    return [
        name
        for found in list_pins(root) or ()
        if found.savepoint_id is not None
        and found.savepoint_id not in ids
        and found.stored_ms < old_ms
        for name in found.names
    ]


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return the results of all items, in their order.

    Raises:
        Exception: that of the first item that failed; no other item is being worked on then.
    """
    todo = list(items)
    with ThreadPoolExecutor(max(1, min(_THREADS, len(todo)))) as threads:
        runs = [threads.submit(work, item) for item in todo]
        try:
            return [run.result() for run in runs]
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


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
    optional: set[str] = set()
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

    return tuple(one for one in in_parallel(read, sorted(keys)) if one is not None)


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
    in_parallel(partial(_require_oldest, checkpoint), kept)
    if made.batch in batches.committed and batches.planned[-1] <= made.batch + 1:
        return
    # A purge that has listed the pins before may be deleting objects.
    clock.sleep(_SETTLING_S)
    in_parallel(partial(_require_all, checkpoint), kept)


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
        is_there = _is_there(at.stores.at_batch(newer[middle], ids.get(newer[middle])), at)
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
    checkpoint.delete([_pin_key(found, one) for one in found.stores])


def _pin_key(found: Savepoint, one: SavedStore) -> str:
    name = savepoint_pin_name(found.savepoint_id, one.base.version, one.ref.version)
    return f"{one.store.folder}/{name}"


def _newest_stores(checkpoint: ObjectStore) -> set[StoreId]:
    """Return the stores of the newest batch, where unfinished pins may be."""
    committed = list_unheld(checkpoint)[0].committed
    with suppress(DataError):
        if committed:
            return {one.id for one in cairn_stores(BatchView(checkpoint, committed[-1]))}
    return set()


def _pins_of(checkpoint: ObjectStore, store: StoreId) -> list[tuple[str, str, int]]:
    """Return the pins of savepoints in a store: their ids, keys, and when they were stored."""
    with checkpoint.at(checkpoint.object_url(store.folder)) as root:
        return [
            (name.savepoint_id, f"{store.folder}/{info.key}", _modified_ms(info))
            for info in root.list(PIN_PREFIX)
            if isinstance(name := parse_name(info.key), SavepointPinName)
        ]


def _info(one: Savepoint, pins: Collection[str]) -> SavepointInfo:
    missing = sum(_pin_key(one, store) not in pins for store in one.stores)
    return SavepointInfo(
        one.name,
        one.savepoint_id,
        one.batch,
        _time(one.created_at_ms),
        len(one.stores),
        missing,
    )


def _modified_ms(info: ObjectInfo) -> int:
    return int(info.last_modified.timestamp() * 1000)


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
