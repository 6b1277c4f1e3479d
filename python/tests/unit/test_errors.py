"""Errors say what to do, and cross to the JVM as data."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from cairn import errors
from cairn.errors import CairnError, CorruptError, MissingError, all_codes, unexpected

CODES = {
    "UnavailableError": ("retry", "CAIRN_STORAGE_UNAVAILABLE"),
    "CredentialsExpiredError": ("retry", "CAIRN_CREDENTIALS_EXPIRED"),
    "DiskFullError": ("retry", "CAIRN_DISK_FULL"),
    "LocalDiskError": ("retry", "CAIRN_LOCAL_DISK"),
    "OpenFilesError": ("retry", "CAIRN_OPEN_FILES"),
    "BusyError": ("retry", "CAIRN_BUSY"),
    "LineageTooLongError": ("retry", "CAIRN_LINEAGE_TOO_LONG"),
    "CancelledError": ("retry", "CAIRN_CANCELLED"),
    "UnknownInstanceError": ("retry", "CAIRN_UNKNOWN_INSTANCE"),
    "ClosedError": ("retry", "CAIRN_CLOSED"),
    "AlreadyExistsError": ("conflict", "CAIRN_OBJECT_EXISTS"),
    "PreconditionFailedError": ("conflict", "CAIRN_PRECONDITION_FAILED"),
    "FencedError": ("conflict", "CAIRN_FENCED"),
    "InUseError": ("conflict", "CAIRN_IN_USE"),
    "CorruptError": ("corrupt", "CAIRN_CORRUPT"),
    "MissingError": ("corrupt", "CAIRN_MISSING"),
    "FormatVersionError": ("corrupt", "CAIRN_FORMAT_VERSION"),
    "ForeignObjectError": ("corrupt", "CAIRN_FOREIGN_OBJECT"),
    "UnsupportedStateError": ("corrupt", "CAIRN_UNSUPPORTED_STATE"),
    "ConfigError": ("invalid", "CAIRN_CONFIG"),
    "PackageMissingError": ("invalid", "CAIRN_PYTHON"),
    "NotThereError": ("invalid", "CAIRN_NOT_THERE"),
    "AccessError": ("invalid", "CAIRN_ACCESS_DENIED"),
    "NoSuchBucketError": ("invalid", "CAIRN_NO_SUCH_BUCKET"),
    "SchemeError": ("invalid", "CAIRN_SCHEME"),
    "ConditionalPutUnsupportedError": ("invalid", "CAIRN_NO_CONDITIONAL_PUT"),
    "FileSystemUnsupportedError": ("invalid", "CAIRN_FILE_SYSTEM"),
    "SparkVersionError": ("invalid", "CAIRN_SPARK_VERSION"),
    "ReleaseError": ("invalid", "CAIRN_RELEASE"),
    "BatchTooLargeError": ("invalid", "CAIRN_BATCH_TOO_LARGE"),
    "RowTooLargeError": ("invalid", "CAIRN_ROW_TOO_LARGE"),
    "RepartitionError": ("invalid", "CAIRN_REPARTITION"),
    "ArrowStateError": ("invalid", "CAIRN_ARROW_STATE"),
    "ProtocolError": ("bug", "CAIRN_PROTOCOL"),
    "FramesMissingError": ("bug", "CAIRN_FRAMES_MISSING"),
    "InternalError": ("bug", "CAIRN_INTERNAL"),
}


@pytest.mark.parametrize(("name", "kind_and_code"), CODES.items(), ids=CODES)
def test_kinds_and_codes_are_those_that_callers_branch_on(
    name: str, kind_and_code: tuple[str, str]
) -> None:
    """The shim and users' alarms match these words."""
    error_class = getattr(errors, name)

    assert (error_class.kind, error_class.code) == kind_and_code
    assert (errors.__doc__ or "").count(f" {kind_and_code[1]}\n") == 1


def test_every_leaf_is_in_the_table() -> None:
    """A new error needs a code that callers know."""

    def leaves(of: type[CairnError]) -> set[str]:
        below = [c for c in of.__subclasses__() if c.__module__ == errors.__name__]
        return {of.__name__} if not below else set().union(*map(leaves, below))

    assert leaves(CairnError) == set(CODES)


def test_every_code_in_the_source_is_in_the_list() -> None:
    """A test compares the list with the documents: an absent code would not be explained."""
    source = Path(errors.__file__).parent
    literals = {
        code
        for path in source.rglob("*.py")
        for code in re.findall(r"CAIRN_[A-Z_]+", path.read_text())
    }

    assert literals == all_codes() == {code for _, code in CODES.values()}


def test_the_text_has_code_place_and_next_step() -> None:
    """One line of a log must say enough to act on it."""
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


def test_context_overwrites_no_field_that_is_set() -> None:
    """The code that raised the error was closest to the cause; callers add what they know."""
    error = MissingError("gone", object_name="inner")

    same = error.with_context(object_name="outer", version=0, store="0/0/default")

    assert same is error
    assert (error.object_name, error.version, error.store) == ("inner", 0, "0/0/default")


def test_a_package_that_is_not_installed_is_named() -> None:
    """boto3 is imported at the first location on S3, long after the start of the worker."""
    missing = ModuleNotFoundError("No module named 'boto3'", name="boto3")

    text = str(unexpected(missing))

    assert re.fullmatch(
        r"\[CAIRN_PYTHON\] Python '.*python.*' has no package boto3\. Next: .*", text
    )


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("is_bare", [False, True], ids=["of the system", "of RocksDB"])
def test_too_many_open_files_say_whose_limit_it_is(number: int, *, is_bare: bool) -> None:
    """The limit of the machine is raised elsewhere than that of a process."""
    text = os.strerror(number)
    failure = RuntimeError(f"IO error: {text}: /a/1.sst") if is_bare else OSError(number, text)

    assert f"or sockets: {text}; its limit" in unexpected(failure).message


def test_an_error_crosses_to_the_jvm_as_data() -> None:
    """The shim must not parse text."""
    error = MissingError("gone", version=3)

    assert error.to_dict() == {
        "kind": "corrupt",
        "code": "CAIRN_MISSING",
        "message": "gone",
        "store": None,
        "version": 3,
        "object": None,
        "next": None,
    }
