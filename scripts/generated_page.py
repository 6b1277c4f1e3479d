"""A page of docs/ that a script writes: written anew, or compared with what it should be."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_compare(page: Path, text: str) -> None:
    """Write the page; with ``--check`` among the arguments end the program if it differs."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text, "utf-8")
        return
    found = page.read_text("utf-8") if page.exists() else ""
    if found != text:
        name = str(page.relative_to(ROOT))
        lines = difflib.unified_diff(
            found.splitlines(), text.splitlines(), name, "as it should be", lineterm=""
        )
        print("\n".join(lines))
        sys.exit(f"{name} is not up to date. Next: python scripts/{Path(sys.argv[0]).name}")
