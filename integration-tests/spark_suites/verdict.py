"""Compares a provider's results with the control's: it must pass what the control passes.

`control.toml` has the control's outcome of every test, `expected.toml` the exact list of allowed
differences. `cairn.toml` has the counts of the last whole run of Cairn that was recorded.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite_kit import HERE
from suite_process import FAILED, IGNORED, PASSED, ROCKSDB_PROVIDER, SuiteResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONTROL_FILE = HERE / "control.toml"
EXPECTED_FILE = HERE / "expected.toml"
CAIRN_FILE = HERE / "cairn.toml"
FILE_MANAGERS = {
    "local": "io.cairn.spark.CairnCheckpointFileManager",
    "s3": "io.cairn.spark.metadata.S3CheckpointFiles",
}
"""What a suite of the checkpoint file manager must use, by the place of its files."""


@dataclass(frozen=True)
class Control:
    """The control's results of one suite; ``opened_count`` counts stores of its own provider.

    A suite may also use Spark's HDFS-backed provider, by name or through old checkpoints; such
    stores do not count in either run.
    """

    suite: str
    opened_count: int
    seconds: float
    outcomes: dict[str, str]

    @classmethod
    def of(cls, result: SuiteResult) -> Control:
        """Return the control of a result."""
        opened_count = result.opened.get(ROCKSDB_PROVIDER, 0)
        return cls(result.suite, opened_count, result.seconds, result.outcomes)


@dataclass
class Verdict:
    """The differences, one line each; a verdict without differences is a pass."""

    broken: list[str] = field(default_factory=list)
    healed: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    @property
    def is_pass(self) -> bool:
        """Whether there is no difference beyond those that are listed."""
        return not (self.broken or self.healed or self.elsewhere)


def read_control(file: Path = CONTROL_FILE) -> dict[str, Control]:
    """Return the committed outcomes of the control, by suite."""
    if not file.exists():
        return {}
    content = tomllib.loads(file.read_text())
    return {name: _control_of(name, suite) for name, suite in content["suites"].items()}


def recorded_spark(file: Path = CONTROL_FILE) -> str:
    """Return the version of Spark whose provider's outcomes are committed; empty: none."""
    return tomllib.loads(file.read_text())["spark"] if file.exists() else ""


def recorded_suites(file: Path = CONTROL_FILE) -> str:
    """Return the version of Spark whose suites the committed outcomes are of; empty: none."""
    return tomllib.loads(file.read_text())["suites_of_spark"] if file.exists() else ""


def _control_of(name: str, suite: dict[str, Any]) -> Control:
    outcomes = {
        test: outcome for outcome in (PASSED, FAILED, IGNORED) for test in suite.get(outcome, [])
    }
    return Control(name, suite["opened"], suite["seconds"], outcomes)


def write_control(
    controls: Iterable[Control], versions: dict[str, str], file: Path = CONTROL_FILE
) -> None:
    """Write the control's outcomes; those of suites that were not run stay in the file."""
    merged = read_control(file) | {control.suite: control for control in controls}
    lines = [
        "# Written by run.py --record-control: each test's outcome under Spark's RocksDB provider.",
        *(f"{key} = {json.dumps(value)}" for key, value in versions.items()),
    ]
    for name in sorted(merged):
        control = merged[name]
        lines += [
            "",
            f"[suites.{name}]",
            f"opened = {control.opened_count}",
            f"seconds = {control.seconds}",
        ]
        for outcome in (PASSED, FAILED, IGNORED):
            tests = sorted(test for test, value in control.outcomes.items() if value == outcome)
            lines.append(f"{outcome} = [" + ("" if tests else "]"))
            lines += [f"    {json.dumps(test, ensure_ascii=False)}," for test in tests]
            lines += ["]"] if tests else []
    file.write_text("\n".join(lines) + "\n")


def write_cairn(
    results: Iterable[SuiteResult], of_run: dict[str, str], file: Path = CAIRN_FILE
) -> None:
    """Write the counts of a whole run under Cairn; ``of_run``: its date, commit and Spark."""
    lines = [
        "# Written by run.py --record-cairn: the counts of a whole run under Cairn that passed.",
        *(f"{key} = {json.dumps(value)}" for key, value in of_run.items()),
        "",
        "[suites]",
    ]
    for result in sorted(results, key=lambda result: result.suite):
        counts = [f"{one} = {len(result.names(one))}" for one in (PASSED, FAILED)]
        lines.append(f"{result.suite} = {{ {', '.join(counts)} }}")
    file.write_text("\n".join(lines) + "\n")


def read_cairn(file: Path = CAIRN_FILE) -> dict[str, Any]:
    """Return what `write_cairn` wrote; a run of no suite if nothing is recorded."""
    return tomllib.loads(file.read_text()) if file.exists() else {"suites": {}}


