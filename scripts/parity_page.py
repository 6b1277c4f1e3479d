"""Writes docs/parity.md: what works under Spark's two providers and under Cairn, and what shows it.

Usage: parity_page.py            writes the page
       parity_page.py --check    fails if the page is not up to date or names a test that is absent
       --features FILE, --page FILE    another declaration, another page

The features are declared in integration-tests/parity/features.toml. The outcomes are in
results.json beside it, which integration-tests/parity/record.py writes from runs; those of Spark's
own suites are in integration-tests/spark_suites: control.toml and cairn.toml. What has no recorded
outcome is "not run".
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
from verdict import read_cairn, read_control, read_expected, recorded_suites

FEATURES = TESTS / "parity" / "features.toml"
RESULTS = TESTS / "parity" / "results.json"
PAGE = ROOT / "docs" / "parity.md"
OPERATORS = "integration-tests/parity/test_operators.py"
PROVIDERS = ("hdfs", "rocksdb", "cairn")
JAVA_TESTS = "jvm-shim/src/test/java/"
OF_SUITES = "spark-suites/"
NOT_RUN = "not run"
YES = "yes"
# One of the tests of test_operators.py: a case is named if this test has it.
FIRST_TEST = "test_the_sink_has_the_same_rows_in_every_batch"

INTRODUCTION = """\
# Parity with Spark's providers

<!-- Written by scripts/parity_page.py from integration-tests/parity. Do not edit. -->

What works under Spark's HDFS-backed provider, under Spark's RocksDB provider (with changelogs) and
under Cairn, on Spark {spark}. A cell is the outcome of a recorded run ({dates}), or says
that there is none. For a feature that Spark closes to other providers, the cell gives the reason.
results.json has the date of each outcome and, of newer ones, the commit.

- **yes**: a query over three micro-batches, with a restart after the second, gave the same rows as
  Spark's RocksDB provider in checkpoint format 1 (or as the HDFS-backed one, where that fails). So
  did the read that the row names.
- **no**: it failed with this error condition, or differed in this.
- **not run**: nothing is recorded.

In a row without such a query **yes** says that the named tests passed; under Spark RocksDB, that
they ran its provider, too.

The last column names what shows it under Cairn: tests of `make test`, of `make test-all` those that
take long, of the shim, and of Spark's own suites. If one of them has failed, the cell says so. The
tests of an operator compare the sink's rows of every batch, the progress, the state and its changes
with Spark's provider. New outcomes: `integration-tests/parity/record.py`, then
`scripts/parity_page.py`.
"""

SUITES = """
## Spark's own test suites

`make spark-suites` runs them under Cairn. It fails if Cairn does not pass what Spark's RocksDB
provider passes, except for the tests in
[expected.toml](../integration-tests/spark_suites/expected.toml), each with its reason. What Spark's
RocksDB provider passes is recorded in
[control.toml](../integration-tests/spark_suites/control.toml). The test classes are of Spark
{suites_of_spark}, so some fail under Spark's own provider: these say nothing about Cairn.
HDFS-backed: not run.
{run_of_cairn}

| suite | Spark RocksDB: passed | failed | Cairn: passed | failed | of these, in expected.toml |
|---|---:|---:|---:|---:|---:|
"""


class Suites:
    """The recorded outcomes of Spark's own suites."""

    def __init__(self) -> None:
        self.controls = read_control()
        self._expected = read_expected(self.controls)
        self._cairn = read_cairn()

    def of_control(self, name: str) -> str:
        """Return the outcome of `spark-suites/SUITE::TEST` under Spark's RocksDB provider."""
        suite, _, test = name.removeprefix(OF_SUITES).partition("::")
        control = self.controls.get(suite)
        return control.outcomes.get(test, NOT_RUN) if control else NOT_RUN

    def of_cairn(self, name: str) -> str:
        """Return the same under Cairn: a recorded run passed all that is not in expected.toml."""
        suite, _, test = name.removeprefix(OF_SUITES).partition("::")
        if suite not in self._cairn["suites"]:
            return NOT_RUN
        return FAILED if (suite, test) in self._expected else self.of_control(name)

    def render(self) -> str:
        """Return the section of the page."""
        run = self._cairn
        run_of_cairn = (
            f"Cairn's numbers are of the run of {run['date']}, commit {run['commit']}, in\n"
            "[cairn.toml](../integration-tests/spark_suites/cairn.toml)."
            if run["suites"]
            else "No run of Cairn is recorded."
        )
        head = SUITES.format(suites_of_spark=recorded_suites(), run_of_cairn=run_of_cairn)
        return "".join([head, *map(self._row, sorted(self.controls))])

    def _row(self, suite: str) -> str:
        outcomes = list(self.controls[suite].outcomes.values())
        cairn = self._cairn["suites"].get(suite, {PASSED: NOT_RUN, FAILED: NOT_RUN})
        counts = [outcomes.count(PASSED), outcomes.count(FAILED), cairn[PASSED], cairn[FAILED]]
        listed = sum(name == suite for name, _ in self._expected)
        return f"| {' | '.join(map(str, [suite, *counts, listed]))} |\n"


