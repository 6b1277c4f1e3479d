"""Reads suites.toml: which of Spark's suites run, how, and which do not, with the reason."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from suite_kit import HERE, MINOR

SUITES_FILE = HERE / "suites.toml"


@dataclass(frozen=True)
class Suite:
    """A suite class, its time limit, and a part of the names of the tests to run.

    ``files``: a suite of the checkpoint file manager has the place of its files, ``s3`` or
    ``local``. ``flaky``: tests that fail now and then under Spark's own provider too. ``jvm``:
    suites with the same one run one after the other in one JVM. ``random``: a regular expression
    of the parts of test names that differ from run to run.
    """

    name: str
    class_name: str
    limit_s: int
    name_filter: str = ""
    files: str = ""
    flaky: tuple[str, ...] = ()
    jvm: str = ""
    random: str = ""


@dataclass(frozen=True)
class Excluded:
    """Suites of one package that do not run, as patterns of class names, and the reason."""

    package: str
    patterns: tuple[str, ...]
    reason: str


def read_suites(*, is_quick: bool = False, file: Path = SUITES_FILE) -> list[Suite]:
    """Return the suites to run; with ``is_quick`` only those marked quick, with their filters."""
    content = tomllib.loads(file.read_text())
    entries = [*content["suite"], *_entries_of_groups(content.get("group", []))]
    return _suites(content, entries, is_quick=is_quick)


def read_waiting(file: Path = SUITES_FILE) -> list[Suite]:
    """Return the suites that have not been run yet under both providers."""
    content = tomllib.loads(file.read_text())
    return _suites(content, _entries_of_groups(content.get("waiting", [])), is_quick=False)


def _suites(
    content: dict[str, Any], entries: list[dict[str, Any]], *, is_quick: bool
) -> list[Suite]:
    flaky = content.get("flaky", {})
    random = content.get("random", {})
    entries = [_of_this_minor(entry) for entry in entries]
    return [
        Suite(
            name=entry["name"],
            class_name=".".join(
                (entry.get("package", content["package"]), entry.get("class", entry["name"]))
            ),
            limit_s=entry["limit_s"],
            name_filter=entry.get("quick_filter", "") if is_quick else "",
            files=entry.get("files", ""),
            flaky=tuple(flaky.get(entry["name"], ())),
            random=random.get(entry["name"], ""),
            jvm="" if entry["name"] in flaky else _jvm(entry, is_quick=is_quick),
        )
        for entry in entries
        if entry.get("quick") or not is_quick
    ]


def _of_this_minor(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with the suite that the installed Spark has instead."""
    name = entry.get("older", {}).get(MINOR)
    return {**entry, "name": name, "quick_filter": ""} if name else entry


def _jvm(entry: dict[str, Any], *, is_quick: bool) -> str:
    """Quick suites share a JVM if they have the same place of their files."""
    return f"quick{entry.get('files', '')}" if is_quick else str(entry.get("jvm", ""))


def _entries_of_groups(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**group, "name": name} for group in groups for name in group["suites"]]


def read_excluded(file: Path = SUITES_FILE) -> list[Excluded]:
    """Return what does not run.

    Raises:
        SystemExit: an entry has no reason.
    """
    excluded = []
    for entry in tomllib.loads(file.read_text())["excluded"]:
        if not entry.get("reason"):
            message = f"{file.name}: an exclusion needs a reason: {entry}"
            raise SystemExit(message)
        excluded.append(Excluded(entry["package"], tuple(entry["suites"]), entry["reason"]))
    return excluded


def unlisted(suites: list[Suite], excluded: list[Excluded], classes: Path) -> list[str]:
    """Return the suite classes below ``classes`` that are neither listed nor excluded.

    All packages of Structured Streaming and of the state data source are looked at, so no suite of
    a new Spark is missed.
    """
    listed = {suite.class_name for suite in suites}
    root = classes / "org" / "apache" / "spark" / "sql"
    found = [
        (".".join(file.parent.relative_to(classes).parts), file.stem)
        for file in sorted(root.rglob("*Suite*.class"))
        if "$" not in file.stem and _concerns_state(file.parent.relative_to(root).parts)
    ]
    return [
        f"{package}.{name}"
        for package, name in found
        if f"{package}.{name}" not in listed
        and not any(
            exclusion.package == package and any(fnmatch(name, part) for part in exclusion.patterns)
            for exclusion in excluded
        )
    ]


def _concerns_state(package: tuple[str, ...]) -> bool:
    return "streaming" in package or package[-2:] == ("v2", "state")
