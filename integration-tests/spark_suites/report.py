"""Prints how far a run is, its results and its verdict."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from suite_process import ENDED, FAILED, FLAKY_RUNS, IGNORED, PASSED, SuiteResult
from verdict import read_left_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from suite_list import Suite
    from verdict import Verdict

GUESSED_SECONDS = 60.0
"""For a suite that has not been recorded; about the mean of those that have."""


class Progress:
    """Prints one line per ended suite, with the time that is left.

    The estimate takes each suite's recorded seconds, scaled by how long this run's suites took
    compared with their records. Thread-safe.
    """

    def __init__(
        self, planned: Iterable[tuple[str, str]], recorded: Mapping[str, float], parallel: int
    ) -> None:
        """Plan (provider label, suite name) pairs; ``recorded`` has seconds by suite."""
        self._recorded = recorded
        self._parallel = parallel
        self._left = list(planned)
        self._count = len(self._left)
        self._planned_s = 0.0
        self._actual_s = 0.0
        self._lock = threading.Lock()

    def ended(self, result: SuiteResult, *, is_kept: bool = False) -> None:
        """Print the line of a suite; ``is_kept``: its result is of an earlier run."""
        with self._lock:
            self._left.remove((result.provider, result.suite))
            if not is_kept:
                self._planned_s += self._seconds_of(result.suite)
                self._actual_s += result.seconds
            number = self._count - len(self._left)
            kept = "  (kept)" if is_kept else ""
            left = f"  [{number}/{self._count}, {self.left()} left]"
            print(f"{progress_line(result)}{kept}{left}", flush=True)

    def left(self) -> str:
        """Return the estimated time of the suites that have not ended, as text."""
        scale = self._actual_s / self._planned_s if self._planned_s else 1.0
        seconds = sum(self._seconds_of(suite) for _, suite in self._left) * scale
        return f"{seconds / self._parallel / 60:.0f} min"

    def _seconds_of(self, suite: str) -> float:
        return self._recorded.get(suite, GUESSED_SECONDS)


def progress_line(result: SuiteResult) -> str:
    """Return one line: suite, counts, seconds; for an unfinished suite what it had done."""
    counts = f"{len(result.names(PASSED))} passed, {len(result.names(FAILED))} failed"
    line = f"{result.provider:8} {result.suite}: {counts}, {result.seconds:.0f} s"
    return line if result.end == ENDED else f"{line}  {unfinished(result)}"


def unfinished(result: SuiteResult) -> str:
    """Return how a suite ended that did not run all its tests."""
    last = list(result.outcomes)[-1:]
    done = f"{result.end.upper()} after {len(result.outcomes)} of {result.expected_count} tests"
    return f"{done}; the last was: {last[0]}" if last else done


def print_table(suites: list[Suite], results: list[SuiteResult]) -> None:
    """Print one row per suite and provider."""
    row = "{:62} {:8} {:>6} {:>6} {:>7} {:>8}  {}"
    heads = ("suite", "provider", "passed", "failed", "ignored", "seconds", "stores opened")
    print("\n" + row.format(*heads))
    for suite in suites:
        for result in (result for result in results if result.suite == suite.name):
            opened = ", ".join(
                f"{count} {name.rpartition('.')[2]}"
                for name, count in sorted(result.opened.items())
            )
            counts = [len(result.names(outcome)) for outcome in (PASSED, FAILED, IGNORED)]
            note = "" if result.is_ended else f"  {unfinished(result)}"
            seconds = f"{result.seconds:.0f}"
            print(row.format(suite.name, result.provider, *counts, seconds, opened + note))


def print_verdict(results: list[SuiteResult], verdict: Verdict, unlisted: list[str]) -> int:
    """Print the differences and return the exit code."""
    for result in results:
        if result.provider == "control":
            for test in result.names(FAILED):
                print(f"the control itself fails: {result.suite}: {test}")
        for test, runs in result.runs.items():
            passed = runs.count(PASSED)
            print(f"flaky: {result.provider} passes {passed} of {FLAKY_RUNS}: {test}")
    for left_out in read_left_out():
        for suite in sorted({result.suite for result in results if left_out.is_of(result.suite)}):
            print(f"left out: {suite}: {'; '.join(left_out.starts)}: {left_out.reason}")
    for title, lines in (
        ("The control passes, this provider does not, and the test is not listed", verdict.broken),
        ("Wrongly listed in expected.toml", verdict.healed),
        ("Did not run on the provider under test", verdict.elsewhere),
        ("Suites of Spark that suites.toml neither lists nor excludes", unlisted),
    ):
        if lines:
            print(f"\n{title} ({len(lines)}):")
            print("\n".join(f"  {line}" for line in lines))
    is_judged = any(result.provider == "cairn" for result in results)
    # Some suites abort under the control too: the verdict has compared what they did.
    is_pass = verdict.is_pass and not unlisted
    print("\n" + (("PASS" if is_pass else "FAIL") if is_judged else "control only: no verdict"))
    return 0 if is_pass else 1
