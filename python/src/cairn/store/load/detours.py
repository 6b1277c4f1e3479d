"""Detours: other ways to a version when an object on the planned way is damaged or missing.

Layer: store.  Spec: docs/semantics.md#damaged-objects.

A version is a snapshot and the changelogs after it. Each changelog names one snapshot, but others
lead to the same version: later ones in its lineage, and the earlier ones, which the changelogs of
the snapshots' versions name. All are named with checkpoint ids, so every way gives the same rows.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cairn.checkpoint.stored_versions import DAMAGES
from cairn.errors import AccessError, DataError, MissingError
from cairn.format.names import manifest_name
from cairn.ids import VersionRef
from cairn.store.load.lineage import changelog_names
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.checkpoint.stored_versions import StoredVersions
    from cairn.errors import CairnError
    from cairn.format.manifest import Manifest

_LOG = logging.getLogger(__name__)


class Detours:
    """The ways to a version that use no damaged object; iterates over them once.

    Costs a GET per manifest and per older snapshot, but no LIST.

    Args:
        checkpoint: the store's versions.
        version: 1 or more.
        checkpoint_id: Spark's id of the version; ``None`` in format 1.
        failure: the error of the planned way, one of ``DAMAGES``.
    """

    def __init__(
        self,
        checkpoint: StoredVersions,
        version: int,
        checkpoint_id: str | None,
        failure: CairnError,
    ) -> None:
        self._checkpoint = checkpoint
        self._version = version
        self._checkpoint_id = checkpoint_id
        self._failures = [failure]
        self._looked_at: set[VersionRef | None] = set()  # the bases of all ways so far

    def passed_over(self, way: StoreVersion) -> frozenset[VersionRef]:
        """Return the bases of the ways that were not possible before ``way``."""
        return frozenset(ref for ref in self._looked_at if ref not in (None, way.base.ref))

    def avoid(self, failure: CairnError) -> None:
        """Take no way that uses the object of ``failure``."""
        if failure.object_name not in self._damaged():
            self._failures.append(failure)

    @property
    def failures(self) -> tuple[CairnError, ...]:
        """What prevented the ways so far; each names its object."""
        return tuple(self._failures)

    def failure(self) -> CairnError:
        """Return the error of the planned way, with the objects that prevent each other way."""
        first, *others = self._failures
        if others:
            objects = ", ".join(f"{other.object_name} ({other.code})" for other in others)
            # Whoever may not read an object does not know whether it is damaged.
            denied = (other for other in others if isinstance(other, AccessError))
            first.__cause__ = next(denied, first.__cause__)
            first.message += f"; every other way to the version needs one of these: {objects}"
        return first

    def __iter__(self) -> Iterator[StoreVersion]:
        """Yield the version, each time with another base and the lineage from there."""
        planned = self._planned()
        if planned is None:
            return
        self._looked_at.add(planned.base.ref)
        # The damage may be that of the local disk only.
        if not self._is_blocked(planned):
            yield planned
        # A later snapshot than the planned one: it was stored after the changelog was encoded.
        for ref in reversed(planned.lineage):
            way = planned.rebased(ref)
            if way is not None and self._has_intact_manifest(way, is_optional=True):
                yield way
        for way in self._with_earlier_bases(planned):
            if self._has_intact_manifest(way, is_optional=False):
                yield way

    def _planned(self) -> StoreVersion | None:
        """Return the version as its changelog describes it, or as its own snapshot does."""
        try:
            changelog = self._checkpoint.read(self._version, self._checkpoint_id)
        except DAMAGES as failure:
            self.avoid(failure)
        else:
            return replace(StoreVersion.of_header(changelog.header), version=self._version)
        if self._checkpoint_id is None:
            return None
        ref = VersionRef.named(self._version, self._checkpoint_id)
        with suppress(MissingError, AccessError):
            manifest = self._manifest(ref)
            if manifest is not None:
                return replace(StoreVersion.of_manifest(manifest), version=self._version)
        return None

    def _with_earlier_bases(self, planned: StoreVersion) -> Iterator[StoreVersion]:
        way = planned
        while way.base.ref is not None:
            base = way.base.ref
            try:
                older = self._checkpoint.read(base.version, str(base.checkpoint_id)).header
            except DAMAGES as failure:
                self.avoid(failure)
                return
            way = replace(way, base=older.base, lineage=(*older.lineage, *way.lineage))
            yield way

    def _has_intact_manifest(self, way: StoreVersion, *, is_optional: bool) -> bool:
        self._looked_at.add(way.base.ref)
        if self._is_blocked(way):
            return False
        if way.base.ref is None:
            return True
        try:
            manifest = self._manifest(way.base.ref)
        except (MissingError, AccessError) as failure:
            if not is_optional:
                self.avoid(failure)
            return False
        damaged = self._damaged()
        return manifest is not None and not any(
            self._url(file.object_name) in damaged for file in manifest.files
        )

    def _manifest(self, ref: VersionRef) -> Manifest | None:
        """Return a manifest; ``None`` if it is damaged."""
        try:
            return self._checkpoint.fetch_manifest(ref)
        except MissingError:
            raise
        except DataError as failure:
            self.avoid(failure)
            return None

    def _is_blocked(self, way: StoreVersion) -> bool:
        damaged = self._damaged()
        if way.base.ref is not None and self._url(manifest_name(way.base.ref)) in damaged:
            return True
        names = (name for ref in way.lineage for name in changelog_names(ref))
        return any(self._url(name) in damaged for name in names)

    def _damaged(self) -> set[str | None]:
        return {failure.object_name for failure in self._failures}

    def _url(self, name: str) -> str:
        return self._checkpoint.objects.object_url(name)
