"""Each fault of which something is promised has a row that says what a person does."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENTS = Path(__file__).parents[2] / "docs"
LINK = re.compile(r"\[([^]]+)\]\(([^)#]+)[^)]*\)")
TEST = re.compile(
    r"(?P<file>\w+\.py)::(?P<test>test_\w+)|(?P<class>\w+Test)\.(?P<method>(?!java$)\w+)"
)
HEADING = "# After a fault\n"


def rows(name: str) -> list[list[str]]:
    """Return the cells of the table below the heading of a document."""
    section = (DOCUMENTS / name).read_text().partition(HEADING)[2].partition("\n#")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [line.replace("\\|", "/").strip("|").split("|") for line in table[2:]]


def test_a_person_finds_what_to_do_after_each_fault() -> None:
    """A promise is of little use at night without the next step, and advice needs a promise."""
    promised = [row[0].strip() for row in rows("semantics.md")]
    advised = {row[0].strip(): row[1:] for row in rows("faults.md")}

    assert len(promised) > 10
    assert promised == list(advised)
    for fault, cells in advised.items():
        assert len(cells) == 2, fault
        assert all(cell.strip() for cell in cells), fault


def test_each_promise_names_the_tests_that_provoke_its_fault() -> None:
    """A promise without a test is a hope."""
    for fault, *_, tests in rows("semantics.md"):
        links = LINK.findall(tests)
        assert links, fault
        for text, path in links:
            assert name_of_test(text), f"{fault}: {text} is the name of no test"
            assert defines(DOCUMENTS / path, text), f"{fault}: there is no {text}"


def test_a_test_that_a_page_names_exists() -> None:
    """A test that was renamed leaves a promise that nothing shows."""
    pages = [*DOCUMENTS.rglob("*.md"), *DOCUMENTS.parent.glob("*.md")]
    for page in pages:
        for text, path in LINK.findall(page.read_text()):
            if name_of_test(text):
                assert defines(page.parent / path, text), f"{page.name}: there is no {text}"


def test_what_no_file_defines_is_found(tmp_path: Path) -> None:
    """A check that finds every name would show nothing."""
    python, java = tmp_path / "test_one.py", tmp_path / "OneTest.java"
    python.write_text("def test_here() -> None:\n    test_called()\n")
    java.write_text("  @Test\n  void here() throws Exception {\n    called();\n  }\n")

    assert defines(python, "test_one.py::test_here")
    assert defines(java, "OneTest.here")
    for missing in ("test_one.py::test_called", "test_one.py::test_her", "test_two.py::test_here"):
        assert not defines(python, missing)
    for missing in ("OneTest.called", "OneTest.her", "TwoTest.here"):
        assert not defines(java, missing)
    assert not defines(tmp_path / "test_two.py", "test_two.py::test_here")


def name_of_test(text: str) -> tuple[str, str] | None:
    """Return the file or class, and the test in it, that the text of a link names."""
    named = TEST.fullmatch(text.strip("`"))
    if named is None:
        return None
    return named["file"] or f"{named['class']}.java", named["test"] or named["method"]


def defines(file: Path, text: str) -> bool:
    """Return whether a file is the one that a text names, and defines its test."""
    named = name_of_test(text)
    if named is None or file.name != named[0] or not file.is_file():
        return False
    python, java = (
        rf"^def {named[1]}\(",
        rf"^  @(Parameterized)?Test\n(  +@.*\n)*  void {named[1]}\(",
    )
    form = python if file.suffix == ".py" else java
    return bool(re.search(form, file.read_text(), re.MULTILINE))
