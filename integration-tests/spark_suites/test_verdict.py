"""The verdict finds differences between provider and control, and checks the allowed ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from suite_kit import HERE
from suite_process import (
    ABORTED,
    ENDED,
    FAILED,
    IGNORED,
    PASSED,
    ROCKSDB_PROVIDER,
    STOPPED,
    SuiteResult,
    outcomes_of_lines,
)
from verdict import (
    Control,
    Verdict,
    judge,
    read_cairn,
    read_control,
    read_expected,
    read_left_out,
    write_cairn,
    write_control,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.tools

PROVIDER = "io.example.Provider"
CONTROL = {"Suite": Control("Suite", 3, 1.0, {"sums": PASSED, "counts": PASSED, "odd": FAILED})}


def _judged(
    outcomes: dict[str, str],
    *,
    opened: dict[str, int] | None = None,
    expected: dict[tuple[str, str], str] | None = None,
    name_filter: str = "",
) -> Verdict:
    result = SuiteResult(
        suite="Suite",
        provider="cairn",
        seconds=1.0,
        end=ENDED,
        name_filter=name_filter,
        outcomes=outcomes,
        opened={PROVIDER: 3} if opened is None else opened,
    )
    return judge([result], CONTROL, expected or {}, PROVIDER)


def test_the_same_outcomes_pass() -> None:
    """The provider need not pass tests that the control fails."""
    assert _judged({"sums": PASSED, "counts": PASSED, "odd": FAILED}).is_pass


def test_a_failing_test_is_named() -> None:
    """The report of a long run must name the tests, not count them."""
    verdict = _judged({"sums": FAILED, "counts": PASSED})

    assert len(verdict.broken) == 1
    assert "sums" in verdict.broken[0]


def test_a_test_that_did_not_run_is_broken() -> None:
    """A suite that crashes must not look like one that passed."""
    assert not _judged({"sums": PASSED}).is_pass


def test_an_ignored_test_is_broken() -> None:
    """A provider must not pass by ignoring a test."""
    assert not _judged({"sums": PASSED, "counts": IGNORED}).is_pass


def test_a_listed_failure_passes() -> None:
    """A listed exception with its reason is an allowed difference."""
    expected = {("Suite", "sums"): "why"}

    assert _judged({"sums": FAILED, "counts": PASSED}, expected=expected).is_pass


@pytest.mark.parametrize("outcomes", [{}, {"sums": IGNORED}])
def test_a_listed_test_that_does_not_run_is_broken(outcomes: dict[str, str]) -> None:
    """Its failure is expected: without it nothing is known of the test."""
    expected = {("Suite", "sums"): "why"}

    assert _judged({"counts": PASSED, **outcomes}, expected=expected).broken


def test_a_listed_test_that_passes_now_fails_the_run() -> None:
    """An outdated exception would hide the next fault."""
    expected = {("Suite", "sums"): "why"}

    assert _judged({"sums": PASSED, "counts": PASSED}, expected=expected).healed


def test_a_listed_test_that_the_control_fails_or_lacks_fails_the_run() -> None:
    """An exception without a difference is a mistake in the list."""
    expected = {("Suite", "odd"): "why", ("Suite", "no such test"): "why"}

    verdict = _judged({"sums": PASSED, "counts": PASSED}, expected=expected)

    assert len(verdict.healed) == 2


def test_a_run_on_another_provider_fails() -> None:
    """Suites that use Spark's provider pass without Cairn: such a pass proves nothing."""
    outcomes = {"sums": PASSED, "counts": PASSED}

    assert _judged(outcomes, opened={"org.example.Other": 9}).elsewhere


def test_a_run_that_opened_some_stores_of_sparks_provider_fails() -> None:
    """A test that makes Spark's provider itself passes without Cairn, whatever the others do."""
    outcomes = {"sums": PASSED, "counts": PASSED}

    verdict = _judged(outcomes, opened={PROVIDER: 3, ROCKSDB_PROVIDER: 2})

    assert verdict.elsewhere == [f"Suite: 2 stores of this run were of {ROCKSDB_PROVIDER}"]


@pytest.mark.parametrize(("place", "used"), [("s3", "CairnCheckpointFileManager"), ("local", "")])
def test_a_run_on_another_file_manager_fails(place: str, used: str) -> None:
    """On S3 the manager may pass all calls on to Spark's: such a pass proves nothing either."""
    result = SuiteResult(
        suite="Files",
        provider="cairn",
        seconds=1.0,
        end=ENDED,
        outcomes={"sums": PASSED},
        managed={f"io.cairn.spark.{used}": 1} if used else {},
        files=place,
    )
    control = {"Files": Control("Files", 0, 1.0, {"sums": PASSED})}

    assert judge([result], control, {}, PROVIDER).elsewhere


