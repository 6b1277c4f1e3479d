"""Repair: which snapshots of a store are rotten, found out by loading them twice.

Layer: store. Only control calls use it, under the instance's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.errors import CairnError
    from cairn.ids import VersionRef


class Repair:
    """See the module.

    Attributes:
        rotten: manifests whose SSTs were corrupt before they were uploaded: their checksums hold.
    """

    def __init__(self) -> None:
        self.rotten: frozenset[VersionRef] = frozenset()
        self._opened: VersionRef | None = None  # the manifest of the open database
        self._corrupt: VersionRef | None = None  # that of the last one with corrupt blocks
        self._noted: CairnError | None = None

    def opened(self, ref: VersionRef | None) -> None:
        """Note the snapshot that was opened; ``None``: an empty database."""
        self._opened = ref

    def note_corrupt(self, failure: CairnError) -> None:
        """Note that the open database has corrupt blocks; once per failure.

        The local disk may have changed them: the next load verifies all files. If its database has
        some again, they are in the objects.
        """
        if failure is self._noted:
            return
        self._noted = failure
        if self._opened is not None and self._opened == self._corrupt:
            self.rotten |= {self._opened}
        self._corrupt = self._opened
