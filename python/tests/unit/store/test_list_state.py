"""Lists of a store: one that is written at once is one row of RocksDB, one that grows has more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rig import Rig, family

from cairn.format import changelog
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_PUT
from cairn.protocol.frames import PRESENCE_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTS = family(0, multi=True)
KEYS = [b"key %02d" % n for n in range(6)]
BEGUN: list[list[tuple[int, bytes, bytes | None]]] = [
    [(OP_APPEND, key, b"1") for key in KEYS[:4]],
    [(OP_APPEND, key, b"2") for key in KEYS[4:]],
    [(OP_DELETE, KEYS[0], None), (OP_PUT, KEYS[1], b"new")],
]
LISTS_BEGUN = dict(zip(KEYS[1:], (b"new", b"1", b"1", b"2", b"2"), strict=True))


def committed(rig: Rig, *, track_counts: bool = True) -> Iterator[tuple[int, str, Any]]:
    """Commit ``BEGUN``, each version in RocksDB before the next one."""
    checkpoint_id = None
    for version, writes in enumerate(BEGUN, start=1):
        rig.write([(op, 0, key, value, PRESENCE_UNKNOWN) for op, key, value in writes])
        answer = rig.commit(version, checkpoint_id, [LISTS], track_counts=track_counts)
        checkpoint_id = answer["checkpoint_id"]
        rig.load(version, checkpoint_id)
        rig.event_loop.run(rig.local.writer.write_runs)
        rig.until_written(version)
        yield version, checkpoint_id, answer["counts"]


def has_chunks(rig: Rig) -> bool:
    return rig.event_loop.run(lambda: rig.local.db.has_chunks(0))


@pytest.mark.parametrize("track_counts", [True, False])
def test_a_list_that_never_grows_has_no_chunks(rig: Rig, *, track_counts: bool) -> None:
    """A commit that counts knows the absent keys; otherwise they are looked up."""
    versions = list(committed(rig, track_counts=track_counts))

    version, checkpoint_id, counts = versions[-1]
    assert counts == ({"0": 5} if track_counts else {})
    assert rig.contents(0, version) == LISTS_BEGUN
    assert not has_chunks(rig)
    # Nor after a load, whose changelogs have appends.
    for name in Path(rig.url).rglob(f"changelog/1_{versions[0][1]}.arrow"):
        rows = changelog.decode(name.read_bytes(), object_name=name.name).table
        assert rows.column("op").to_pylist() == [OP_APPEND] * 4
        break
    else:
        pytest.fail("no changelog")
    rig.load(0, None)
    rig.load(version, checkpoint_id)
    rig.event_loop.run(rig.local.writer.write_runs)
    rig.until_written(version)
    assert rig.contents(0, version) == LISTS_BEGUN
    assert not has_chunks(rig)


def test_a_list_that_grows_is_its_head_and_chunks(rig: Rig) -> None:
    """In RocksDB, in runs over it, and after a load."""
    version, checkpoint_id, _ = list(committed(rig))[-1]
    expected = dict(LISTS_BEGUN)
    for more in (b"+", b"-"):
        version += 1
        rig.write([(OP_APPEND, 0, key, more, PRESENCE_UNKNOWN) for key in KEYS[::2]])
        answer = rig.commit(version, checkpoint_id, [LISTS])
        checkpoint_id = answer["checkpoint_id"]
        rig.load(version, checkpoint_id)
        for key in KEYS[::2]:
            expected[key] = expected.get(key, b"") + more
        assert rig.contents(0, version) == expected
        assert rig.get(0, KEYS) == [expected[key] for key in KEYS]
        rig.event_loop.run(rig.local.writer.write_runs)
        rig.until_written(version)
        assert rig.contents(0, version) == expected
    assert answer["counts"] == {"0": 6}
    assert has_chunks(rig)

    rig.load(0, None)
    rig.load(version, checkpoint_id)
    assert rig.contents(0, version) == expected
