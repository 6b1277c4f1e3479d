"""Names of objects, relative to a store's root; only this module builds and parses them.

Layer: format.  Spec: docs/checkpoint-format.md#where-and-an-example.

    changelog     := "changelog/" version [ "_" own_id ] ".arrow"
    sst           := "sst/" upload_id hex16 ".sst"
    manifest      := "snapshot/" version "_" own_id ".json"
    pin           := "pin/upload-" upload_id "_" renewal ".json"
                   | "pin/reader-" reader_id "_" base "_" version "_" renewal ".json"
                   | "pin/savepoint-" savepoint_id "_" base "_" version ".json"
    upload_id     := hex16
    reader_id     := hex16
    savepoint_id  := hex16
    base          := "0" | version
    renewal       := decimal, no leading zero, 1 .. 10^9-1
    version       := decimal, no leading zero, 1 .. 2^63-1
    own_id        := "u" hex32

A version that was an empty commit in checkpoint format 2 has no object: ``ids.VersionRef.named``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cairn.errors import InternalError
from cairn.ids import VERSION_MAX, CheckpointId, Version, VersionRef

if TYPE_CHECKING:
    from cairn.clock import Entropy

CHANGELOG_PREFIX = "changelog/"
SST_PREFIX = "sst/"
SNAPSHOT_PREFIX = "snapshot/"
PIN_PREFIX = "pin/"
RENEWAL_MAX = 10**9 - 1

_VERSION = r"([1-9][0-9]{0,18})"
_SEED_OR_VERSION = r"(0|[1-9][0-9]{0,18})"
_ID = r"(u[0-9a-f]{32})"
_CHANGELOG = re.compile(rf"changelog/{_VERSION}(?:_{_ID})?\.arrow")
_SST = re.compile(r"sst/([0-9a-f]{16})([0-9a-f]{16})\.sst")
_RENEWAL = r"([1-9][0-9]{0,8})"
_UPLOAD_PIN = re.compile(rf"pin/upload-([0-9a-f]{{16}})_{_RENEWAL}\.json")
_BASE = r"(0|[1-9][0-9]{0,18})"
_READER_PIN = re.compile(rf"pin/reader-([0-9a-f]{{16}})_{_BASE}_{_VERSION}_{_RENEWAL}\.json")
_SAVEPOINT_PIN = re.compile(rf"pin/savepoint-([0-9a-f]{{16}})_{_BASE}_{_VERSION}\.json")
_MANIFEST = re.compile(rf"snapshot/{_SEED_OR_VERSION}_{_ID}\.json")
_TOKEN_BYTES = 8


@dataclass(frozen=True, slots=True)
class ChangelogName:
    """A changelog's name; ``checkpoint_id`` is ``None`` for the plain name of format 1."""

    version: Version
    checkpoint_id: CheckpointId | None


@dataclass(frozen=True, slots=True)
class SstName:
    """An SST's name; ``upload_id``: the upload that made it."""

    upload_id: str
    token: str


@dataclass(frozen=True, slots=True)
class ManifestName:
    """A manifest's name."""

    version: Version
    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class UploadPinName:
    """The name of an upload's pin; ``renewal`` counts from 1."""

    upload_id: str
    renewal: int


@dataclass(frozen=True, slots=True)
class PinnedRange:
    """What a pin of a version protects: what leads from ``base`` to ``version``.

    Attributes:
        base: version of the oldest manifest that is needed; 0: it begins with an empty state.
        version: the version that is pinned.
    """

    base: Version
    version: Version

    def protects_manifest(self, version: Version) -> bool:
        """Return whether a manifest of a version must stay."""
        return version == self.base

    def protects_changelog(self, version: Version) -> bool:
        """Return whether a changelog of a version must stay."""
        return self.base < version <= self.version


@dataclass(frozen=True, slots=True)
class ReaderPinName(PinnedRange):
    """The name of a reader's pin.

    Attributes:
        reader_id: of one read.
        renewal: counts from 1.
    """

    reader_id: str
    renewal: int


@dataclass(frozen=True, slots=True)
class SavepointPinName(PinnedRange):
    """The name of a savepoint's pin in one store; ``savepoint_id`` is the same in all."""

    savepoint_id: str


AnyName: TypeAlias = (
    ChangelogName | SstName | ManifestName | UploadPinName | ReaderPinName | SavepointPinName
)


