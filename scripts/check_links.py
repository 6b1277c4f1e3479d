"""Fails on a relative link of a document (*.md) that leads nowhere.

A link is Markdown's `[text](target)`, or `src` and `srcset` of an image. Its file must exist, and
its anchor must be a heading of that page, as GitHub and the site name it. Links to other sites are
not followed.

Usage: check_links.py [FOLDER]    the repository, or another tree
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|srcset)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings; the second of the same name ends with -1."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text("utf-8"))):
        name = anchor(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(found)


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    text = _LINK.sub(r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def broken(page: Path) -> list[str]:
    """Return the targets of a page that lead nowhere."""
    text = _CODE.sub("", page.read_text("utf-8"))
    targets = (one or other for one, other in _TARGET.findall(text))
    return [target for target in dict.fromkeys(targets) if not _leads_somewhere(page, target)]


def _leads_somewhere(page: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return True
    name, _, fragment = target.partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return False
    return not fragment or (file.suffix == ".md" and fragment in anchors(file))


def _is_page(path: Path) -> bool:
    """Whether a document is here, and is not another name of one."""
    return path.is_file() and not path.is_symlink()


def main() -> None:
    """Check every document that git tracks or would add."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout
    pages = [root / name for name in sorted(set(names.splitlines())) if _is_page(root / name)]
    faults = [
        f"{page.relative_to(root)}: {target} leads nowhere"
        for page in pages
        for target in broken(page)
    ]
    print("\n".join(faults) or f"all links of {len(pages)} documents lead to a file and a heading")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
