"""Entries of Spark's log of commits are gone: Spark passes the id of an earlier version."""

from __future__ import annotations

import pytest
from rig import Rig, family

from cairn.errors import MissingError

FAMILY = family(0, multi=False)


def test_the_id_of_an_earlier_version_says_which_entries_to_look_at(rig: Rig) -> None:
    """No object is lost: "restore it from the bucket" would send the user the wrong way."""
    ids: list[str | None] = [None]
    for version in (1, 2, 3):
        rig.write([(1, 0, b"key", b"%d" % version, 0)])
        ids.append(rig.commit(version, ids[-1], [FAMILY])["checkpoint_id"])
        rig.load(version, ids[-1])

    with pytest.raises(MissingError) as failure:
        rig.load(3, ids[2])

    assert "folder commits lacks batch 2" in str(failure.value)
    assert "folder offsets" in str(failure.value)
    rig.load(3, ids[3])
    assert rig.contents(0, 3) == {b"key": b"3"}
