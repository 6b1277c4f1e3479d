"""Each fault of which something is promised has a row that says what a person does."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENTS = Path(__file__).parents[2] / "docs"
HEADING = "# After a fault\n"


def rows(name: str) -> list[list[str]]:
    """Return the cells of the table below the heading of a document."""
    section = (DOCUMENTS / name).read_text().partition(HEADING)[2].partition("\n#")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [line.replace("\\|", "/").strip("|").split("|") for line in table[2:]]


def test_a_person_finds_what_to_do_after_each_fault() -> None:
    """A promise is of little use at night without the next step."""
    promised = [row[0].strip() for row in rows("semantics.md")]
    advised = {row[0].strip(): row[1:] for row in rows("operations.md")}

    assert len(promised) > 10
    assert not set(promised) - advised.keys()
    for fault, cells in advised.items():
        assert len(cells) == 2, fault
        assert all(cell.strip() for cell in cells), fault


def test_each_promise_names_the_tests_that_provoke_its_fault() -> None:
    """A promise without a test is a hope."""
    for fault, *_, tests in rows("semantics.md"):
        names = re.findall(r"\]\(([^)]+)\)", tests)
        assert names, fault
        assert all((DOCUMENTS / name).is_file() for name in names), fault
