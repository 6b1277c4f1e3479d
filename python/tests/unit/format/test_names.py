"""Names of objects: every built name parses back, and no other name is Cairn's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import FormatVersionError, InternalError
from cairn.format.names import (
    ChangelogName,
    ManifestName,
    ReaderPinName,
    SavepointPinName,
    SstName,
    UploadPinName,
    changelog_name,
    manifest_name,
    new_sst_name,
    parse_name,
    plain_changelog_name,
    reader_pin_name,
    savepoint_pin_name,
    upload_pin_name,
)
from cairn.ids import Attempt, CheckpointId, VersionRef


class _FixedEntropy:
    """Randomness that a test chooses."""

    def __init__(self, digits: str) -> None:
        self._digits = digits

    def token(self, byte_count: int) -> str:
        return self._digits[: 2 * byte_count]

    def jitter(self) -> float:
        return 0.0


HEX16 = st.text("0123456789abcdef", min_size=16, max_size=16)
HEX32 = st.text("0123456789abcdef", min_size=32, max_size=32)
IDS = HEX32.map(lambda digits: CheckpointId.new(_FixedEntropy(digits)))
VERSIONS = st.integers(1, 2**63 - 1)
REFS = st.builds(VersionRef, VERSIONS, IDS)


@given(REFS)
def test_built_names_parse_back(ref: VersionRef) -> None:
    """The sweep would ignore an object whose name does not parse."""
    assert parse_name(changelog_name(ref)) == ChangelogName(ref.version, ref.checkpoint_id)
    assert parse_name(plain_changelog_name(ref.version)) == ChangelogName(ref.version, None)
    assert parse_name(manifest_name(ref)) == ManifestName(ref.version, ref.checkpoint_id)


@given(HEX16, HEX16)
def test_sst_names_parse_back(upload_id: str, digits: str) -> None:
    """The sweep would not find the pin of the upload."""
    name = new_sst_name(upload_id, _FixedEntropy(digits))

    assert parse_name(name) == SstName(upload_id, digits)


@given(HEX16, st.integers(1, 10**9 - 1))
def test_pin_names_parse_back(upload_id: str, renewal: int) -> None:
    """The sweep would delete nothing for ever because of a name that it does not know."""
    assert parse_name(upload_pin_name(upload_id, renewal)) == UploadPinName(upload_id, renewal)


@given(HEX16, VERSIONS, VERSIONS, st.integers(1, 10**9 - 1))
def test_pin_names_of_readers_parse_back(id_: str, one: int, other: int, renewal: int) -> None:
    """A purge would delete what a reader reads."""
    base, version = min(one, other) - 1, max(one, other)
    name = reader_pin_name(id_, base, version, renewal)
    assert parse_name(name) == ReaderPinName(base, version, id_, renewal)


@given(HEX16, VERSIONS, VERSIONS)
def test_pin_names_of_savepoints_parse_back(id_: str, one: int, other: int) -> None:
    """A purge would delete what a savepoint keeps."""
    base, version = min(one, other) - 1, max(one, other)
    assert parse_name(savepoint_pin_name(id_, base, version)) == SavepointPinName(
        base, version, id_
    )


def test_a_read_does_not_begin_after_its_version() -> None:
    """The range would be empty."""
    with pytest.raises(InternalError):
        reader_pin_name("0" * 16, 4, 3, 1)


NAMES = st.one_of(
    st.text(max_size=80),
    st.from_regex(r"(changelog|sst|snapshot)/[0-9u_a-f=]{0,40}\.(arrow|sst|json)", fullmatch=True),
    st.from_regex(r"pin/upload-[0-9a-f]{14,16}_[0-9]{0,10}\.json", fullmatch=True),
    st.from_regex(
        r"pin/reader-[0-9a-f]{15,16}(_[0-9]{0,10}){2,4}\.json",
        fullmatch=True,
    ),
    st.from_regex(r"pin/savepoint-[0-9a-f]{15,16}(_[0-9]{0,10}){1,3}\.json", fullmatch=True),
)


@given(NAMES)
def test_parsed_names_build_back(text: str) -> None:
    """Two spellings of one name would be two objects in the store and one in Cairn."""
    name = parse_name(text)

    match name:
        case None:
            return
        case ChangelogName(version, None):
            assert plain_changelog_name(version) == text
        case ChangelogName(version, CheckpointId() as checkpoint_id):
            assert changelog_name(VersionRef(version, checkpoint_id)) == text
        case ManifestName(version, checkpoint_id):
            assert manifest_name(VersionRef(version, checkpoint_id)) == text
        case SstName(upload_id, token):
            assert text == f"sst/{upload_id}{token}.sst"
        case UploadPinName(upload_id, renewal):
            assert upload_pin_name(upload_id, renewal) == text
        case ReaderPinName(base, version, reader_id, renewal):
            assert reader_pin_name(reader_id, base, version, renewal) == text
        case SavepointPinName(base, version, savepoint_id):
            assert savepoint_pin_name(savepoint_id, base, version) == text


@pytest.mark.parametrize(
    "name",
    [
        "changelog/0.arrow",
        "changelog/01.arrow",
        "changelog/-1.arrow",
        "changelog/1.arrow.crc",
        "changelog/1_=00000000000000000000000000000000.arrow",
        f"changelog/{2**63}.arrow",
        "changelog/\u0661.arrow",
        "changelog/1.arrow\n",
        "snapshot/1.json",
        "sst/000012.sst",
        "pin/upload-4be14be14be14be1_0.json",
        "pin/upload-4be14be14be14be1_01.json",
        "pin/upload-4be14be14be14be1.json",
        "pin/savepoint-4be14be14be14be1_1.json",
        "_metadata/schema",
        "0/changelog/1.arrow",
    ],
)
def test_other_names_do_not_parse(name: str) -> None:
    """Objects of others are neither read nor deleted."""
    assert parse_name(name) is None


def test_version_zero_has_no_object() -> None:
    """Version 0 is empty and needs no files."""
    with pytest.raises(InternalError):
        plain_changelog_name(0)


@pytest.mark.parametrize("text", ["", "u", "=" + "0" * 32, "g" + "0" * 32, "u" + "A" * 32])
def test_unknown_kinds_of_ids_are_refused(text: str) -> None:
    """An id of a newer release may mean that the content is stored elsewhere."""
    with pytest.raises(FormatVersionError):
        CheckpointId.parse(text)


def test_attempts_are_ordered_by_application_then_number() -> None:
    """The order decides which attempt is fenced."""
    first = Attempt("run", 1000, 1, 0, 5)
    retried = Attempt("run", 1000, 1, 1, 9)
    restarted = Attempt("other", 2000, 0, 0, 0)

    assert retried.is_newer_than(first)
    assert restarted.is_newer_than(retried)
    assert not first.is_newer_than(first)
    assert not first.is_newer_than(restarted)
