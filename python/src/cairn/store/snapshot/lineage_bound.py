"""The bound of lineages: when a commit waits for a snapshot, or begins one.

Layer: store.  Spec: docs/adr/0029, 0047.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cairn.errors import CairnError, CredentialsExpiredError, LineageTooLongError
from cairn.store.local.local_state import nothing_loaded
from cairn.store.snapshot import snapshot

if TYPE_CHECKING:
    from cairn.store.state.store_state import StoreState

_LOG = logging.getLogger(__name__)
_S = 1_000_000_000
# A warning at each tenth of the bound.
_WARN_DIVISOR = 10
# If a lineage is more than this many times minDeltasForSnapshot long, maintenance is too slow; if a
# load replays more, the runs before were too short.
_LINEAGE_FACTOR = 4


def is_overdue(state: StoreState) -> bool:
    """Return whether a snapshot cannot wait for maintenance.

    It is wanted; or the lineage is very long; or it was due when the version was loaded: the run
    before ended without it, and this one may be as short.
    """
    version, chain = state.version, state.chain
    due = state.checkpoint.conf.min_deltas_for_snapshot
    if chain.is_wanted or chain.replayed_count >= due:
        return True
    return version is not None and len(version.lineage) > _LINEAGE_FACTOR * due


def holds_commit(state: StoreState) -> bool:
    """Return whether this commit waits for a snapshot; true once per loaded database.

    Earlier runs began one and ended before it did, because they were short or their end did not
    wait long enough. Nothing that they uploaded helps this run, and one as short would not help the
    next.
    """
    chain = state.chain
    if chain.replayed_count <= _LINEAGE_FACTOR * state.checkpoint.conf.min_deltas_for_snapshot:
        return False
    chain.forget_replayed()
    return True


def take_now(state: StoreState, wait_s: float) -> None:
    """Take a snapshot of the current version and wait for it. Never raises: failures are logged."""
    clock = state.resources.clock
    until_ns = clock.monotonic_ns() + int(wait_s * _S)
    is_new, done = False, None
    while not is_new:  # a snapshot that is running may be of an earlier version
        run, is_new = snapshot.begin(state, is_forced=True)
        try:
            done = snapshot.wait_for(run, (until_ns - clock.monotonic_ns()) / _S)
        except CairnError:
            continue
        if done is None:
            _LOG.warning(
                "the answer to a commit does not wait longer for a snapshot, which goes on"
            )
            return


def before_commit(state: StoreState, wait_s: float) -> None:
    """Take a snapshot before a commit whose lineage would be too long, and wait for it.

    If the snapshot does not end in time, but the worker's uploads move, the commit may go on: an
    error would end the query, and with its workers what is uploaded. The waits keep the lineage
    near its bound. Uploads of other stores count, because stores take turns. They do not count for
    a snapshot that fails: only what this store has uploaded makes a further attempt worthwhile.
    If the lineage was as long when it was loaded, the commit does not go on: no earlier run was
    long enough for the upload, and the end of this one would lose it again.

    Raises:
        LineageTooLongError: the snapshot fails, or no upload moves; says why.
        CredentialsExpiredError: the same call succeeds with new credentials.
        UnknownInstanceError: the snapshot's base is damaged. The shim loads the version then, which
            finds another way to it, and repeats the commit.
    """
    limit = state.checkpoint.conf.max_lineage
    clock = state.resources.clock
    until_ns = clock.monotonic_ns() + int(wait_s * _S)
    uploaded, uploads = state.chain.uploaded(), state.resources.transfers.upload_activity
    moved = uploads.count
    while (length := state.lineage_length()) >= limit:
        run, is_new = snapshot.begin(state, is_forced=True)
        try:
            done = snapshot.wait_for(run, (until_ns - clock.monotonic_ns()) / _S)
        except CredentialsExpiredError:
            raise
        except CairnError as failure:
            before, uploaded = uploaded, state.chain.uploaded()
            if not is_new or uploaded != before:
                continue  # the next one uploads the rest
            raise _failed_at_bound(state, length, failure) from failure
        files, size = state.upload_left()
        left = f"{files} files, {size >> 20} MiB are left"
        if done is None and uploads.count != moved:
            is_last_chance = state.chain.replayed_count >= limit
            _LOG.warning(
                "store %s: a commit has waited %d s for a snapshot and %s: %s",
                state.checkpoint.store,
                wait_s,
                "waits on" if is_last_chance else "goes on without it",
                left,
            )
            if not is_last_chance:
                return
            moved, until_ns = uploads.count, clock.monotonic_ns() + int(wait_s * _S)
            continue
        if done is None:
            raise _too_long(state, length, f"the upload of their snapshot does not move: {left}")
        if is_new and state.chain.is_wanted:
            return  # the current version cannot have another one: that of this commit follows
        if is_new and state.lineage_length() >= limit:
            problem = "no snapshot of the current version was possible"
            raise _too_long(state, length, problem + state.root_check.reason())


def _failed_at_bound(state: StoreState, length: int, failure: CairnError) -> CairnError:
    if state.chain.needs_load:
        return nothing_loaded()
    problem = f"their snapshot failed: [{failure.code}] {failure.message}"
    error = _too_long(state, length, problem, failure.next_step)
    return error.with_context(object_name=failure.object_name)


def _too_long(
    state: StoreState, length: int, problem: str, next_step: str | None = None
) -> LineageTooLongError:
    return LineageTooLongError(
        f"{length} versions were committed since the last snapshot, as many as cairn.maxLineage "
        f"allows, and {problem}",
        next_step=next_step or "let Spark retry the task",
    ).with_context(store=str(state.checkpoint.store))


def warn(state: StoreState, length: int) -> None:
    """Warn, after a commit, if the lineage has become a tenth of its bound longer."""
    limit = state.checkpoint.conf.max_lineage
    if length and length % max(1, limit // _WARN_DIVISOR) == 0:
        _LOG.warning(
            "store %s: %d versions were committed since the last snapshot; at %d "
            "(cairn.maxLineage) each commit waits for a snapshot. %s",
            state.checkpoint.store,
            length,
            limit,
            state.snapshots.failure or "No snapshot has failed: perhaps one is still running",
        )
