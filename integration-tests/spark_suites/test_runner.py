"""The runner keeps results, repeats flaky tests, says how far it is, and misses no suite."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import run
import suite_list
import suite_process
from report import Progress, unfinished
from suite_kit import HERE, Kit
from suite_list import Excluded, Suite, read_excluded, read_suites, read_waiting, unlisted
from suite_process import ABORTED, ENDED, FAILED, PASSED, STOPPED, Provider, SuiteResult
from verdict import read_control

from harness.processes import Process, command_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.tools

SUITE = Suite("SumSuite", "org.example.SumSuite", 60)
CONTROL = Provider("control", "org.example.Provider")


RUNNER = """
import signal, subprocess, sys, threading
sys.path.insert(0, sys.argv[1])
from harness.processes import end_with_descendants
end_with_descendants(signal.SIGTERM)
jvm = subprocess.Popen(["sleep", "600"], start_new_session=True)
threading.Thread(target=jvm.wait).start()
print(jvm.pid, flush=True)
"""


class Runs:
    """Replaces the JVM: counts the runs and gives the outcomes of the next one."""

    def __init__(self, *outcomes: dict[str, str], end: str = ENDED) -> None:
        self.outcomes = list(outcomes)
        self.end = end
        self.tests: list[Sequence[str]] = []

    def __call__(
        self, _kit: Kit, suite: Suite, provider: Provider, folder: Path, tests: Sequence[str] = ()
    ) -> SuiteResult:
        folder.mkdir(parents=True, exist_ok=True)
        self.tests.append(tests)
        outcomes = self.outcomes.pop(0)
        return SuiteResult(suite.name, provider.label, 1.0, self.end, outcomes=outcomes)


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    monkeypatch.setattr(run, "BUILD", tmp_path / "build")
    return Kit(*[tmp_path] * 6)


def _run(kit: Kit, monkeypatch: pytest.MonkeyPatch, runs: Runs, *arguments: str) -> SuiteResult:
    monkeypatch.setattr(suite_process, "run_once", runs)
    options = run.command_line().parse_args(arguments)
    return run.run_all(kit, [(CONTROL, SUITE)], options)[0]


def test_a_run_goes_on_where_it_stopped(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of all suites takes more than an hour: an ended one must not begin anew."""
    runs = Runs({"sums": PASSED}, {"sums": FAILED})

    first = _run(kit, monkeypatch, runs)

    assert _run(kit, monkeypatch, runs) == first
    assert len(runs.tests) == 1
    assert _run(kit, monkeypatch, runs, "--anew").outcomes == {"sums": FAILED}


