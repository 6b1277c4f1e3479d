"""The audit of the objects of one of Cairn's stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.ids import StoreId
from cairn.reader.audit import audit_objects
from cairn.storage.open import open_store

if TYPE_CHECKING:
    from pathlib import Path

STORE = StoreId(0, 0)


def rules_of(folder: Path, ids: dict[int, str]) -> list[str]:
    """Return the rules that a store breaks, whose versions have these ids.

    Its changelogs are empty files, and damaged so far.
    """
    for version, id_ in ids.items():
        if id_.startswith("u"):
            path = folder / f"changelog/{version}_{id_}.arrow"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    with open_store(str(folder), {}) as objects:
        found = [finding.rule for finding in audit_objects(objects, STORE, 2, dict(ids))]
    return [rule for rule in found if rule != "object-damaged"]


def test_a_snapshot_that_lags_is_found(tmp_path: Path) -> None:
    """A load would replay all changelogs."""
    ids = {version: f"u{version:032x}" for version in range(1, 102)}

    assert rules_of(tmp_path, ids) == ["snapshot-lags"]


def test_empty_commits_are_not_replayed(tmp_path: Path) -> None:
    """A partition with a row in a hundred batches needs no snapshot yet."""
    first = f"u{1:032x}"
    ids = {1: first, 150: f"u{2:032x}"}
    ids |= {version: f"={version}@1_{first}" for version in range(2, 150)}

    assert rules_of(tmp_path, ids) == []
