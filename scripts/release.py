"""Makes a release, all but the upload: `make release`.

Usage: release.py [--dry-run]    --dry-run leaves the tree as it is, and goes on where a release
                                 refuses

The tree must be clean, and the changelog's section `Unreleased` must have entries. `make check`,
`make docs` and `make wheel` run; wheel, sdist and their checksums are in .build/wheel. Then the
section gets the version and the day's date, which is committed and tagged here, and the commands of
push and upload are printed for a person to run.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / ".build" / "wheel"
CHANGELOG = ROOT / "CHANGELOG.md"
# What the release must have passed: `make release` cannot tell, and they take hours.
TESTS = ("test-all", "spark-suites", "spark-matrix", "chaos MINUTES=12", "fuzz")

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_UNRELEASED = "## [Unreleased]\n"
_SECTION = re.compile(r"^## ", re.MULTILINE)


class ReleaseError(Exception):
    """There can be no release; the message says why, and what to do."""


def dated(changelog: str, version: str, day: date) -> str:
    """Return the changelog with the section of this version, below an empty `Unreleased`.

    Raises:
        ReleaseError: the version has a section already, or nothing is unreleased.
    """
    if f"\n## [{version}]" in changelog:
        raise ReleaseError(
            f"CHANGELOG.md has a section {version}. Next: raise python/src/cairn/VERSION"
        )
    before, heading, after = changelog.partition(_UNRELEASED)
    entries = _SECTION.split(after, maxsplit=1)[0]
    if not heading or not re.search(r"^- ", entries, re.MULTILINE):
        raise ReleaseError("CHANGELOG.md has no entries below [Unreleased]. Next: write them")
    return f"{before}{heading}\n## [{version}] - {day.isoformat()}\n{after}"


def faults(version: str) -> list[str]:
    """Return why there can be no release of this tree; nothing is changed."""
    found = []
    if not _VERSION.fullmatch(version):
        found.append(f"'{version}' is no version. Next: correct python/src/cairn/VERSION")
    changed = _git("status", "--porcelain")
    if changed:
        found.append(f"the tree is not clean. Next: commit or remove\n{changed}")
    if _git("tag", "--list", tag_of(version)):
        found.append(f"the tag v{version} exists. Next: raise python/src/cairn/VERSION")
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text("utf-8"))
    source = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["source"]
    if (urlsplit(source).hostname or "").endswith(".example"):
        found.append(f"{source} is no repository. Next: set `source` in python/pyproject.toml")
    try:
        dated(CHANGELOG.read_text("utf-8"), version, _today())
    except ReleaseError as error:
        found.append(str(error))
    return found


def build(version: str) -> list[Path]:
    """Check the tree, build wheel and sdist, and check them; return their paths.

    Raises:
        CalledProcessError: a step failed; its output is on the terminal.
    """
    _run("make", "check", "docs", "wheel")
    built = sorted(BUILT.glob(f"cairn_state-{version}*"))
    _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, built))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
    (BUILT / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")
    return built


def tag_of(version: str) -> str:
    """Return the tag of a version."""
    return f"v{version}"


def conclude(version: str) -> None:
    """Date the changelog, commit that, and tag the commit.

    Raises:
        CalledProcessError: git refuses; its output is on the terminal.
    """
    CHANGELOG.write_text(dated(CHANGELOG.read_text("utf-8"), version, _today()), "utf-8")
    _run("git", "commit", "--quiet", "--message", f"release {version}", CHANGELOG.name)
    _run("git", "tag", "--annotate", tag_of(version), "--message", f"Cairn {version}")


def next_steps(version: str, built: list[Path]) -> str:
    """Return what a person does now."""
    tag = tag_of(version)
    files = " ".join(str(path.relative_to(ROOT)) for path in built)
    return f"""
On this commit these must have passed:

    {"; ".join(f"make {test}" for test in TESTS)}

Then:

    git push --atomic origin HEAD {tag}
    .venv/bin/twine upload {files}
"""


def main() -> None:
    """Make the release, or only show what it would do."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="leave the tree as it is")
    is_dry = parser.parse_args().dry_run
    version = (ROOT / "python" / "src" / "cairn" / "VERSION").read_text("ascii").strip()
    refused = faults(version)
    if refused and not is_dry:
        sys.exit("\n".join(f"error: {fault}" for fault in refused))
    built = build(version)
    if not is_dry:
        conclude(version)
    print(next_steps(version, built))
    if refused:
        sys.exit("\n".join(f"a release would be refused: {fault}" for fault in refused))


def _today() -> date:
    return datetime.now(UTC).date()


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip()


def _run(*command: str) -> None:
    print("$", *command, flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: {' '.join(error.cmd)} failed with {error.returncode}")
