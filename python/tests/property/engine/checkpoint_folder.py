"""A query's checkpoint folder: Spark's two logs, the objects of all stores, and the right rows.

It is copied, restored and deleted as people do it: file by file, while other processes use it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker_storage import Storage

Rows = dict[int, dict[bytes, bytes]]
"""The rows of one version of one store: by family, by key."""
Ids = list[str | None]

STORES = 2
STATE_FOLDERS = ("changelog", "pin", "snapshot", "sst")


class CheckpointFolder:
    """See the module.

    Attributes:
        offsets: the batches in Spark's log of offsets.
        commits: those in its log of commits, with the ids of all stores; without ids in format 1.
        truth: the rows of each version, by store, as Spark's logs name them.
        floor: the oldest version that is retained.
        may_lack: whether the folder is a copy, and an object was deleted while it was made.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.name = name
        self.clear()

    def clear(self) -> None:
        """Empty both logs; no version counts any more."""
        self.offsets: set[int] = set()
        self.commits: dict[int, Ids] = {}
        self.truth: dict[int, list[Rows]] = {0: [{0: {}, 1: {}} for _ in range(STORES)]}
        self.floor = 0
        self.may_lack = False
        self._store_logs()

    def _store_logs(self) -> None:
        """Let the storage have the entries of the logs: Cairn looks there, too."""
        for log, batches in (("offsets", self.offsets), ("commits", self.commits)):
            wanted = {f"{self.name}/{log}/{batch}" for batch in batches}
            present = set(self.storage.names(f"{self.name}/{log}/"))
            self.storage.add(wanted - present)
            self.storage.drop(present - wanted)

    def begin_batch(self, batch: int) -> None:
        """Add the entry of a batch to the log of offsets."""
        self.offsets.add(batch)
        self._store_logs()

    def end_batch(self, batch: int, ids: Ids, count: int) -> None:
        """Add the entry of a batch to the log of commits; delete old ones, as Spark does."""
        self.commits[batch] = ids
        oldest = batch - count
        self.offsets = {number for number in self.offsets if number >= oldest}
        self.commits = {number: ids for number, ids in self.commits.items() if number >= oldest}
        self._store_logs()

    def root_of(self, partition: int) -> str:
        """Return the prefix of a store's objects."""
        return f"{self.name}/state/0/{partition}/"

    def next_batch(self) -> tuple[int, Ids]:
        """Return the batch that a query runs first, and the ids with which it loads its version.

        As Spark 4.3 does it: the newest entry of the log of commits has the ids, also if that of
        offsets is two or more batches ahead; Spark warns then.
        """
        newest, committed = max(self.offsets, default=None), max(self.commits, default=None)
        ids: Ids = [None] * STORES if committed is None else self.commits[committed]
        if newest is None:
            return 0, [None] * STORES
        return newest + (newest == committed), ids

    def has_gap(self) -> bool:
        """Whether the ids that Spark passes are not those of the version that it requests."""
        batch, _ = self.next_batch()
        return batch != max(self.commits, default=-1) + 1

    def keep_offsets_through(self, batch: int) -> None:
        """Delete newer entries of the log of offsets, as a person does."""
        self.offsets = {number for number in self.offsets if number <= batch}
        self._store_logs()

    def keep_commits_through(self, batch: int) -> None:
        """Delete newer entries of the log of commits, as a person does."""
        self.commits = {number: ids for number, ids in self.commits.items() if number <= batch}
        self._store_logs()

    def copied(self, name: str) -> Iterator[CheckpointFolder]:
        """Copy the folder file by file, in the order of names; yield the copy after each file.

        Each folder is listed when it is entered; files that are gone by then are left out.
        """
        target = CheckpointFolder(self.storage, name)
        deleted = self.storage.deleted_below(self.name)
        for number in sorted(self.commits, key=str):
            if number in self.commits:
                target.commits[number] = self.commits[number]
            yield target
        for number in sorted(self.offsets, key=str):
            if number in self.offsets:
                target.offsets.add(number)
            yield target
        target._store_logs()
        target.truth = copy.copy(self.truth)
        target.floor = self.floor
        for partition in range(STORES):
            for kind in STATE_FOLDERS:
                for source in self.storage.names(f"{self.root_of(partition)}{kind}/"):
                    copied = target.root_of(partition) + source.removeprefix(
                        self.root_of(partition)
                    )
                    self.storage.copy_object(source, copied)
                    target.may_lack = (
                        self.may_lack or self.storage.deleted_below(self.name) != deleted
                    )
                    yield target

    def replace_by(self, other: CheckpointFolder) -> None:
        """Restore a copy in the place of this folder."""
        self.storage.drop(self.storage.names(f"{self.name}/"))
        for source in self.storage.names(f"{other.name}/"):
            self.storage.copy_object(source, self.name + source.removeprefix(other.name))
        self.offsets, self.commits = set(other.offsets), dict(other.commits)
        self.truth, self.floor, self.may_lack = dict(other.truth), other.floor, other.may_lack
        self._store_logs()
