"""restore: a query goes on from a savepoint, although Spark's logs of its batch may be gone.

Layer: offline.  Spec: docs/reader.md#restore. ``repair`` has the way back to a batch of the logs.
What is put back is written first, what is in the way is removed after that, all under a hold that
is behind both: a restore that is killed is finished by the next one, or has changed nothing yet
that a driver reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.checkpoint.presence import header_under_plain_name
from cairn.errors import DataError, InUseError, MissingError, NotThereError
from cairn.format import changelog
from cairn.format.names import changelog_name, plain_changelog_name
from cairn.format.spark_log import (
    COMMITS_PREFIX,
    OFFSETS_PREFIX,
    encode_offsets,
    parse_commit,
    parse_offsets,
)
from cairn.offline.hold import HeldCheckpoint, list_unheld
from cairn.offline.parallel import in_parallel
from cairn.offline.plan import Plan
from cairn.offline.record import Record
from cairn.offline.repair import Step, later_metadata
from cairn.offline.spark_files import leads_on, next_plan, plan_before
from cairn.offline.stores import cairn_stores
from cairn.reader.batch import BatchView
from cairn.reader.saved_files import SavedFiles
from cairn.reader.savepoints import read_savepoint
from cairn.reader.spark.logs import Batches
from cairn.reader.stores.cairn import CairnRows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cairn.clock import Clock
    from cairn.errors import CairnError
    from cairn.ids import VersionRef
    from cairn.offline.stores import PartitionStore
    from cairn.reader.stores.base import ReadLimits
    from cairn.reader.verify import Progress
    from cairn.storage.base import ObjectStore

_THREADS = 4
_HEADER_THREADS = 32
_FILE_BYTES_MAX = 1 << 26
_NO_LOGS = Batches((), (), ())


class SavepointPlan(Plan):
    """What lets a query go on from a savepoint; ``apply`` does it.

    Making it reads the whole state of the savepoint.

    Args:
        checkpoint: at the query's checkpoint location.
        limits: of the memory of reads.
        clock: tells the time.
        savepoint: its name.
        progress: called with the number of partitions of stores that were read, and of all.

    Attributes:
        batch: the query goes on behind this one.
        steps: what ``apply`` does.
        left: what it leaves as it is.

    Raises:
        NotThereError: there is no such savepoint, or it is not whole.
        InUseError: a command makes the checkpoint.
    """

    def __init__(
        self,
        checkpoint: ObjectStore,
        limits: ReadLimits,
        clock: Clock,
        savepoint: str,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(checkpoint, clock)
        self._limits = limits
        saved = read_savepoint(checkpoint, savepoint)
        self.batch = saved.batch
        self._refs = {one.store: one.ref for one in saved.stores}
        self._files = SavedFiles(checkpoint, saved)
        self._view = BatchView(self._files, saved.batch)
        self._batches, hold = self._unheld()
        stores = list(cairn_stores(self._view))
        looks = in_parallel(self._read, stores, threads=_THREADS, progress=progress)
        self.left = tuple(step for look in looks for step in look)
        self._files_back = dict(self._wanted_files())
        self._stores_back = dict(self._replaced_attempts(stores))
        self._mending = (*self._put_backs(), *self._removals())
        self.steps = self._mending
        if hold is not None:
            # Whoever holds the checkpoint next does it.
            reason = f"{hold.message}: it is removed if that process has ended"
            self.steps += (Step("remove-entry", None, None, hold.object_name, reason),)

    # -- the plan --------------------------------------------------------------------------------

    def _unheld(self) -> tuple[Batches, InUseError | None]:
        try:
            return list_unheld(self._checkpoint)
        except NotThereError:
            return _NO_LOGS, None  # all entries are gone, but not the savepoint

    def _read(self, at: PartitionStore) -> list[Step]:
        """Read the rows of a store; return what was read around."""
        ref = self._refs.get(at.id)
        if ref is None:
            raise NotThereError(
                f"the savepoint does not have the store {at.id}",
                object_name=self._checkpoint.object_url(self._files.savepoint.key),
                next_step="choose another savepoint",
            )
        root = at.open()
        try:
            versions = at.versions(root)
            with CairnRows(versions, ref.version, str(ref.checkpoint_id), self._limits) as rows:
                for family in rows.families:
                    for _ in rows.rows(family):
                        pass
                around = rows.gone_around
        except DataError as failure:
            raise self._not_whole(failure) from failure
        return [
            Step("none", at.place, self.batch, one.object_name, f"{one.message}: {_REPAIR}")
            for one in around
        ]

    def _not_whole(self, failure: CairnError) -> NotThereError:
        return NotThereError(
            f"the savepoint is not whole: {failure.message}",
            store=failure.store,
            version=failure.version,
            object_name=failure.object_name,
            next_step="restore the object from the bucket's versions or a backup, or choose "
            "another savepoint",
        )

    def _wanted_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield those of Spark's files that must be other ones than they are."""
        batch = self.batch
        offsets, commit = f"{OFFSETS_PREFIX}{batch}", f"{COMMITS_PREFIX}{batch}"
        wanted = {
            one.key: one.data
            for one in self._files.savepoint.files
            if not one.key.startswith((OFFSETS_PREFIX, COMMITS_PREFIX))
        }
        is_same = self._has_same_logs()
        before = plan_before(self._view)
        if before is not None:
            key = f"{OFFSETS_PREFIX}{batch - 1}"
            is_saved = any(one.key == key for one in self._files.savepoint.files)
            if not (is_same and self._present(key) is not None and not is_saved):
                wanted[key] = encode_offsets(before)
        wanted[offsets] = self._files.get(offsets).data
        following = next_plan(self._view)
        if following is not None:
            wanted[f"{OFFSETS_PREFIX}{batch + 1}"] = encode_offsets(following)
        # The last: without it the batch is not done.
        wanted[commit] = self._files.get(commit).data
        for key, data in wanted.items():
            if not _is_same(key, self._present(key), data):
                yield key, data

    def _has_same_logs(self) -> bool:
        """Return whether the logs have the batch as the savepoint has it: it is their history."""
        keys = (f"{OFFSETS_PREFIX}{self.batch}", f"{COMMITS_PREFIX}{self.batch}")
        return all(_is_same(key, self._present(key), self._files.get(key).data) for key in keys)

    def _present(self, key: str) -> bytes | None:
        try:
            return self._checkpoint.get(key, max_bytes=_FILE_BYTES_MAX).data
        except MissingError:
            return None

    def _replaced_attempts(
        self, stores: list[PartitionStore]
    ) -> Iterator[tuple[str, tuple[PartitionStore, VersionRef]]]:
        """Yield the plain names of format 1 that a later attempt has, after a rollback."""
        if self._view.checkpoint_format != 1:
            return
        found = in_parallel(self._has_plain_name, stores, threads=_HEADER_THREADS)
        for at, is_own in zip(stores, found, strict=True):
            if not is_own:
                ref = self._refs[at.id]
                key = f"{at.folder}/{plain_changelog_name(ref.version)}"
                yield self._checkpoint.object_url(key), (at, ref)

    def _has_plain_name(self, at: PartitionStore) -> bool:
        ref = self._refs[at.id]
        with at.open() as root:
            header = header_under_plain_name(root, at.id, ref.version)
        return header is not None and header.ref == ref

    def _put_backs(self) -> Iterator[Step]:
        name = self._files.savepoint.name
        for url, (at, _) in self._stores_back.items():
            reason = f"another attempt has the name of that of savepoint {name}"
            yield Step("put-back", at.place, self.batch, url, reason)
        for key in self._files_back:
            url = self._checkpoint.object_url(key)
            yield Step("put-back", None, self.batch, url, f"as savepoint {name} has it")

    def _removals(self) -> Iterator[Step]:
        batch = self.batch
        back = f"the query goes on behind batch {batch}"
        for other in reversed(self._batches.all_commits):
            if other > batch:
                yield self._removal(COMMITS_PREFIX, other, back)
        before = f"{OFFSETS_PREFIX}{batch - 1}"
        if batch - 1 in self._batches.all_commits and before in self._files_back:
            reason = f"it is of another history than batch {batch}"
            yield self._removal(COMMITS_PREFIX, batch - 1, reason)
        for other in reversed(self._batches.planned):
            if other > batch + 1 or (other == batch + 1 and not self._keeps_next_plan()):
                yield self._removal(OFFSETS_PREFIX, other, back)
        for key in later_metadata(self._checkpoint, self._view):
            url = self._checkpoint.object_url(key)
            yield Step("remove-entry", None, batch, url, back)

    def _keeps_next_plan(self) -> bool:
        """Return whether the plan of the next batch is, or will be, of the savepoint's history."""
        if next_plan(self._view) is not None:
            return True
        data = self._present(f"{OFFSETS_PREFIX}{self.batch + 1}")
        if data is None or not self._has_same_logs():
            return False
        try:
            return leads_on(self._view.conf.entry, parse_offsets(data))
        except DataError:
            return False

    def _removal(self, prefix: str, batch: int, reason: str) -> Step:
        url = self._checkpoint.object_url(f"{prefix}{batch}")
        return Step("remove-entry", None, batch, url, reason)

    # -- its execution ---------------------------------------------------------------------------

    def apply(
        self,
        *,
        local_dir: Path | None = None,  # noqa: ARG002 - of plans that take snapshots
        progress: Progress | None = None,
    ) -> tuple[Step, ...]:
        """Carry the steps out, while no driver runs on the checkpoint.

        Args:
            local_dir: not used.
            progress: called with the number of steps that were carried out, and of all.

        Returns:
            What is left as it was.

        Raises:
            InUseError: a driver seems to run, or the checkpoint is no longer that of the plan.
            CairnError: some steps are carried out; make a new plan.
        """
        if not self.steps:
            return self.left
        held_behind = HeldCheckpoint(self._checkpoint, "restore", self._clock, least=self.batch + 2)
        with held_behind as held:
            if held.batches != self._batches:
                raise InUseError(
                    "the query has gone on since the plan was made",
                    object_name=self._checkpoint.url,
                    next_step="stop the query, and repeat the command",
                )
            steps = [one.as_json() for one in self.steps]
            record = Record(self._checkpoint, "restore", held.token, steps, self._clock)
            removed: set[int] = set()
            for done, step in enumerate(self._mending, 1):
                self._carry_out(step, record)
                if step.object_name == self._checkpoint.object_url(f"{COMMITS_PREFIX}{step.batch}"):
                    removed.add(step.batch or 0)
                if progress is not None:
                    progress(done, len(self._mending))
            held.check(removed - {self.batch}, added={self.batch})
            record.end(steps)
        return self.left

    def _carry_out(self, step: Step, record: Record) -> None:
        url = step.object_name or ""
        key = url.removeprefix(self._checkpoint.object_url(""))
        if url in self._stores_back:
            _put_back(*self._stores_back[url])
            return
        if step.action == "remove-entry" or self._present(key) is not None:
            record.keep(key)
            # With the checksum that Hadoop keeps beside it.
            self._checkpoint.delete([key])
        if step.action == "put-back":
            self._checkpoint.put(key, self._files_back[key])


