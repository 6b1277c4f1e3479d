"""`make release`: what it refuses, what it builds, and what it changes."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.spark import REPOSITORY

pytestmark = pytest.mark.tools

CHANGELOG = """# Changelog

## [Unreleased]

### Added
- A thing.

## [0.0.9] - 2025-01-01

### Added
- An older thing.
"""
# The verbs that `make release` calls take minutes: here the check passes, and the wheel has no jar.
MAKEFILE = """
check:
docs:
wheel:
	cd python && {python} -m hatchling build --directory ../.build/wheel
"""
SOURCE = "https://code.company.test/cairn"


def _git(tree: Path, *arguments: str) -> str:
    command = ["git", "-C", str(tree), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clean repository with the package of this one, without jars, and a short changelog."""
    tree = tmp_path / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "jars", "tests", ".*")
    shutil.copytree(REPOSITORY / "python", tree / "python", symlinks=True, ignore=ignored)
    (tree / "scripts").mkdir()
    for name in ("LICENSE", "README.md", ".gitignore", "scripts/release.py"):
        shutil.copy(REPOSITORY / name, tree / name)
    project = tree / "python" / "pyproject.toml"
    project.write_text(
        re.sub(r"^source = .*", f'source = "{SOURCE}"', project.read_text(), flags=re.MULTILINE)
    )
    (tree / "python/src/cairn/VERSION").write_text("0.1.0\n")
    (tree / "CHANGELOG.md").write_text(CHANGELOG)
    (tree / "Makefile").write_text(MAKEFILE.format(python=sys.executable))
    _git(tree, "init", "--quiet")
    _git(tree, "config", "user.name", "Test")
    _git(tree, "config", "user.email", "test@company.test")
    _git(tree, "add", ".")
    _git(tree, "commit", "--quiet", "--message", "all")
    return tree


def _release(tree: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, str(tree / "scripts" / "release.py"), *options]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def test_a_release_builds_all_and_dates_the_changelog(tree: Path) -> None:
    """A person has only to push and to upload, by the commands that it prints."""
    code, output = _release(tree)

    assert code == 0, output
    changelog = (tree / "CHANGELOG.md").read_text()
    dated = r"## \[Unreleased\]\n\n## \[0\.1\.0\] - \d{4}-\d\d-\d\d\n\n### Added\n- A thing\.\n"
    assert re.search(dated, changelog)
    assert _git(tree, "status", "--porcelain") == ""
    assert _git(tree, "log", "--format=%s", "v0.1.0") == "release 0.1.0\nall"
    built = sorted((tree / ".build/wheel").glob("cairn_state-0.1.0*"))
    sums = [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}" for one in built]
    assert (tree / ".build/wheel/SHA256SUMS").read_text().splitlines() == sums
    assert len(sums) == 2
    assert output.count("PASSED") == 2
    for command in ("make test-all", "git push --atomic origin HEAD v0.1.0", "twine upload"):
        assert command in output


def test_a_dry_run_changes_nothing(tree: Path) -> None:
    """It is for looking: a dated changelog would claim a release that there was not."""
    code, output = _release(tree, "--dry-run")

    assert code == 0, output
    assert "origin HEAD v0.1.0" in output
    assert _git(tree, "status", "--porcelain") == ""
    assert _git(tree, "tag", "--list") == ""


def test_a_second_release_of_a_version_is_refused(tree: Path) -> None:
    """The package index never takes a file name twice."""
    _release(tree)

    code, output = _release(tree)

    assert code == 1
    assert "error: the tag v0.1.0 exists. Next: raise python/src/cairn/VERSION" in output
    assert "error: CHANGELOG.md has a section 0.1.0" in output


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("CHANGELOG.md", CHANGELOG.replace("- A thing.\n", ""), "no entries below [Unreleased]"),
        ("CHANGELOG.md", CHANGELOG.replace("Unreleased", "Later"), "no entries below [Unreleased]"),
        ("python/src/cairn/VERSION", "0.1.0.dev1\n", "'0.1.0.dev1' is no version"),
    ],
)
def test_what_is_not_ready_is_refused(tree: Path, name: str, text: str, refused: str) -> None:
    """Before anything is built: the person sees it at once, and no file is changed."""
    (tree / name).write_text(text)
    _git(tree, "commit", "--quiet", "--all", "--message", "not ready")

    code, output = _release(tree)

    assert (code, output.count("error: ")) == (1, 1)
    assert refused in output
    assert _git(tree, "status", "--porcelain") == ""
    assert not (tree / ".build").exists()


def test_a_tree_that_differs_from_its_commit_is_refused(tree: Path) -> None:
    """The tag would name other sources than those of the wheel."""
    (tree / "python/src/cairn/more.py").touch()

    code, output = _release(tree)

    assert code == 1
    assert "error: the tree is not clean" in output
    assert "python/src/cairn/more.py" in output


def test_links_to_no_repository_are_refused_and_shown_by_a_dry_run(tree: Path) -> None:
    """The page of the package index would have only dead links."""
    project = tree / "python" / "pyproject.toml"
    project.write_text(project.read_text().replace(SOURCE, "https://cairn.example/cairn"))
    _git(tree, "commit", "--quiet", "--all", "--message", "no address")

    code, output = _release(tree)
    dry_code, shown = _release(tree, "--dry-run")

    assert (code, dry_code) == (1, 1)
    assert "error: https://cairn.example/cairn is no repository" in output
    assert "a release would be refused: https://cairn.example/cairn is no repository" in shown
