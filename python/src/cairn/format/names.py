"""Names of objects, relative to a store's root; only this module builds and parses them.

Layer: format.  Spec: docs/checkpoint-format.md#where-and-an-example.

    changelog     := "changelog/" version [ "_" own_id ] ".arrow"
    sst           := "sst/" hex32 ".sst"
    manifest      := "snapshot/" version "_" own_id ".json"
    version       := decimal, no leading zero, 1 .. 2^63-1
    own_id        := "u" hex32

A version that was an empty commit in checkpoint format 2 has no object: ``ids.VersionRef.named``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import InternalError
from cairn.ids import VERSION_MAX, CheckpointId, Version, VersionRef

if TYPE_CHECKING:
    from cairn.clock import Entropy

CHANGELOG_PREFIX = "changelog/"
SST_PREFIX = "sst/"
SNAPSHOT_PREFIX = "snapshot/"

_VERSION = r"([1-9][0-9]{0,18})"
_ID = r"(u[0-9a-f]{32})"
_CHANGELOG = re.compile(rf"changelog/{_VERSION}(?:_{_ID})?\.arrow")
_SST = re.compile(r"sst/([0-9a-f]{32})\.sst")
_MANIFEST = re.compile(rf"snapshot/{_VERSION}_{_ID}\.json")
_SST_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class ChangelogName:
    """A changelog's name; ``checkpoint_id`` is ``None`` for the plain name of format 1."""

    version: Version
    checkpoint_id: CheckpointId | None


@dataclass(frozen=True, slots=True)
class SstName:
    """An SST's name."""

    hex32: str


@dataclass(frozen=True, slots=True)
class ManifestName:
    """A manifest's name."""

    version: Version
    checkpoint_id: CheckpointId


def plain_changelog_name(version: Version) -> str:
    """Return the name that all attempts at a version share in checkpoint format 1."""
    return f"{CHANGELOG_PREFIX}{_checked(version)}.arrow"


def changelog_name(ref: VersionRef) -> str:
    """Return the name of one attempt: in format 2, or of a replaced attempt in format 1."""
    return f"{CHANGELOG_PREFIX}{_checked(ref.version)}_{ref.checkpoint_id}.arrow"


def manifest_name(ref: VersionRef) -> str:
    """Return the name of a snapshot's manifest."""
    return f"{SNAPSHOT_PREFIX}{_checked(ref.version)}_{ref.checkpoint_id}.json"


def new_sst_name(entropy: Entropy) -> str:
    """Return a new name that no other object has, now or later."""
    return f"{SST_PREFIX}{entropy.token(_SST_TOKEN_BYTES)}.sst"


def parse_name(name: str) -> ChangelogName | SstName | ManifestName | None:
    """Return the parts of an object's name, or ``None`` for a name that is not Cairn's."""
    if match := _CHANGELOG.fullmatch(name):
        version = int(match[1])
        checkpoint_id = None if match[2] is None else CheckpointId(match[2])
        return ChangelogName(version, checkpoint_id) if version <= VERSION_MAX else None
    if match := _SST.fullmatch(name):
        return SstName(match[1])
    if match := _MANIFEST.fullmatch(name):
        version = int(match[1])
        return ManifestName(version, CheckpointId(match[2])) if version <= VERSION_MAX else None
    return None


def is_sst_name(name: str) -> bool:
    """Return whether ``name`` is the name of an SST."""
    return _SST.fullmatch(name) is not None


def _checked(version: Version) -> Version:
    if not 1 <= version <= VERSION_MAX:
        raise InternalError(f"no object has version {version}")
    return version
