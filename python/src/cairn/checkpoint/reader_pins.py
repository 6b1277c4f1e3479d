"""ReaderPins: protects the versions that long reads need from retention.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#of-a-reader.

A read that ends within ten seconds sends no request for it. One thread per worker stores, renews
and deletes the pins of all reads, so no read waits for that.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cairn.checkpoint.pins import PinObjects
from cairn.errors import CairnError, InvalidError, MissingError, UnavailableError
from cairn.format.names import new_reader_id, reader_pin_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.clock import Clock, Entropy
    from cairn.ids import CheckpointId, Version
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
_NS_PER_MS = 1_000_000
PIN_AFTER_MS = 10_000
"""Almost all loads of tasks are shorter. They are of the newest version, which retention keeps."""
RENEWAL_MS = 300_000
"""The query may have a shorter grace period than the reader, whose settings this process has."""
# The pin is renewed after a quarter of the grace period at the latest.
_RENEWAL_DIVISOR = 4
_RETRY_MS = 30_000
_LOOK_EVERY_S = 1.0
RELEASE_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What a read needs.

    Attributes:
        base: version of the oldest manifest that it needs, or before the oldest changelog; 0: the
            empty state.
        version: the version that is read.
        checkpoint_id: its id.
        oldest: possible names of the oldest object; retention deletes that first.
    """

    base: Version
    version: Version
    checkpoint_id: CheckpointId | None
    oldest: tuple[str, ...]


class PinnedStore(Protocol):
    """The store whose objects a pin protects."""

    @property
    def objects(self) -> ObjectStore:
        """Its objects."""

    @property
    def grace_ms(self) -> int:
        """The grace period; 0: there is no pin."""

    def pin_content(self, checkpoint_id: CheckpointId | None) -> bytes:
        """Return the bytes of the pin of a read of a version."""


