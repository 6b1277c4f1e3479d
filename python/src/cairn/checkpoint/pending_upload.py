"""PendingUpload: the SSTs of a snapshot that are uploaded, and that no manifest names yet.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#pin.

It outlives attempts: a file that one attempt has uploaded is not uploaded by the next one. A pin
keeps sweeps away from the files once they are a quarter of the grace period old.

Threads: ``new_name`` and ``add`` are called by the threads of uploads, the figures are read by any
thread. All other methods are called by the one thread that takes the snapshot.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from cairn.checkpoint.pins import PinObjects
from cairn.errors import BusyError, CairnError, MissingError
from cairn.format.names import new_sst_name, new_upload_id, upload_pin_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from cairn.checkpoint.transfers import TransferResources
    from cairn.format.manifest import SstFile
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
_NS_PER_MS = 1_000_000
# The pin is renewed after a quarter of the grace period, so that three renewals may fail.
_RENEWAL_DIVISOR = 4
# An upload without a pin is safe for a half: clocks may differ, and requests take time.
_SAFE_DIVISOR = 2


class PendingUpload:
    """See the module.

    Args:
        resources: clock and entropy.
        grace_ms: the grace period of sweeps; 0: no pin.
        content: returns the pin's bytes.

    Attributes:
        id: the upload id, with which the names of its SSTs begin.
        stored_at: time of the attempt's last upload of a file, by the storage's clock.
        left_files: files that the present attempt has still to upload.
        left_bytes: their size.
    """

    def __init__(
        self, resources: TransferResources, grace_ms: int, content: Callable[[], bytes]
    ) -> None:
        self.id = new_upload_id(resources.entropy)
        self.stored_at: datetime | None = None
        self.left_files = 0
        self.left_bytes = 0
        self._clock = resources.clock
        self._entropy = resources.entropy
        self._grace_ns = grace_ms * _NS_PER_MS
        self._content = content
        self._is_lost = False
        self._lock = threading.Lock()
        self._files: dict[str, SstFile] = {}
        # Sweeps leave the files alone for the grace period from here; None: there are none.
        self._safe_since_ns: int | None = None
        self._pin: str | None = None  # the pin's object, which was there when it was looked at last
        self._pin_objects = PinObjects()

    @property
    def files(self) -> Mapping[str, SstFile]:
        """Return the uploaded files by their local names."""
        with self._lock:
            return dict(self._files)

    @property
    def is_lost(self) -> bool:
        """Whether a sweep may have deleted files: then this upload is never used again."""
        return self._is_lost or (self._pin is None and bool(self._files) and self._is_old())

    def expect(self, left_files: int, left_bytes: int) -> None:
        """Begin an attempt, which has to upload so much."""
        with self._lock:
            self.left_files, self.left_bytes = left_files, left_bytes
            self.stored_at = None
            if self._pin is None and not self._files:
                self._safe_since_ns = self._clock.monotonic_ns()

    def new_name(self) -> str:
        """Return the name of a new SST. REQUIRES: ``expect`` before."""
        return new_sst_name(self.id, self._entropy)

    def add(self, file: SstFile, stored_at: datetime) -> None:
        """Remember a file that was uploaded under a name of ``new_name``."""
        with self._lock:
            self._files[file.local_name] = file
            self.left_files -= 1
            self.left_bytes -= file.size_bytes
            if self.stored_at is None or stored_at > self.stored_at:
                self.stored_at = stored_at

    def forget(self) -> None:
        """Forget the files: a manifest may name them soon, and no other one may."""
        with self._lock:
            self._files.clear()

    def keep(self, objects: ObjectStore) -> None:
        """Store or renew the pin if that is due; without work it sends no request.

        Raises:
            BusyError: a sweep may have deleted files; ``is_lost`` is set.
            UnavailableError and other storage errors: the pin is as it was; call it again.
        """
        if self._safe_since_ns is None or not self._grace_ns:
            return
        began_ns = self._clock.monotonic_ns()
        if began_ns - self._safe_since_ns < self._grace_ns // _RENEWAL_DIVISOR:
            return
        name = self._pin_objects.store_next(
            objects, lambda renewal: upload_pin_name(self.id, renewal), self._content()
        )
        # A sweep deletes all objects of an old pin before any file. So if the former object is
        # there now, the sweep, which lists the pins again, finds the new one.
        self._check(objects)
        self._pin, self._safe_since_ns = name, began_ns
        self._pin_objects.delete_former(objects, name)

    def verify(self, objects: ObjectStore) -> None:
        """Check that no sweep has deleted files. REQUIRES: the manifest that names them is stored.

        Sweeps that begin later list the manifest. If the storage does not answer, it is enough that
        the pin was renewed lately.

        Raises:
            BusyError: a sweep may have deleted files; ``is_lost`` is set.
            UnavailableError and other storage errors: that is not known.
        """
        if self._safe_since_ns is None or not self._grace_ns:
            return
        try:
            self._check(objects)
        except CairnError as failure:
            if self._is_lost or self._is_old():
                raise
            _LOG.info("the pin %s was not looked at: %s", self._pin, failure)

    def release(self, objects: ObjectStore) -> None:
        """Delete the pin; after a failure a sweep deletes it. Never raises."""
        self._pin_objects.delete(objects)

    def _check(self, objects: ObjectStore) -> None:
        if self._pin is None:
            if self._is_old():
                raise self._lost()
            return
        try:
            objects.get(self._pin)
        except MissingError:
            raise self._lost() from None

    def _is_old(self) -> bool:
        """Whether a sweep may delete files that have no pin."""
        if self._safe_since_ns is None or not self._grace_ns:
            return False
        age_ns = self._clock.monotonic_ns() - self._safe_since_ns
        return age_ns > self._grace_ns // _SAFE_DIVISOR

    def _lost(self) -> BusyError:
        self._is_lost = True
        return BusyError(
            "the pin of a snapshot was not renewed in time, so a sweep may have deleted files",
            next_step="none, the next snapshot uploads all files again; if it happens again, find "
            "out why this worker stood still, or raise "
            "spark.sql.streaming.stateStore.cairn.orphanGraceMs",
        )