_REPAIR = "another way leads to the batch; `cairn repair` takes a new snapshot around it"


def _put_back(at: PartitionStore, ref: VersionRef) -> None:
    """Give an attempt of format 1 the plain name again; that of the later one is kept, too."""
    plain = plain_changelog_name(ref.version)
    with at.open() as root:
        data = root.get(changelog_name(ref), max_bytes=changelog.MAX_OBJECT_BYTES).data
        url = root.object_url(changelog_name(ref))
        changelog.decode(data, object_name=url, store=at.id, version=ref.version)
        present = header_under_plain_name(root, at.id, ref.version)
        if present is not None and present.ref != ref:
            later = root.get(plain, max_bytes=changelog.MAX_OBJECT_BYTES).data
            root.put(changelog_name(present.ref), later)
        root.put(plain, data)


def _is_same(key: str, present: bytes | None, wanted: bytes) -> bool:
    """Return whether a file says what it shall say; entries of logs may be spelled otherwise."""
    if present is None or present == wanted:
        return present is not None
    try:
        if key.startswith(OFFSETS_PREFIX):
            return parse_offsets(present) == parse_offsets(wanted)
        if key.startswith(COMMITS_PREFIX):
            return parse_commit(present) == parse_commit(wanted)
    except DataError:
        pass
    return False
