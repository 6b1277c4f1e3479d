"""docs/parity.md claims only what a recorded run or an existing test shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.spark import REPOSITORY

pytestmark = pytest.mark.tools

FEATURES = REPOSITORY / "integration-tests" / "parity" / "features.toml"
UNKNOWN = """
[[feature]]
area = "Operators"
name = "a feature that nobody has run"
tests = ["{test}"]
"""


def parity_page(*arguments: str) -> tuple[int, str]:
    """Run the program; return its exit code and errors."""
    program = str(REPOSITORY / "scripts" / "parity_page.py")
    command = [sys.executable, program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def page_of(folder: Path, features: str) -> tuple[list[str], Path]:
    """Write the page of a declaration; return the arguments that name both, and the page."""
    declaration, page = folder / "features.toml", folder / "parity.md"
    declaration.write_text(features)
    arguments = ["--features", str(declaration), "--page", str(page)]
    assert parity_page(*arguments) == (0, "")
    return arguments, page


def test_what_nobody_has_run_is_not_claimed(tmp_path: Path) -> None:
    """A table of features is worth what its empty cells are worth."""
    test = "integration-tests/repository/test_parity_page.py"
    _, page = page_of(tmp_path, UNKNOWN.format(test=test))

    row = f"| a feature that nobody has run | {'not run | ' * 3}[`test_parity_page.py`]"
    assert row in page.read_text()


def test_a_test_of_sparks_suites_has_the_outcomes_of_the_control_and_of_cairn(
    tmp_path: Path,
) -> None:
    """An exception of expected.toml is not a feature that Cairn has."""
    suite = "spark-suites/RocksDBWithChangelogCheckpointStateDataSourceChangeDataReaderSuite"
    test = "read stream-stream join state change feed"
    _, page = page_of(tmp_path, UNKNOWN.format(test=f"{suite}::{test}"))

    assert "| a feature that nobody has run | not run | yes | no: its tests fail |" in (
        page.read_text()
    )


def test_a_page_that_is_not_up_to_date_fails(tmp_path: Path) -> None:
    """Outcomes are recorded, not written by hand."""
    arguments, page = page_of(tmp_path, FEATURES.read_text())
    assert parity_page("--check", *arguments) == (0, "")
    page.write_text(page.read_text().replace("| not run |", "| yes |", 1))

    code, errors = parity_page("--check", *arguments)

    assert code == 1
    assert "is not up to date" in errors


@pytest.mark.parametrize(
    "absent",
    [
        "integration-tests/parity/test_operators.py::test_absent",
        "jvm-shim/src/test/java/io/cairn/spark/StoreTrapsTest.java::absent",
        "jvm-shim/src/test/java/io/cairn/spark/AbsentTest.java::absent",
        "spark-suites/StoreSuite::absent",
        "spark-suites/AbsentSuite::absent",
    ],
)
def test_a_test_that_does_not_exist_fails(tmp_path: Path, absent: str) -> None:
    """A test that was renamed shows nothing any more."""
    arguments, _ = page_of(tmp_path, UNKNOWN.format(test=absent))

    code, errors = parity_page("--check", *arguments)

    assert code == 1
    assert f"a feature names {absent}, and there is no such test" in errors