def read_expected(
    controls: Mapping[str, Control], file: Path = EXPECTED_FILE, *, is_whole: bool = True
) -> dict[tuple[str, str], str]:
    """Return the reasons of the allowed differences by suite and test.

    An entry has one ``test``, or ``tests``: a pattern, in which ``*`` stands for any text. Each
    test with such a name that the control passes must then run and fail. ``suite`` may be a
    pattern, too.

    Args:
        controls: the control's outcomes.
        file: has the entries.
        is_whole: whether ``controls`` have all tests that the entries name. Entries without such a
            test are left out otherwise.

    Raises:
        SystemExit: an entry has no suite, test or reason, names no test, or one occurs twice.
    """
    expected: dict[tuple[str, str], str] = {}
    for entry in tomllib.loads(file.read_text()).get("exception", []):
        test = "test" if "test" in entry else "tests"
        if set(entry) != {"suite", test, "reason"} or not all(entry.values()):
            message = f"{file.name}: an exception needs suite, test or tests, and reason: {entry}"
            raise SystemExit(message)
        suites = [name for name in controls if _matches(entry["suite"], name)]
        named = [
            (suite, name)
            for suite in suites or [entry["suite"]]
            for name in _tests_of(entry, controls.get(suite))
        ]
        if not is_whole:
            named = [(suite, name) for suite, name in named if _has(controls.get(suite), name)]
        elif {suite for suite, _ in named} != set(suites or [entry["suite"]]):
            message = f"{file.name}: the control passes no test with such a name: {entry}"
            raise SystemExit(message)
        for suite, name in named:
            if (suite, name) in expected:
                message = f"{file.name}: listed twice: {suite}: {name}"
                raise SystemExit(message)
            expected[suite, name] = entry["reason"]
    return expected


@dataclass(frozen=True)
class LeftOut:
    """Tests that run under neither provider: pattern of suites, how their names start, and why."""

    suite: str
    starts: list[str]
    reason: str

    def is_of(self, suite: str) -> bool:
        """Return whether a suite has them."""
        return _matches(self.suite, suite)


def read_left_out(file: Path = EXPECTED_FILE) -> list[LeftOut]:
    """Return the tests that are left out.

    Raises:
        TypeError: an entry lacks a field, or has an unknown one.
    """
    return [LeftOut(**entry) for entry in tomllib.loads(file.read_text()).get("left_out", [])]


def _has(control: Control | None, test: str) -> bool:
    return control is not None and test in control.outcomes


def _tests_of(entry: Mapping[str, str], control: Control | None) -> list[str]:
    if "test" in entry:
        return [entry["test"]]
    outcomes = control.outcomes if control else {}
    return [
        test
        for test, outcome in outcomes.items()
        if outcome == PASSED and _matches(entry["tests"], test)
    ]


def _matches(pattern: str, name: str) -> bool:
    """Unlike fnmatch, without a meaning of brackets, which names of tests have."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def judge(
    results: Iterable[SuiteResult],
    controls: dict[str, Control],
    expected: dict[tuple[str, str], str],
    provider_class: str,
) -> Verdict:
    """Compare ``results`` with ``controls``; differences in ``expected`` are allowed."""
    verdict = Verdict()
    for result in results:
        control = controls.get(result.suite)
        if control is None:
            verdict.broken.append(f"{result.suite}: the control has no result to compare with")
            continue
        if not result.is_ended:
            verdict.broken.append(f"{result.suite}: {result.end}")
        _judge_tests(result, control, expected, verdict)
        manager = FILE_MANAGERS.get(result.files)
        if manager and not result.managed.get(manager):
            verdict.elsewhere.append(f"{result.suite}: this run did not use {manager}")
        if control.opened_count and not result.opened.get(provider_class):
            verdict.elsewhere.append(
                f"{result.suite}: the control opened {control.opened_count} stores,"
                f" this run none of {provider_class}, but {result.opened or 'nothing'}"
            )
        sparks = result.opened.get(ROCKSDB_PROVIDER, 0)
        if sparks and provider_class != ROCKSDB_PROVIDER:
            verdict.elsewhere.append(
                f"{result.suite}: {sparks} stores of this run were of {ROCKSDB_PROVIDER}"
            )
    return verdict


def _judge_tests(
    result: SuiteResult, control: Control, expected: dict[tuple[str, str], str], verdict: Verdict
) -> None:
    for test, outcome in sorted(control.outcomes.items()):
        if result.name_filter not in test:
            continue
        is_listed = (result.suite, test) in expected
        if outcome != PASSED:
            if is_listed:
                verdict.healed.append(
                    f"{result.suite}: {test}: listed, but the control does not pass it either"
                )
            continue
        actual = result.outcomes.get(test, "not run")
        if actual == PASSED and is_listed:
            verdict.healed.append(f"{result.suite}: {test}: listed as failing, and passes now")
        elif actual != PASSED and not (is_listed and actual == FAILED):
            message = result.messages.get(test, "").splitlines()
            verdict.broken.append(
                f"{result.suite}: {test}: {actual}" + (f": {message[0][:300]}" if message else "")
            )
    verdict.broken += [
        f"{result.suite}: {test}: the control did not run this test"
        for test in sorted(set(result.outcomes) - set(control.outcomes))
    ]
    for suite, test in sorted(expected):
        if suite == result.suite and test not in control.outcomes:
            verdict.healed.append(f"{suite}: {test}: listed, but there is no such test")