class Results:
    """The recorded outcomes of runs and tests."""

    def __init__(self, recorded: dict[str, Any], suites: Suites) -> None:
        self.spark: str = recorded["spark"]
        self._runs: dict[str, dict[str, str]] = recorded["runs"]
        self._tests: dict[str, str] = recorded["tests"]
        self._suites = suites

    @property
    def dates(self) -> str:
        """The day of the runs, or the first and the last one."""
        days = sorted({run["at"].split()[0] for run in self._runs.values()})
        return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else NOT_RUN

    def cells(self, feature: dict[str, Any]) -> list[str]:
        """Return the outcome under each provider."""
        if "closed" in feature:
            sparks = [feature.get(provider, NOT_RUN) for provider in PROVIDERS[:2]]
            return [*sparks, f"no: {feature['closed']}"]
        if "operator" not in feature:
            return [NOT_RUN, self._of_rocksdb(feature), self._with_tests(NOT_RUN, feature)]
        runs = self._runs.get(f"{feature['area']}: {feature['name']}", {})
        *sparks, cairn = (runs.get(provider, NOT_RUN) for provider in PROVIDERS)
        return [*sparks, self._with_tests(cairn, feature)]

    def _of_rocksdb(self, feature: dict[str, Any]) -> str:
        """Return what the tests say of Spark's RocksDB provider, if they ran it."""
        names = named_tests(feature)
        states = {self._suites.of_control(name) for name in names if name.startswith(OF_SUITES)}
        if feature.get("compares"):
            states |= {self._state(name) for name in names if not name.startswith(OF_SUITES)}
        return YES if states == {"passed"} else NOT_RUN

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
        if name.startswith(OF_SUITES):
            return self._suites.of_cairn(name)
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
    suites = Suites()
    results = Results(json.loads(RESULTS.read_text("utf-8")), suites)
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
    return "".join([*parts, suites.render()])


def _row(feature: dict[str, Any], results: Results) -> str:
    shown = ", ".join(_link(name) for name in named_tests(feature))
    if not shown:
        shown = "" if "closed" in feature else "the recorded run alone"
    return f"| {' | '.join([feature['name'], *results.cells(feature), shown])} |\n"


def _link(name: str) -> str:
    path, _, test = name.partition("::")
    if name.startswith(OF_SUITES):
        suite = path.removeprefix(OF_SUITES)
        return f"[{suite}](#sparks-own-test-suites): `{test}`"
    file, _, case = path.partition("[")
    text = test or case.removesuffix("]") or Path(file).name
    return f"[`{text}`](../{file})"


def absent_tests(features: list[dict[str, Any]]) -> list[str]:
    """Return the named tests that pytest does not find; print the operators in no feature."""
    named = {name for feature in features for name in named_tests(feature)}
    faults = _absent_of_java_and_suites(named)
    names = {name for name in named if not name.startswith((OF_SUITES, JAVA_TESTS))}
    files = sorted({name.partition("::")[0].partition("[")[0] for name in names} | {OPERATORS})
    missing = [f"{file} is absent" for file in files if not (ROOT / file).is_file()]
    if missing:
        return faults + missing
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
    faults += [
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


def _absent_of_java_and_suites(names: set[str]) -> list[str]:
    """Return the tests of Java and of Spark's suites that do not exist."""
    suites = Suites()
    absent = []
    for name in sorted(names):
        path, _, test = name.partition("::")
        if name.startswith(OF_SUITES):
            is_there = suites.of_control(name) != NOT_RUN
        elif name.startswith(JAVA_TESTS):
            file = ROOT / path
            is_there = file.is_file() and f" {test}(" in file.read_text("utf-8")
        else:
            continue
        if not is_there:
            absent.append(f"a feature names {name}, and there is no such test")
    return absent


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
