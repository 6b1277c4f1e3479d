"""The documents explain every error code of both languages, and no other."""

from __future__ import annotations

import re

from cairn.errors import CairnError, Kind
from harness.spark import REPOSITORY

PAGE = REPOSITORY / "docs" / "troubleshooting.md"
FAULTS = REPOSITORY / "docs" / "faults.md"
SEMANTICS = REPOSITORY / "docs" / "semantics.md"
SOURCES = (REPOSITORY / "python" / "src" / "cairn", REPOSITORY / "jvm-shim" / "src" / "main")
# A heading, or the first cell of a row.
_ENTRY = re.compile(r"^(?:#+ |\| *)`?(CAIRN_[A-Z0-9_]+)", re.MULTILINE)
# Code, link, what it means, what to do.
_ADVICE = re.compile(
    r"^\| \[`(CAIRN_\w+)`\]\(troubleshooting.md#(\w+)\) \| [^|]+ \| [^|]+ \|$", re.MULTILINE
)
_ROW = re.compile(r"^\| (\w+) \| (`CAIRN_[^|]+) \|", re.MULTILINE)
_CODE = re.compile(r"\bCAIRN_[A-Z0-9_]+\b")
# Of the same form, but no code: the environment variable by which the shim hands on PYTHONPATH.
_VARIABLES = {"CAIRN_PYTHONPATH"}


def test_the_page_has_the_codes_of_the_sources() -> None:
    """Users search for the code of an error; an entry without an error misleads them."""
    files = (
        path for folder in SOURCES for path in folder.rglob("*") if path.suffix in {".py", ".java"}
    )
    codes = {code for path in files for code in _CODE.findall(path.read_text("utf-8"))}
    codes -= _VARIABLES
    entries = _ENTRY.findall(PAGE.read_text("utf-8"))

    assert len(codes) > 20, "the sources have moved"
    assert sorted(entries) == sorted(codes)


def test_each_code_has_a_line_for_those_who_are_woken_up_by_it() -> None:
    """The page for the night must not send anybody into a long text to learn: do nothing."""
    advised = dict(_ADVICE.findall(FAULTS.read_text("utf-8")))

    assert sorted(advised) == sorted(_ENTRY.findall(PAGE.read_text("utf-8")))
    assert advised == {code: code.lower() for code in advised}


def test_the_kind_of_a_code_is_the_same_in_the_document_and_in_the_worker() -> None:
    """Who branches on the kind must not retry a bug, nor report what a retry cures."""
    documented = {
        code: kind
        for kind, codes in _ROW.findall(SEMANTICS.read_text("utf-8"))
        for code in _CODE.findall(codes)
    }
    raised = kinds()

    assert len(raised) > 20
    assert raised == {code: documented.get(code) for code in raised}


def kinds(of: type[CairnError] = CairnError) -> dict[str, Kind]:
    """Return the kind of each code of the worker's errors."""
    below = (kinds(error) for error in of.__subclasses__())
    return {of.code: of.kind} | {code: kind for found in below for code, kind in found.items()}