def plain_changelog_name(version: Version) -> str:
    """Return the name that all attempts at a version share in checkpoint format 1."""
    return f"{CHANGELOG_PREFIX}{_checked(version)}.arrow"


def changelog_name(ref: VersionRef) -> str:
    """Return the name of one attempt: in format 2, or of a replaced attempt in format 1."""
    return f"{CHANGELOG_PREFIX}{_checked(ref.version)}_{ref.checkpoint_id}.arrow"


def manifest_name(ref: VersionRef) -> str:
    """Return the name of a snapshot's manifest; version 0: that with which the store began."""
    return f"{SNAPSHOT_PREFIX}{_checked(ref.version, least=0)}_{ref.checkpoint_id}.json"


def new_upload_id(entropy: Entropy) -> str:
    """Return the id of a new upload, which no other upload to this store has."""
    return entropy.token(_TOKEN_BYTES)


def new_sst_name(upload_id: str, entropy: Entropy) -> str:
    """Return a new name that no other object has, now or later."""
    return f"{SST_PREFIX}{upload_id}{entropy.token(_TOKEN_BYTES)}.sst"


def new_reader_id(entropy: Entropy) -> str:
    """Return the id of a read, which no other read of this store has."""
    return entropy.token(_TOKEN_BYTES)


def new_savepoint_id(entropy: Entropy) -> str:
    """Return the id of a savepoint, which no other savepoint has."""
    return entropy.token(_TOKEN_BYTES)


def upload_pin_name(upload_id: str, renewal: int) -> str:
    """Return the name of an object of an upload's pin."""
    return f"{PIN_PREFIX}upload-{upload_id}_{_checked_renewal(renewal)}.json"


def reader_pin_name(reader_id: str, base: Version, version: Version, renewal: int) -> str:
    """Return the name of an object of a reader's pin."""
    numbers = f"{_checked_base(base, version)}_{version}_{_checked_renewal(renewal)}"
    return f"{PIN_PREFIX}reader-{reader_id}_{numbers}.json"


def savepoint_pin_name(savepoint_id: str, base: Version, version: Version) -> str:
    """Return the name of a savepoint's pin in a store."""
    return f"{PIN_PREFIX}savepoint-{savepoint_id}_{_checked_base(base, version)}_{version}.json"


def parse_name(name: str) -> AnyName | None:
    """Return the parts of an object's name, or ``None`` for a name that is not Cairn's."""
    if match := _CHANGELOG.fullmatch(name):
        version = int(match[1])
        checkpoint_id = None if match[2] is None else CheckpointId(match[2])
        return ChangelogName(version, checkpoint_id) if version <= VERSION_MAX else None
    if match := _SST.fullmatch(name):
        return SstName(match[1], match[2])
    if match := _MANIFEST.fullmatch(name):
        version = int(match[1])
        return ManifestName(version, CheckpointId(match[2])) if version <= VERSION_MAX else None
    return _parse_pin(name)


def _parse_pin(name: str) -> UploadPinName | ReaderPinName | SavepointPinName | None:
    if match := _UPLOAD_PIN.fullmatch(name):
        return UploadPinName(match[1], int(match[2]))
    if match := _READER_PIN.fullmatch(name):
        base, version = int(match[2]), int(match[3])
        is_read = base <= version <= VERSION_MAX
        return ReaderPinName(base, version, match[1], int(match[4])) if is_read else None
    if match := _SAVEPOINT_PIN.fullmatch(name):
        base, version = int(match[2]), int(match[3])
        is_range = base <= version <= VERSION_MAX
        return SavepointPinName(base, version, match[1]) if is_range else None
    return None


def is_sst_name(name: str) -> bool:
    """Return whether ``name`` is the name of an SST."""
    return _SST.fullmatch(name) is not None


def _checked_renewal(renewal: int) -> int:
    if not 1 <= renewal <= RENEWAL_MAX:
        raise InternalError(f"no pin has renewal {renewal}")
    return renewal


def _checked_base(base: Version, version: Version) -> Version:
    if not 0 <= base <= _checked(version):
        raise InternalError(f"nothing leads from version {base} to version {version}")
    return base


def _checked(version: Version, least: Version = 1) -> Version:
    if not least <= version <= VERSION_MAX:
        raise InternalError(f"no object has version {version}")
    return version
