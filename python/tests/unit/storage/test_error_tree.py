"""Errors say what to do, and survive the way to the JVM as data."""

from __future__ import annotations

import pytest

from cairn import errors
from cairn.errors import CairnError, CorruptError, MissingError

CODES = {
    "UnavailableError": ("retry", "CAIRN_STORAGE_UNAVAILABLE"),
    "CredentialsExpiredError": ("retry", "CAIRN_CREDENTIALS_EXPIRED"),
    "DiskFullError": ("retry", "CAIRN_DISK_FULL"),
    "BusyError": ("retry", "CAIRN_BUSY"),
    "AlreadyExistsError": ("conflict", "CAIRN_OBJECT_EXISTS"),
    "PreconditionFailedError": ("conflict", "CAIRN_PRECONDITION_FAILED"),
    "FencedError": ("conflict", "CAIRN_FENCED"),
    "CorruptError": ("corrupt", "CAIRN_CORRUPT"),
    "MissingError": ("corrupt", "CAIRN_MISSING"),
    "FormatVersionError": ("corrupt", "CAIRN_FORMAT_VERSION"),
    "ForeignObjectError": ("corrupt", "CAIRN_FOREIGN_OBJECT"),
    "ConfigError": ("invalid", "CAIRN_CONFIG"),
    "AccessError": ("invalid", "CAIRN_ACCESS_DENIED"),
    "NoSuchBucketError": ("invalid", "CAIRN_NO_SUCH_BUCKET"),
    "SchemeError": ("invalid", "CAIRN_SCHEME"),
    "ConditionalPutUnsupportedError": ("invalid", "CAIRN_NO_CONDITIONAL_PUT"),
    "BatchTooLargeError": ("invalid", "CAIRN_BATCH_TOO_LARGE"),
    "ProtocolError": ("bug", "CAIRN_PROTOCOL"),
    "FramesMissingError": ("bug", "CAIRN_FRAMES_MISSING"),
    "ClosedError": ("bug", "CAIRN_CLOSED"),
    "InternalError": ("bug", "CAIRN_INTERNAL"),
}


@pytest.mark.parametrize(("name", "kind_and_code"), CODES.items(), ids=CODES)
def test_kinds_and_codes_are_what_callers_branch_on(
    name: str, kind_and_code: tuple[str, str]
) -> None:
    """The shim and users' alarms match on these words."""
    error_class = getattr(errors, name)

    assert (error_class.kind, error_class.code) == kind_and_code
    assert (errors.__doc__ or "").count(f" {kind_and_code[1]}\n") == 1


def test_every_leaf_is_in_the_table() -> None:
    """A new error needs a word that callers know."""

    def leaves(of: type[CairnError]) -> set[str]:
        below = [c for c in of.__subclasses__() if c.__module__ == errors.__name__]
        return {of.__name__} if not below else set().union(*map(leaves, below))

    assert leaves(CairnError) == set(CODES)


def test_the_text_names_code_place_and_next_step() -> None:
    """One line of a log must be enough to act on."""
    error = CorruptError(
        "the trailer is cut off",
        store="0/3/default",
        version=7,
        object_name="s3a://b/x",
        next_step="restart from version 6",
    )

    assert str(error) == (
        "[CAIRN_CORRUPT] the trailer is cut off (store=0/3/default, version=7, object=s3a://b/x)"
        ". Next: restart from version 6"
    )
    assert str(MissingError("gone")) == "[CAIRN_MISSING] gone"


def test_context_fills_gaps_and_overwrites_nothing() -> None:
    """The raiser was closest to the cause; callers add what it could not know."""
    error = MissingError("gone", object_name="inner")

    same = error.with_context(object_name="outer", version=0, store="0/0/default")

    assert same is error
    assert (error.object_name, error.version, error.store) == ("inner", 0, "0/0/default")


def test_an_error_crosses_to_the_jvm_as_data() -> None:
    """Tracebacks as text would be parsed by somebody, some day."""
    error = MissingError("gone", version=3, code="CAIRN_SPECIAL")

    assert error.to_dict() == {
        "kind": "corrupt",
        "code": "CAIRN_SPECIAL",
        "message": "gone",
        "store": None,
        "version": 3,
        "object": None,
        "next": None,
    }
