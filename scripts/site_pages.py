"""Prepares and checks the site that mkdocs.yml describes; `make docs` runs both.

Usage: site_pages.py pages             copies the pages into .build/site-pages
       site_pages.py check [FOLDER]    fails on a link of .build/site that leads nowhere

A page keeps its place, so that its links to other pages hold. Links to files that are no pages
become links to the repository.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / ".build" / "site-pages"
SITE = ROOT / ".build" / "site"
PATTERNS = ("*.md", "docs/**/*.md", "docs/images/*", "docs/site.css", "benchmarks/results/*.md")

_TARGET = re.compile(r"(?<=\]\()([^)\s#]+)")
_LINK = re.compile(r"\b(?:href|src|srcset)=\"?([^\"\s>]+)")
_ID = re.compile(r"\b(?:id|name)=\"?([^\"\s>]+)")


def copy_pages() -> None:
    """Copy every page that git tracks or would add."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = {ROOT / name for name in names.splitlines()}
    chosen = {file for pattern in PATTERNS for file in ROOT.glob(pattern)} & tracked
    repository = _repository()
    shutil.rmtree(PAGES, ignore_errors=True)
    for file in chosen:
        copy = PAGES / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            copy.write_text(_with_targets(file, chosen, repository), "utf-8")
        else:
            shutil.copyfile(file, copy)


def _repository() -> str:
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text("utf-8"))
    return str(project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["source"])


def _with_targets(page: Path, chosen: set[Path], repository: str) -> str:
    def target(match: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", match[0]):
            return match[0]
        file = (page.parent / match[0]).resolve()
        if file in chosen:
            return match[0]
        if file / "README.md" in chosen:
            return f"{match[0].rstrip('/')}/README.md"
        kind = "tree" if file.is_dir() else "blob"
        return f"{repository}/{kind}/main/{file.relative_to(ROOT)}"

    return _TARGET.sub(target, page.read_text("utf-8"))


def broken_links(site: Path) -> list[str]:
    """Return the links between pages of the site that lead to no file, or to no place in it."""
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    found = [
        f"{page.relative_to(site)}: {link} leads nowhere"
        for page in pages
        for link in dict.fromkeys(map(unescape, _LINK.findall(page.read_text("utf-8"))))
        if not re.match(r"[a-z]+:|//", link) and not _leads_somewhere(page, link)
    ]
    return found if pages else [f"{site} has no pages"]


def _leads_somewhere(page: Path, link: str) -> bool:
    name, _, fragment = unquote(link).partition("#")
    file = (page.parent / name.partition("?")[0]).resolve() if name else page
    file = file / "index.html" if file.is_dir() else file
    return file.is_file() and (not fragment or fragment in _ids(file))


@cache
def _ids(page: Path) -> frozenset[str]:
    return frozenset(unescape(name) for name in _ID.findall(page.read_text("utf-8")))


def main() -> None:
    """Do what the argument says."""
    if sys.argv[1:] == ["pages"]:
        copy_pages()
    elif sys.argv[1:2] == ["check"]:
        faults = broken_links(Path(sys.argv[2]) if sys.argv[2:] else SITE)
        print("\n".join(faults) or "all links of the site lead to a page and a place in it")
        sys.exit(1 if faults else 0)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