class ReaderPin:
    """The pin of one read, stored once the read has become long.

    Threads: all by any; ``keep`` sends the requests, one thread at a time.

    Args:
        store: the store.
        clock: measures how long the read takes.
        reader_id: unique.
        changed: called when there is something to do at once.
        pin_after_ms: a shorter read has no pin.

    Attributes:
        is_late: whether the version was not retained any more when the pin was stored.
        is_given_up: whether the read goes on without a pin, because it may not write.
    """

    def __init__(
        self,
        store: PinnedStore,
        clock: Clock,
        reader_id: str,
        changed: Callable[[], None],
        pin_after_ms: int = PIN_AFTER_MS,
    ) -> None:
        self.is_late = False
        self.is_given_up = False
        self._store_read = store
        self._clock = clock
        self._id = reader_id
        self._changed = changed
        self._pin_after_ns = pin_after_ms * _NS_PER_MS
        self._began_ns = clock.monotonic_ns()
        self._lock = threading.Lock()
        self._reading: Reading | None = None
        self._is_ended = False
        self._objects = PinObjects()
        self._gone = threading.Event()  # no object is stored, or being deleted
        self._gone.set()
        self._pinned: Reading | None = None
        self._pinned_ns = 0
        self._retry_ns = self._began_ns

    def reads(self, reading: Reading) -> None:
        """Protect what the read needs from now on, if it takes long; this replaces the former."""
        self._reading = reading
        if self._pinned is not None:
            self._changed()

    def end(self) -> None:
        """End the read: the pin is deleted soon. Idempotent."""
        self._is_ended = True
        self._changed()

    def explain(self, failure: CairnError) -> None:
        """Say in the error of a read that retention was faster, if it was."""
        if self.is_late and isinstance(failure, MissingError):
            failure.message += (
                "; the oldest object of this version was gone before the read could be pinned: "
                "perhaps retention had left the version behind"
            )
            failure.next_step = (
                "read a newer version, raise spark.sql.streaming.minBatchesToRetain of the query, "
                "or restore the object from the bucket's versions"
            )

    @property
    def is_over(self) -> bool:
        """Whether the read has ended, and nothing is left to delete."""
        return self._is_ended and not self._objects.names

    def release(self) -> None:
        """End the read, and wait until ``ReaderPins`` has deleted the pin, for a second at most.

        After that the caller may close the storage; if the pin is still there, a sweep deletes it.
        Never raises.
        """
        self.end()
        self._gone.wait(RELEASE_WAIT_S)

    def keep(self) -> None:
        """Store, renew or delete the pin if that is due.

        Raises:
            InvalidError: this process may not write; the read goes on without a pin.
            UnavailableError and other storage errors: call it again.
        """
        with self._lock:
            reading = self._reading
            if reading is not None and self._is_due(reading):
                self._store(reading)
            if self._is_ended:
                self._objects.delete(self._store_read.objects)
                self._gone.set()

    def _is_due(self, reading: Reading) -> bool:
        now_ns, grace_ms = self._clock.monotonic_ns(), self._store_read.grace_ms
        if self._is_ended or self.is_given_up or not grace_ms or now_ns < self._retry_ns:
            return False
        if now_ns - self._began_ns < self._pin_after_ns:
            return False
        renewal_ns = min(RENEWAL_MS, grace_ms // _RENEWAL_DIVISOR) * _NS_PER_MS
        return reading != self._pinned or now_ns - self._pinned_ns >= renewal_ns

    def _store(self, reading: Reading) -> None:
        store, began_ns = self._store_read, self._clock.monotonic_ns()
        self._retry_ns = began_ns + _RETRY_MS * _NS_PER_MS  # if this fails
        self._gone.clear()
        try:
            name = self._objects.store_next(
                store.objects,
                lambda renewal: reader_pin_name(self._id, reading.base, reading.version, renewal),
                store.pin_content(reading.checkpoint_id),
            )
        except InvalidError:
            self.is_given_up = True
            self._objects.names.clear()
            self._gone.set()
            raise
        self.is_late = not _is_there(store, reading)
        self._pinned, self._pinned_ns, self._retry_ns = reading, began_ns, began_ns
        self._objects.delete_former(store.objects, name)


def _is_there(store: PinnedStore, reading: Reading) -> bool:
    for name in reading.oldest:
        try:
            store.objects.get_start(name, 1)
        except MissingError:
            continue
        except CairnError:
            pass  # the read itself meets this error, if it matters
        return True
    return not reading.oldest


class ReaderPins:
    """The pins of a worker's reads. Thread-safe.

    Args:
        clock: measures how long reads take.
        entropy: generates ids.
        pin_after_ms: shorter reads have no pin.
    """

    def __init__(self, clock: Clock, entropy: Entropy, pin_after_ms: int = PIN_AFTER_MS) -> None:
        self._pin_after_ms = pin_after_ms
        self._clock = clock
        self._entropy = entropy
        self._changed = threading.Condition()
        self._pins: dict[ReaderPin, None] = {}
        self._is_changed = False
        self._has_warned = False

    def start(self) -> None:
        """Begin to keep the pins, in a thread."""
        threading.Thread(target=self._run, name="cairn-pins", daemon=True).start()

    def begin(self, store: PinnedStore) -> ReaderPin:
        """Return the pin of a read that begins; the caller calls ``end``."""
        id_ = new_reader_id(self._entropy)
        pin = ReaderPin(store, self._clock, id_, self._look, self._pin_after_ms)
        with self._changed:
            self._pins[pin] = None
            self._changed.notify()
        return pin

    def end_all(self) -> None:
        """End all reads, and delete their pins: the process ends. Never raises."""
        with self._changed:
            pins = list(self._pins)
        for pin in pins:
            pin.end()
        self.keep()

    def _look(self) -> None:
        """Forget the reads that are over, and have the others looked at."""
        with self._changed:
            self._forget()
            self._is_changed = bool(self._pins)
            self._changed.notify()

    def _forget(self) -> None:
        for pin in [pin for pin in self._pins if pin.is_over]:
            del self._pins[pin]

    def keep(self) -> None:
        """Do what is due for each pin. Never raises: failures are logged, and tried again."""
        with self._changed:
            pins = list(self._pins)
            self._is_changed = False
        for pin in pins:
            try:
                pin.keep()
            except InvalidError as failure:
                self._warn(failure)
            except CairnError as failure:
                level = logging.INFO if isinstance(failure, UnavailableError) else logging.WARNING
                _LOG.log(level, "the pin of a read is stored later: %s", failure)
            except Exception:  # noqa: BLE001 - the thread must go on for the other reads
                _LOG.exception("the pin of a read is stored later")
        with self._changed:
            self._forget()

    def _warn(self, failure: CairnError) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        _LOG.warning(
            "long reads are not pinned, because this process may not write there. If retention "
            "overtakes one, it fails: %s",
            failure,
        )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pins)
                # Until a pin is due: the time until then is not exact.
                self._changed.wait_for(lambda: self._is_changed, _LOOK_EVERY_S)
            self.keep()
