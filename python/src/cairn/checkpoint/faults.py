"""Fault points: the named points at which a test can fail a commit, a snapshot or a purge.

Layer: checkpoint. Each step calls its fault hook with the name of the point. The hook of a test
raises there; the stored state must then be the old one or the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

FaultHook: TypeAlias = Callable[[str], None]


class FaultPoint(StrEnum):
    """All fault points."""

    COMMIT_BEFORE_PUT = "commit.before-put"
    COMMIT_AFTER_PUT = "commit.after-put"
    COMMIT_BEFORE_KEEP = "commit.before-keep"
    COMMIT_BEFORE_REPLACE = "commit.before-replace"
    SNAPSHOT_BEFORE_SST = "snapshot.before-sst"
    SNAPSHOT_AFTER_SST = "snapshot.after-sst"
    SNAPSHOT_BEFORE_MANIFEST = "snapshot.before-manifest"
    SNAPSHOT_AFTER_MANIFEST = "snapshot.after-manifest"
    PURGE_AFTER_PINS = "purge.after-pins"
    PURGE_BEFORE_MANIFEST = "purge.before-manifest"
    PURGE_BEFORE_CHANGELOGS = "purge.before-changelogs"
    PURGE_BEFORE_SSTS = "purge.before-ssts"
    PURGE_AFTER = "purge.after"
    SWEEP_AFTER_PINS = "sweep.after-pins"
    SWEEP_BEFORE_DELETE = "sweep.before-delete"


def no_fault(_point: str) -> None:
    """Do not fail."""
