"""Fault points: the named places at which a test breaks a commit, a snapshot or a clean-up.

Layer: checkpoint. Each step calls the hook that it was given with the name of the point reached;
a test's hook raises there, and what is stored must then be the old state or the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

FaultHook: TypeAlias = Callable[[str], None]

COMMIT_BEFORE_PUT: Final = "commit.before-put"
COMMIT_AFTER_PUT: Final = "commit.after-put"
COMMIT_BEFORE_KEEP: Final = "commit.before-keep"
COMMIT_BEFORE_REPLACE: Final = "commit.before-replace"
SNAPSHOT_BEFORE_SST: Final = "snapshot.before-sst"
SNAPSHOT_AFTER_SST: Final = "snapshot.after-sst"
SNAPSHOT_BEFORE_MANIFEST: Final = "snapshot.before-manifest"
SNAPSHOT_AFTER_MANIFEST: Final = "snapshot.after-manifest"
CLEANUP_BEFORE_MANIFEST: Final = "cleanup.before-manifest"
CLEANUP_BEFORE_CHANGELOGS: Final = "cleanup.before-changelogs"
CLEANUP_BEFORE_SSTS: Final = "cleanup.before-ssts"
CLEANUP_AFTER: Final = "cleanup.after"
SWEEP_BEFORE_DELETE: Final = "sweep.before-delete"

FAULT_POINTS: Final = (
    COMMIT_BEFORE_PUT,
    COMMIT_AFTER_PUT,
    COMMIT_BEFORE_KEEP,
    COMMIT_BEFORE_REPLACE,
    SNAPSHOT_BEFORE_SST,
    SNAPSHOT_AFTER_SST,
    SNAPSHOT_BEFORE_MANIFEST,
    SNAPSHOT_AFTER_MANIFEST,
    CLEANUP_BEFORE_MANIFEST,
    CLEANUP_BEFORE_CHANGELOGS,
    CLEANUP_BEFORE_SSTS,
    CLEANUP_AFTER,
    SWEEP_BEFORE_DELETE,
)


def no_fault(_point: str) -> None:
    """Break nothing."""