@pytest.mark.parametrize("end", [STOPPED, ABORTED])
def test_an_unfinished_suite_is_broken(end: str) -> None:
    """Tests after the time limit, or after a class that does not link, did not run."""
    result = SuiteResult("Suite", "cairn", 1.0, end, outcomes=dict(CONTROL["Suite"].outcomes))
    result.opened = {PROVIDER: 3}

    assert judge([result], CONTROL, {}, PROVIDER).broken == [f"Suite: {end}"]


def test_a_test_that_the_control_did_not_run_is_broken() -> None:
    """Its outcome cannot be compared: control.toml is older than the test classes."""
    assert _judged({"sums": PASSED, "counts": PASSED, "new": PASSED}).broken


def test_a_quick_run_must_pass_its_own_tests() -> None:
    """The filter excludes tests; the others must pass."""
    assert _judged({"sums": PASSED}, name_filter="sum").is_pass
    assert not _judged({"sums": FAILED}, name_filter="sum").is_pass


def test_outcomes_are_read_from_printed_lines() -> None:
    """A stopped suite leaves no XML, but printed lines."""
    text = "Suite:\n- sums (x = 1)\n- counts *** FAILED ***\n  why\n- odd !!! IGNORED !!!"

    outcomes, messages = outcomes_of_lines(text)

    assert outcomes == {"sums (x = 1)": PASSED, "counts": FAILED, "odd": IGNORED}
    assert messages == {"counts": "why"}


def test_the_controls_file_reads_as_written(tmp_path: Path) -> None:
    """Names of Spark's tests have quotes and backslashes."""
    file = tmp_path / "control.toml"
    control = Control("Suite", 2, 1.5, {'a "b" \\ c': PASSED, "odd": FAILED})

    write_control([control], {"spark": "4.3.0"}, file)

    assert read_control(file) == {"Suite": control}


def test_a_recorded_run_of_cairn_has_its_counts_date_and_commit(tmp_path: Path) -> None:
    """docs/parity.md shows what ran, not what was expected."""
    file = tmp_path / "cairn.toml"
    outcomes = {"sums": PASSED, "counts": PASSED, "odd": FAILED, "later": IGNORED}
    result = SuiteResult("Suite", "cairn", 1.0, ENDED, outcomes=outcomes)

    write_cairn([result], {"date": "2026-11-23", "commit": "0123abc"}, file)

    recorded = {"Suite": {"passed": 2, "failed": 1}}
    assert read_cairn(file) == {"date": "2026-11-23", "commit": "0123abc", "suites": recorded}
    assert read_cairn(tmp_path / "absent.toml") == {"suites": {}}


def test_the_committed_exceptions_name_suites_of_the_control() -> None:
    """An outdated exception in a suite that does not run would never be found."""
    controls = read_control()

    assert {suite for suite, _ in read_expected(controls)} <= set(controls)


def test_the_tests_that_do_not_run_are_listed_with_their_reason() -> None:
    """A test that is skipped in code alone would count as one that does not exist."""
    code = (HERE / "suites" / "StoreTests.java").read_text()
    in_code = re.findall(r'"([^"]+)"', code.partition("OF_THE_LOCK")[2].partition(";")[0])

    (left_out,) = read_left_out()

    assert left_out.starts == in_code
    assert left_out.is_of("StoreSuiteWithRowChecksum")
    assert not left_out.is_of("TimerSuite")
    assert left_out.reason


def _expected(tmp_path: Path, *entries: str) -> dict[tuple[str, str], str]:
    file = tmp_path / "expected.toml"
    file.write_text("\n".join(f'[[exception]]\nsuite = "Suite"\n{entry}' for entry in entries))
    return read_expected(CONTROL, file)


def test_an_exception_may_be_a_pattern(tmp_path: Path) -> None:
    """Spark repeats one test for each codec and encoding; the control's failures do not count."""
    assert _expected(tmp_path, 'tests = "s*s"\nreason = "why"') == {("Suite", "sums"): "why"}


def test_an_exception_may_be_one_of_several_suites(tmp_path: Path) -> None:
    """Spark repeats whole suites with a setting, e.g. with row checksums."""
    file = tmp_path / "expected.toml"
    file.write_text('[[exception]]\nsuite = "Suite*"\ntests = "sums"\nreason = "why"')
    control = CONTROL["Suite"]
    controls = dict.fromkeys(("Suite", "SuiteWithRowChecksum", "Other"), control)

    assert read_expected(controls, file) == {
        ("Suite", "sums"): "why",
        ("SuiteWithRowChecksum", "sums"): "why",
    }


@pytest.mark.parametrize(
    "entries",
    [
        ['test = "sums"'],
        ['test = "sums"\nreason = ""'],
        ['tests = "no such*"\nreason = "why"'],
        ['tests = "odd"\nreason = "why"'],
        ['test = "sums"\nreason = "why"', 'tests = "sum*"\nreason = "why"'],
    ],
)
def test_a_wrong_exception_is_refused(tmp_path: Path, entries: list[str]) -> None:
    """An exception without a reason, or for no test, would hide a fault."""
    with pytest.raises(SystemExit, match=r"expected\.toml"):
        _expected(tmp_path, *entries)
