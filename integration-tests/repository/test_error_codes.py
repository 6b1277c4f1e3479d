"""docs/troubleshooting.md explains every error code of both languages, and no other."""

from __future__ import annotations

import re

from harness.spark import REPOSITORY

PAGE = REPOSITORY / "docs" / "troubleshooting.md"
SOURCES = (REPOSITORY / "python" / "src" / "cairn", REPOSITORY / "jvm-shim" / "src" / "main")
# A heading, or the first cell of a row.
_ENTRY = re.compile(r"^(?:#+ |\| *)`?(CAIRN_[A-Z0-9_]+)", re.MULTILINE)
_CODE = re.compile(r"\bCAIRN_[A-Z0-9_]+\b")


def test_the_page_has_the_codes_of_the_sources() -> None:
    """Users search for the code of an error; an entry without an error misleads them."""
    files = (
        path for folder in SOURCES for path in folder.rglob("*") if path.suffix in {".py", ".java"}
    )
    codes = {code for path in files for code in _CODE.findall(path.read_text("utf-8"))}
    entries = _ENTRY.findall(PAGE.read_text("utf-8"))

    assert len(codes) > 20, "the sources have moved"
    assert sorted(entries) == sorted(codes)
