"""The header of changelogs of Spark's RocksDB provider."""

from __future__ import annotations

import pytest
from spark_store_files import lineage, plain, row, sized, tagged, text

from cairn.errors import CorruptError, FormatVersionError
from cairn.reader.stores.changelog import Changelog, LineageItem

ITEMS = [(3, "three"), (4, "four")]


def opened(data: bytes, chunk_bytes: int = 1 << 20) -> tuple[Changelog, bytes]:
    """Return the header and what follows it, read in small pieces."""
    pieces = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    changelog = Changelog.open(iter(pieces))
    return changelog, b"".join(changelog.records)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1 << 20])
def test_all_versions_of_changelogs_are_told_apart(chunk_bytes: int) -> None:
    """Records read with the grammar of another version give wrong rows or none."""
    untagged, with_tags = plain([("put", row(1), row(2))]), tagged([("append", row(1), row(2))])
    items = tuple(LineageItem(*one) for one in ITEMS)
    expected = [
        (untagged, False, (), untagged),
        (text("v2") + with_tags, True, (), with_tags),
        (text("v3") + lineage(ITEMS) + untagged, False, items, untagged),
        (text("v4") + lineage(ITEMS) + with_tags, True, items, with_tags),
    ]

    for data, is_tagged, before, records in expected:
        changelog, rest = opened(data, chunk_bytes)
        assert (changelog.is_tagged, changelog.lineage, rest) == (is_tagged, before, records)


def test_a_lineage_in_another_order_is_the_same() -> None:
    """The newest snapshot of it would not be found."""
    changelog, _ = opened(text("v3") + lineage(ITEMS[::-1]) + plain([]))

    assert changelog.lineage == tuple(LineageItem(*one) for one in ITEMS)


def test_a_changelog_without_writes_has_no_header() -> None:
    """The first version has no mark: its end mark must not be taken for one."""
    assert opened(plain([]))[1] == plain([])


def test_a_first_key_of_64_kb_is_no_header() -> None:
    """The length of a long key has bytes where newer versions have a text."""
    data = sized(b"k" * 70_000) + sized(b"v") + plain([])

    assert opened(data)[0].is_tagged is False


def test_an_unknown_version_is_refused() -> None:
    """Its records may mean something else."""
    with pytest.raises(FormatVersionError, match="v5"):
        opened(text("v5") + tagged([]))


@pytest.mark.parametrize(
    "header",
    [
        text("v3"),
        text("v4") + b"\xff\xff[",
        text("v4") + text("[{]"),
        text("v4") + text("{}"),
        text("v4") + text("[1]"),
        text("v4") + text("[" * 60_000),
        text("v4") + text('[{"version": "1", "checkpointUniqueId": "a"}]'),
        text("v4") + text('[{"version": true, "checkpointUniqueId": "a"}]'),
        text("v4") + text('[{"version": 0, "checkpointUniqueId": "a"}]'),
        text("v4") + text('[{"version": 1}]'),
        text("v4") + lineage([(1, "a"), (3, "c")]),
        text("v4") + lineage([(1, "a"), (1, "b")]),
    ],
)
def test_a_damaged_header_is_an_error(header: bytes) -> None:
    """A wrong lineage chooses the files of another attempt."""
    with pytest.raises(CorruptError, match="changelog"):
        opened(header)
