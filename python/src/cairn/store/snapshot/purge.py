"""Purges and sweeps of one store: what no version needs that must stay loadable is deleted.

Layer: store.  Spec: docs/checkpoint-format.md#deletion.

REQUIRES: ``SnapshotRuns.lock`` is held.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cairn.errors import CairnError

if TYPE_CHECKING:
    from datetime import datetime

    from cairn.checkpoint.purge import PurgeResult
    from cairn.checkpoint.retention import KeptVersions
    from cairn.checkpoint.upload import SnapshotContent
    from cairn.format.manifest import Manifest
    from cairn.store.state.chain import Chain
    from cairn.store.state.store_state import StoreState
    from cairn.store.state.version import StoreVersion

_LOG = logging.getLogger(__name__)


def purge(state: StoreState, store_time: datetime | None, *, sweeps: bool = False) -> int:
    """Delete the objects that no retained version needs; return how many.

    Args:
        state: the store's state.
        store_time: when the newest manifest was stored, by the storage's clock, if that is known.
        sweeps: whether to delete the objects that nothing names, too.
    """
    chain, current = state.chain, state.version
    manifest = chain.ours()
    if manifest is None or current is None or current.ref is None:
        return 0
    version = chain.rebased(current)
    if version.base.ref != manifest.ref:
        return 0  # the newest manifest is not the base of the current version: delete later
    kept = chain.kept(
        version.version,
        state.checkpoint.conf.min_versions_to_retain,
        chain.changelogs(version.lineage),
    )
    result = _purge(state, chain, current, manifest, kept, store_time)
    deleted = 0
    if result is not None:
        manifest, deleted = result.manifest, result.deleted_objects
    if sweeps and state.root_check.holds(state.checkpoint, current):
        deleted += state.checkpoint.sweep(manifest, kept)
    return deleted


def purge_before(
    state: StoreState,
    chain: Chain,
    current: StoreVersion,
    content: SnapshotContent,
    previous: Manifest,
    now: datetime,
) -> PurgeResult | None:
    """Delete what no kept version needs, before a snapshot after one of another writer.

    A purge shortens the chain in memory. If each writer stored one snapshot with the chain that it
    has loaded, and purged after that, then no manifest would have a shorter chain, nor any garbage.
    """
    if previous is chain.ours():
        return None  # it has what the purges of this instance left
    count = state.checkpoint.conf.min_versions_to_retain
    kept = chain.kept(content.ref.version, count, content.changelogs)
    try:
        return _purge(state, chain, current, previous, kept, now)
    except CairnError as failure:
        _LOG.warning("a purge failed, the next one tries again: %s", failure)
        return None


def _purge(
    state: StoreState,
    chain: Chain,
    current: StoreVersion,
    manifest: Manifest,
    kept: KeptVersions,
    store_time: datetime | None,
) -> PurgeResult | None:
    age_ms, is_young = chain.age_of(manifest)
    result = state.checkpoint.purge(
        manifest,
        kept,
        store_time,
        age_ms=age_ms,
        is_young=is_young,
        schedule=state.snapshots.purges,
        may_delete=lambda: state.root_check.holds(state.checkpoint, current),
    )
    if result is not None:
        chain.purged(manifest, result.manifest)
    return result
