"""Writes docs/parity.md: what works under Spark's two providers and under Cairn, and what shows it.

Usage: parity_page.py            writes the page
       parity_page.py --check    fails if the page is not up to date or names a test that is absent
       --features FILE, --page FILE    another declaration, another page

The features are declared in integration-tests/parity/features.toml. The outcomes are in
results.json beside it, which integration-tests/parity/record.py writes from runs; those of Spark's
own suites are in integration-tests/spark_suites. What has no recorded outcome is "not run".
"""

from __future__ import annotations

import argparse
import difflib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "integration-tests"
sys.path.insert(0, str(TESTS / "spark_suites"))
from suite_process import FAILED, PASSED
from verdict import read_control, read_expected, recorded_suites

FEATURES = TESTS / "parity" / "features.toml"
RESULTS = TESTS / "parity" / "results.json"
PAGE = ROOT / "docs" / "parity.md"
OPERATORS = "integration-tests/parity/test_operators.py"
PROVIDERS = ("hdfs", "rocksdb", "cairn")
NOT_RUN = "not run"
YES = "yes"
# One of the tests of test_operators.py: a case is named if this test has it.
FIRST_TEST = "test_the_sink_has_the_same_rows_in_every_batch"

INTRODUCTION = """\
# Parity with Spark's providers

<!-- Written by scripts/parity_page.py from integration-tests/parity. Do not edit. -->

What works under Spark's HDFS-backed provider, under Spark's RocksDB provider (with changelogs) and
under Cairn, on Spark {spark}. A cell is the outcome of a run that is recorded ({dates}), or says
that there is none; in a row that is closed to Cairn it is the reason.

- **yes**: a query over three micro-batches, with a restart after the second, gave the same rows as
  Spark's RocksDB provider in checkpoint format 1 (or as the HDFS-backed one, where that fails). So
  did the read that the row names.
- **no**: it failed with this error condition, or differed in this.
- **not run**: nothing is recorded.

The last column names what shows it under Cairn: tests of `make test`, and of `make test-all` those
that take long. If one of them has failed, the cell says so. The tests of an operator compare the
sink's rows of every batch, the progress, the state and its changes with Spark's provider. New
outcomes: `integration-tests/parity/record.py`, then `scripts/parity_page.py`.
"""

SUITES = """
## Spark's own test suites

`make spark-suites` runs them under Cairn. It fails if Cairn does not pass what Spark's RocksDB
provider passes, except for the tests in
[expected.toml](../integration-tests/spark_suites/expected.toml), each with its reason. What Spark's
RocksDB provider passes is recorded in
[control.toml](../integration-tests/spark_suites/control.toml). A test that fails there says nothing
of Cairn: the test classes are of Spark {suites_of_spark}. HDFS-backed: not run.

| suite | passed under Spark RocksDB | failed there | of those passed, expected to fail on Cairn |
|---|---:|---:|---:|
"""


