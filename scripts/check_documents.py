"""Fails on a line of more than 120 characters in a document (*.md).

Tables, code blocks, headings with links, and lines that are long only because of a link's target
may be longer.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_CHARACTERS = 120
ROOT = Path(__file__).resolve().parents[1]

_FREE = re.compile(r"\||    |\t|#.*\]\(")
_TARGET = re.compile(r"(?<=\])\([^)\s]*\)|https?://[^\s)>]+")


def long_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the number and the length of every line that is too long."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code and not _FREE.match(line) and len(_TARGET.sub("", line)) > MOST_CHARACTERS:
            yield number, len(line)


def main() -> None:
    """Check every document that git tracks or would add."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    faults = [
        f"{name}:{number}: {length} characters (limit {MOST_CHARACTERS})"
        for name in sorted(set(names.splitlines()))
        if (ROOT / name).is_file()
        for number, length in long_lines((ROOT / name).read_text("utf-8"))
    ]
    print("\n".join(faults) or "all lines of documents are within the limit")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
