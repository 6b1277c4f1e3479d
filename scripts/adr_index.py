"""Keeps docs/adr/README.md, the index of decisions by subject, as their files are.

The subject of a decision, and the order of the subjects, are those of the index; its title and its
status are those of its file.

Usage: adr_index.py            writes titles and statuses into the index
       adr_index.py --check    fails if the index is not up to date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "adr"
INDEX = FOLDER / "README.md"

_HEAD = re.compile(r"# (?P<number>\d+)\. (?P<title>.+)\n\nStatus: (?P<status>(?:.+\n)+)\n")
_LINK = r"\[ADR \d+\]\(\d{4}-[\w-]+\.md\)"
_STATUS = re.compile(
    rf"accepted(; superseded in part by {_LINK}: [^.]+)?|superseded by {_LINK}|rejected"
)
_LINKED = re.compile(r"\[ADR (\d+)\]\((\d{4})-[^)]+\)")
_ROW = re.compile(r"\| \[\d+\]\((?P<name>[^)]+)\) \|.*")


def row_of(path: Path, faults: list[str]) -> str:
    """Return the row of a decision in the index."""
    head = _HEAD.match(path.read_text("utf-8"))
    if head is None:
        faults.append(f"{path.name}: begins with '# <number>. <title>' and a paragraph 'Status: …'")
        return ""
    number, status = int(head["number"]), " ".join(head["status"].split())
    if not path.name.startswith(f"{number:04}-"):
        faults.append(f"{path.name}: its title has the number {number}")
    if not _STATUS.fullmatch(status):
        faults.append(f"{path.name}: its status must match {_STATUS.pattern}")
    for shown, target in _LINKED.findall(status):
        if int(shown) != int(target) or not list(FOLDER.glob(f"{target}-*.md")):
            faults.append(f"{path.name}: its status links to no such decision: ADR {shown}")
    return f"| [{number}]({path.name}) | {head['title']} | {status} |"


def render(index: str, faults: list[str]) -> str:
    """Return the index with the rows of the files; the subjects and their order stay."""
    rows = {path.name: row_of(path, faults) for path in FOLDER.glob("[0-9]*.md")}
    listed = [row["name"] for row in map(_ROW.fullmatch, index.splitlines()) if row]
    for name in sorted({*rows, *listed}):
        if name not in rows:
            faults.append(f"{INDEX.name}: {name} does not exist")
        elif listed.count(name) != 1:
            faults.append(f"{INDEX.name}: {name} must have one row, and has {listed.count(name)}")
    numbers = {int(name[:4]) for name in rows}
    if gaps := sorted({*range(1, max(numbers, default=0))} - numbers):
        faults.append(f"{INDEX.name}: no decision has the numbers {gaps}; a new one gets the next")
    lines = (
        rows.get(row["name"], line) if (row := _ROW.fullmatch(line)) else line
        for line in index.splitlines()
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write or compare."""
    faults: list[str] = []
    index = INDEX.read_text("utf-8")
    rendered = render(index, faults)
    if "--check" not in sys.argv[1:]:
        INDEX.write_text(rendered, "utf-8")
    elif rendered != index:
        faults.append("docs/adr/README.md is not up to date. Next: python scripts/adr_index.py")
    print("\n".join(faults) or "the index of decisions is as their files are")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
