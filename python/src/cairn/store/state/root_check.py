"""RootCheck: whether the store at a root is still the one that an instance stands on.

Layer: store.  Spec: docs/checkpoint-format.md#deletion.

A checkpoint may be deleted while an instance is open, and the next run of the query may begin one
at the same place. The instance must then store no snapshot and delete nothing there. What proves
that the store is the same one: the newest changelog of the instance's lineage and what precedes it.
The newest one alone does not, because a task that is late may have put it into the next run's
store. Retention keeps both unless another writer is further: then that one deletes, not this one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.checkpoint.store_checkpoint import StoreCheckpoint
    from cairn.clock import Clock
    from cairn.ids import VersionRef
    from cairn.store.state.version import StoreVersion

_LOG = logging.getLogger(__name__)
# A snapshot and the purge after it mostly share one check: each deletion is checked by itself. The
# next snapshot looks again, also soon after one that failed.
_FRESH_NS = 10_000_000_000
_PROOFS = 2


class RootCheck:
    """See the module. Maintenance checks; a load resets it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The version that was there, and when; or that was not.
        self._found: tuple[VersionRef, int] | None = None
        self._gone: VersionRef | None = None

    def reset(self) -> None:
        """Look again: a load has read the version from the root."""
        self._found = self._gone = None

    def look_again(self) -> None:
        """Let the next check send requests, unless the store was gone before."""
        self._found = None

    def reason(self) -> str:
        """Return why there is no snapshot, as the end of a sentence; empty if it is not this."""
        gone = self._gone
        problem = "is gone: the checkpoint was deleted or replaced"
        return "" if gone is None else f", because version {gone.version} {problem}"

    def holds(self, checkpoint: StoreCheckpoint, version: StoreVersion) -> bool:
        """Return whether the objects that prove the store are there; two GETs, mostly.

        If they are not, it warns once, and sends no request before the version is another one or
        was loaded again.

        Args:
            checkpoint: the store's objects.
            version: the current one, with the base and lineage with which it was loaded or
                committed.
        """
        ref, now_ns = version.ref, self._clock.monotonic_ns()
        if ref is None or ref == self._gone:
            return False
        if self._found is not None:
            found, at_ns = self._found
            if found == ref and now_ns - at_ns < _FRESH_NS:
                return True
        if _is_there(checkpoint, version):
            self._found, self._gone = (ref, now_ns), None
            return True
        self._found, self._gone = None, ref
        _LOG.warning(
            "store %s: version %d, which this executor has, is not at %s any more: the checkpoint "
            "was deleted or replaced. This executor stores no snapshot of it there, and deletes "
            "nothing. That is normal if the query was started anew; otherwise restore the "
            "checkpoint",
            checkpoint.store,
            version.version,
            checkpoint.objects.url,
        )
        return False


def _is_there(checkpoint: StoreCheckpoint, version: StoreVersion) -> bool:
    proofs = version.lineage[-_PROOFS:]
    base = version.base.ref if len(proofs) < _PROOFS else None
    has_base = base is None or checkpoint.has_manifest(base)
    return has_base and all(map(checkpoint.has_changelog, proofs))