def test_a_result_of_a_source_that_changed_meanwhile_is_not_kept(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers import the source as it is at that moment."""
    runs = Runs({"sums": PASSED}, {"sums": PASSED})
    keys = iter(["before", "after", "after", "after"])
    monkeypatch.setattr(run, "key_of", lambda *_: next(keys))

    _run(kit, monkeypatch, runs)
    _run(kit, monkeypatch, runs)

    assert len(runs.tests) == 2


def test_an_older_spark_has_its_own_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite of semi joins has another name in 4.1, and other tests."""
    file = tmp_path / "suites.toml"
    file.write_text(
        'package = "org.example"\n[[suite]]\nname = "NewSuite"\nlimit_s = 60\nquick = true\n'
        'quick_filter = "part"\nolder = { "4.1" = "OldSuite" }\n'
    )
    monkeypatch.setattr(suite_list, "MINOR", "4.1")

    (suite,) = read_suites(is_quick=True, file=file)

    assert (suite.class_name, suite.name_filter) == ("org.example.OldSuite", "")


def test_a_result_of_other_classes_is_not_kept(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the code a kept result would prove nothing."""
    _run(kit, monkeypatch, Runs({"sums": PASSED}))
    monkeypatch.setattr(Kit, "digest", lambda _: "other classes")

    assert _run(kit, monkeypatch, Runs({"sums": FAILED})).outcomes == {"sums": FAILED}


@pytest.mark.parametrize("end", [STOPPED, ABORTED])
def test_an_unfinished_suite_runs_again(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Its limit may have been raised, or the machine may have been busy."""
    _run(kit, monkeypatch, Runs({"sums": PASSED}, end=end))

    assert _run(kit, monkeypatch, Runs({"sums": PASSED, "counts": PASSED})).end == ENDED


@pytest.mark.parametrize(
    ("later", "expected"), [((FAILED, PASSED), PASSED), ((FAILED, FAILED), FAILED)]
)
def test_a_flaky_test_runs_three_times(
    kit: Kit,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    later: tuple[str, str],
    expected: str,
) -> None:
    """One run that passes is enough; the other tests run once."""
    runs = Runs({"sums": PASSED, "odd": FAILED}, {"odd": later[0]}, {"odd": later[1]})
    monkeypatch.setattr(suite_process, "run_once", runs)
    suite = Suite("SumSuite", "org.example.SumSuite", 60, flaky=("odd",))

    result = suite_process.run_suite(kit, suite, CONTROL, tmp_path)

    assert runs.tests == [(), ["odd"], ["odd"]]
    assert result.outcomes == {"sums": PASSED, "odd": expected}
    assert result.runs == {"odd": [FAILED, *later]}


def test_the_estimate_follows_the_speed_of_the_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Recorded seconds are those of another machine: half the speed, twice the time."""
    progress = Progress([("cairn", "A"), ("cairn", "B")], {"A": 60.0, "B": 300.0}, parallel=1)

    assert progress.left() == "6 min"
    progress.ended(SuiteResult("A", "cairn", 120.0, ENDED))

    assert "[1/2, 10 min left]" in capsys.readouterr().out


def test_a_stopped_suite_is_reported_with_what_it_had_done() -> None:
    """The reader must see at which test it hung."""
    outcomes = {"sums": PASSED, "counts": FAILED}
    result = SuiteResult("A", "cairn", 1.0, STOPPED, expected_count=9, outcomes=outcomes)

    assert "after 2 of 9 tests; the last was: counts" in unfinished(result)


def test_a_suite_that_nobody_decided_about_is_found(tmp_path: Path) -> None:
    """A newer Spark has suites, and packages, that this list does not know."""
    package = "org.apache.spark.sql.execution.streaming"
    folder = tmp_path / package.replace(".", "/")
    elsewhere = folder.parent / "joins"
    for parent in (folder / "newer", elsewhere):
        parent.mkdir(parents=True)
    for name in ("SumSuite", "SumSuite$Part", "OldSuite", "NewSuite", "Other", "newer/NextSuite"):
        (folder / f"{name}.class").touch()
    (elsewhere / "HashJoinSuite.class").touch()
    excluded = [Excluded(package, ("Old*",), "why")]

    found = unlisted([Suite("SumSuite", f"{package}.SumSuite", 60)], excluded, tmp_path)

    assert found == [f"{package}.NewSuite", f"{package}.newer.NextSuite"]


def test_the_list_is_read(tmp_path: Path) -> None:
    """A suite alone, suites of a group, suites that wait, and flaky tests."""
    file = tmp_path / "suites.toml"
    file.write_text(
        'package = "a"\n[flaky]\nTwo = ["odd"]\n[random]\nThree = "lz4|zstd"\n'
        '[[suite]]\nname = "One"\nlimit_s = 5\nquick = true\nquick_filter = "sum"\n'
        '[[group]]\npackage = "b"\nlimit_s = 6\nsuites = ["Two"]\n'
        '[[waiting]]\npackage = "c"\nlimit_s = 7\nsuites = ["Three"]\n'
        '[[excluded]]\npackage = "c"\nsuites = ["Four"]\nreason = ""\n'
    )

    assert read_suites(file=file) == [
        Suite("One", "a.One", 5),
        Suite("Two", "b.Two", 6, flaky=("odd",)),
    ]
    assert read_suites(is_quick=True, file=file) == [Suite("One", "a.One", 5, "sum", jvm="quick")]
    assert read_waiting(file) == [Suite("Three", "c.Three", 7, random="lz4|zstd")]
    with pytest.raises(SystemExit, match="needs a reason"):
        read_excluded(file)


def test_the_committed_list_is_consistent() -> None:
    """Two entries of one name would share a folder; an exclusion must not hide a listed suite."""
    names = [suite.name for suite in (*read_suites(), *read_waiting())]

    assert len(names) == len(set(names))
    assert {suite.name for suite in read_suites()} == set(read_control())
    assert {suite.name for suite in read_suites(is_quick=True)} <= set(names)
    assert all(exclusion.reason for exclusion in read_excluded())


def test_a_suite_that_did_not_end_beside_others_runs_alone(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One suite that ends its JVM must not cost the results of the others."""
    suites = [Suite(name, f"org.example.{name}", 60, jvm="units") for name in "ABC"]
    together: list[list[str]] = []
    alone = Runs({"sums": PASSED})

    def run_together(
        _kit: Kit, suites: Sequence[Suite], provider: Provider, _folder: Path
    ) -> list[SuiteResult]:
        together.append([suite.name for suite in suites])
        return [
            SuiteResult(suite.name, provider.label, 1.0, ENDED, outcomes={"sums": PASSED})
            for suite in suites
            if suite.name != "B"
        ]

    monkeypatch.setattr(run, "run_together", run_together)
    monkeypatch.setattr(suite_process, "run_once", alone)
    options = run.command_line().parse_args([])
    planned = [(CONTROL, suite) for suite in suites]

    results = run.run_all(kit, planned, options)

    assert together == [["A", "B", "C"]]
    assert alone.tests == [()]
    assert sorted(result.suite for result in results) == ["A", "B", "C"]
    assert run.run_all(kit, planned, options) == [
        result for name in "ABC" for result in results if result.suite == name
    ]


def test_suites_of_one_jvm_keep_their_own_filters(kit: Kit, tmp_path: Path) -> None:
    """A filter for all suites would run no test of the others, and that looks like a pass."""
    suites = [Suite("A", "a.A", 60, "sum"), Suite("B", "a.B", 60), Suite("C", "a.C", 60, "join")]

    command = suite_process.java_command(kit, suites, CONTROL, tmp_path)

    start = command.index("-s")
    assert command[start:] == ["-s", "a.A", "-z", "sum", "-s", "a.B", "-s", "a.C", "-z", "join"]


def test_quick_suites_with_files_at_one_place_share_a_jvm() -> None:
    """A JVM for each takes a minute more; the place of the files is a property of the JVM."""
    quick = read_suites(is_quick=True)

    assert len({suite.jvm for suite in quick}) == len({suite.files for suite in quick}) < len(quick)


def test_stores_are_counted_for_the_suite_that_opened_them(tmp_path: Path) -> None:
    """In a shared JVM a suite that used no store of the provider must not look like one."""
    report = tmp_path / "providers.txt"
    report.write_text("a.A opened p.P 2\na.B opened p.P 3\na.B created p.P 9\nnone opened p.P 1\n")

    assert suite_process.counted("opened", report, "a.B") == {"p.P": 3}
    assert suite_process.counted("opened", report) == {"p.P": 6}
    assert suite_process.counted("opened", report, "a.C") == {}


def test_two_runs_do_not_share_a_folder(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second run would delete the files of the first, which would then look like a crash."""
    monkeypatch.setattr(suite_process, "run_once", Runs({"sums": PASSED}))
    folder = tmp_path / "SumSuite"

    with (
        suite_process.alone_in(folder),
        pytest.raises(SystemExit, match=f"another run uses {folder}"),
    ):
        suite_process.run_suite(kit, SUITE, CONTROL, folder)

    assert suite_process.run_suite(kit, SUITE, CONTROL, folder).outcomes == {"sums": PASSED}


def test_random_parts_of_names_are_left_out() -> None:
    """Spark draws a codec for a test's name: without the draw the tests are one, the worst."""
    result = SuiteResult("A", "cairn", 1.0, ENDED)
    result.outcomes = {"sums (lz4)": PASSED, "sums (zstd)": FAILED, "odd (x)": PASSED}
    result.messages = {"sums (zstd)": "why"}

    suite_process.normalise(result, "lz4|zstd")

    assert result.outcomes == {"sums (*)": FAILED, "odd (x)": PASSED}
    assert result.messages == {"sums (*)": "sums (zstd): why"}


def test_a_runner_that_is_stopped_leaves_no_jvm() -> None:
    """Its threads wait for JVMs in sessions of their own, which no signal to the runner reaches."""
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(HERE.parent)], stdout=subprocess.PIPE, text=True
    )
    assert runner.stdout is not None
    jvm = int(runner.stdout.readline())

    try:
        runner.terminate()

        assert runner.wait(60) == 128 + signal.SIGTERM
        wait_until(lambda: command_of(jvm) is None, 60, "the end of the JVM")
    finally:
        Process(jvm, "sleep 600").kill()
        runner.kill()
        runner.communicate()
