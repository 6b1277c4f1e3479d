"""A family whose values become lists: RocksDB's keys of both kinds differ."""

from __future__ import annotations

from rig import Rig, family

SINGLE, LISTS = family(0, multi=False), family(0, multi=True)


def test_a_row_of_the_former_kind_does_not_come_back(rig: Rig) -> None:
    """Its delete is not in RocksDB yet when the first list is."""
    rig.write([(1, 0, b"some key of 20 bytes", b"1", 2)])
    one = rig.commit(1, None, [SINGLE])["checkpoint_id"]
    rig.load(1, one)
    rig.event_loop.run(rig.local.writer.write_runs)
    rig.until_written(1)
    rig.write([(2, 0, b"some key of 20 bytes", None, 1)])
    two = rig.commit(2, one, [SINGLE])["checkpoint_id"]
    rig.load(2, two)

    rig.write([(3, 0, b"key", b"list", 2)])
    answer = rig.commit(3, two, [LISTS])
    three = answer["checkpoint_id"]
    rig.load(3, three)
    in_runs = rig.contents(0, 3)
    rig.event_loop.run(rig.local.writer.write_runs)
    rig.until_written(3)
    written = rig.contents(0, 3)
    rig.load(0, None)
    rig.load(3, three)
    replayed = rig.contents(0, 3)

    assert answer["counts"] == {"0": 1}
    assert in_runs == written == replayed == {b"key": b"list"}
