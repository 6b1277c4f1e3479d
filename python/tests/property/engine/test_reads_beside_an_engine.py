"""What a read of a stored version requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from history import History
from rig import STORE

from cairn.checkpoint.stored_versions import StoredVersions
from cairn.reader.stores.cairn import CairnRows
from cairn.storage.open import open_store

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT = "default"


def test_the_list_of_a_snapshots_files_is_fetched_once(tmp_path: Path) -> None:
    """That of a large state has megabytes; many keys of one version may be looked up."""
    history = History(tmp_path, checkpoint_format=2)
    history.commit({b"a": b"1", b"b": b"2"})
    history.rig.maintain()
    history.commit({b"c": b"3"})
    history.rig.crash()
    objects = open_store(str(history.objects), {})
    versions = StoredVersions(objects, STORE, 2)
    with CairnRows(versions, 2, history.ids[2]) as store:
        assert store.version.base.ref is not None
        assert store.get(DEFAULT, b"a") == b"1"
        before = objects.request_counts()

        assert store.get(DEFAULT, b"b") == b"2"

        after = objects.request_counts()
    # The only SST file is open, and its only block was read.
    assert after == before