class Results:
    """The recorded outcomes of runs and tests."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.spark: str = recorded["spark"]
        self._runs: dict[str, dict[str, str]] = recorded["runs"]
        self._tests: dict[str, str] = recorded["tests"]

    @property
    def dates(self) -> str:
        """The day of the runs, or the first and the last one."""
        days = sorted({run["at"] for run in self._runs.values()})
        return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else NOT_RUN

    def cells(self, feature: dict[str, Any]) -> list[str]:
        """Return the outcome under each provider."""
        if "closed" in feature:
            return [NOT_RUN, NOT_RUN, f"no: {feature['closed']}"]
        runs = self._runs.get(f"{feature['area']}: {feature['name']}", {})
        *sparks, cairn = (runs.get(provider, NOT_RUN) for provider in PROVIDERS)
        return [*sparks, self._with_tests(cairn, feature)]

    def _with_tests(self, outcome: str, feature: dict[str, Any]) -> str:
        """Return an outcome under Cairn with what the tests of the feature say."""
        states = {self._state(name) for name in named_tests(feature)}
        if "failed" in states:
            return "no: its tests fail"
        if "operator" not in feature:
            return YES if states == {"passed"} else NOT_RUN
        return outcome if states <= {"passed"} else f"{outcome}; tests not run"

    def _state(self, name: str) -> str:
        """Return the outcome of a test, of a case of `test_operators`, or of a file."""
        found = {text.split()[0] for test, text in self._tests.items() if is_of(test, name)}
        return found.pop() if len(found) == 1 else "failed" if "failed" in found else NOT_RUN


def named_tests(feature: dict[str, Any]) -> list[str]:
    """Return the tests that a feature names; `FILE[case]` stands for all tests of a case."""
    cases = [f"{OPERATORS}[{case}]" for case in feature.get("cases", [])]
    return [*cases, *feature.get("tests", [])]


def is_of(test: str, name: str) -> bool:
    """Return whether a pytest id is one of those that a name stands for."""
    file, _, case = name.partition("[")
    if case and "::" not in name:
        return test.startswith(file + "::") and test.endswith("[" + case)
    return test == name or (test.startswith((name + "::", name + "[")))


def render(features: list[dict[str, Any]]) -> str:
    """Return the page."""
    results = Results(json.loads(RESULTS.read_text("utf-8")))
    areas: dict[str, list[dict[str, Any]]] = {}
    for feature in features:
        areas.setdefault(feature["area"], []).append(feature)
    parts = [INTRODUCTION.format(spark=results.spark, dates=results.dates)]
    for area, rows in areas.items():
        parts.append(
            f"\n## {area}\n\n| feature | Spark HDFS-backed | Spark RocksDB | Cairn | shown by |\n"
            "|---|---|---|---|---|\n"
        )
        parts.extend(_row(feature, results) for feature in rows)
    return "".join([*parts, SUITES.format(suites_of_spark=recorded_suites()), *_suites()])


def _row(feature: dict[str, Any], results: Results) -> str:
    shown = ", ".join(_link(name) for name in named_tests(feature))
    if not shown:
        shown = "" if "closed" in feature else "the recorded run alone"
    return f"| {' | '.join([feature['name'], *results.cells(feature), shown])} |\n"


def _link(name: str) -> str:
    path, _, test = name.partition("::")
    file, _, case = path.partition("[")
    target = Path(file).relative_to("integration-tests")
    text = test or case.removesuffix("]") or target.name
    return f"[`{text}`](../{file})"


def _suites() -> list[str]:
    controls = read_control()
    expected = read_expected(controls)
    rows = []
    for name, control in sorted(controls.items()):
        passed = [test for test, outcome in control.outcomes.items() if outcome == PASSED]
        differing = sum((name, test) in expected for test in passed)
        failed = sum(outcome == FAILED for outcome in control.outcomes.values())
        rows.append(f"| {name} | {len(passed)} | {failed} | {differing} |\n")
    return rows


def absent_tests(features: list[dict[str, Any]]) -> list[str]:
    """Return the named tests that pytest does not find; print the operators in no feature."""
    names = {name for feature in features for name in named_tests(feature)}
    files = sorted({name.partition("::")[0].partition("[")[0] for name in names} | {OPERATORS})
    missing = [f"{file} is absent" for file in files if not (ROOT / file).is_file()]
    if missing:
        return missing
    command = [sys.executable, "-m", "pytest", "-c", "python/pyproject.toml", "--rootdir", "."]
    listing = subprocess.run(
        [*command, "--collect-only", "-q", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        return [f"pytest cannot collect the tests:\n{listing.stdout[-3000:]}{listing.stderr}"]
    tests = [line for line in listing.stdout.splitlines() if "::" in line]
    faults = [
        f"a feature names {name}, and there is no such test"
        for name in sorted(names)
        if not any(is_of(test, name) for test in tests)
    ]
    cases = {case for feature in features for case in feature.get("cases", [])}
    for test in tests:
        case = test.partition("[")[2][:-1]
        if f"::{FIRST_TEST}[" in test and case not in cases:
            print(f"warning: the case {case} of {OPERATORS} is in no feature of docs/parity.md")
    return faults


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="change nothing; fail on a fault")
    parser.add_argument("--features", type=Path, default=FEATURES)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    features = tomllib.loads(options.features.read_text("utf-8"))["feature"]
    page = render(features)
    if not options.check:
        options.page.write_text(page, "utf-8")
        return
    faults = absent_tests(features)
    found = options.page.read_text("utf-8") if options.page.exists() else ""
    if found != page:
        names = (options.page.name, "what the results say")
        faults += difflib.unified_diff(found.splitlines(), page.splitlines(), *names, lineterm="")
        faults.append(f"{options.page} is not up to date. Next: python scripts/parity_page.py")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
