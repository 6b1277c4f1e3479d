"""The programs of benchmarks/ work: small runs give numbers, wrong answers give none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.processes import wait_until
from harness.spark import REPOSITORY, SHIM_JAR

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("nothing_survives")]

BENCHMARKS = REPOSITORY / "benchmarks"
LIMIT_S = 900
RESOURCES = ("cpu_seconds", "cpu_us_per_written_row", "peak_rss_bytes", "written_rows")
MIB = 2**20


def program(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of benchmarks/."""
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def quick_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run small workloads; the result files go to the folder."""
    return program(
        "run.py", "--quick", "--results", str(folder), "--shim-jar", str(SHIM_JAR), *arguments
    )


def numbers_by_run(folder: Path, group: str) -> dict[tuple[str, str], dict[str, float]]:
    """Return the numbers of a result file by workload and provider; a failed run has none."""
    outcome = json.loads((folder / f"results-{group}.json").read_text())
    return {
        (run["workload"], run["provider"]): run["numbers"]
        for run in outcome["runs"]
        if "numbers" in run
    }


def rendered(folder: Path, *tables: str) -> str:
    """Return a page with these tables, as report.py writes it."""
    page = folder / "page.md"
    page.write_text("".join(f"<!-- table: {name} -->\n<!-- end -->\n" for name in tables))
    done = program("report.py", "--results", str(folder), "--page", str(page))
    assert done.returncode == 0, done.stderr
    return page.read_text()


@pytest.fixture(scope="module")
def upserts(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Run a workload under Cairn, Spark's provider, and a store that loses all rows."""
    folder = tmp_path_factory.mktemp("upserts")
    providers = ("cairn", "rocksdb_tuned", "nothing")
    return folder, quick_run(folder, "--workloads", "upserts", "--providers", *providers)


def test_store_workloads_give_rates_and_resources(
    upserts: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """A benchmark that does not run, or measures nothing, is found when a figure is needed."""
    folder, done = upserts

    runs = numbers_by_run(folder, "rates")
    assert [provider for _, provider in runs] == ["cairn", "rocksdb_tuned"], done.stderr
    for numbers in runs.values():
        assert all(numbers[name] > 0 for name in ("rows_per_s", "uploaded_bytes", *RESOURCES))
        assert 0 < numbers["snapshot_bytes"] < numbers["uploaded_bytes"]
    own_times = {name for name in runs["upserts", "cairn"] if name.startswith("cairn")}
    assert {"cairnCommitMs", "cairnEncodeMs", "cairnPutMs"} <= own_times
    page = rendered(folder, "rates", "rates-resources", "rates-times")
    assert "| upserts, uniform keys: get + put |" in page
    assert "Cairn : Spark RocksDB, tuned" in page
    assert "uploaded to the checkpoint, MiB" in page
    assert "| commitMs |" in page


def test_a_wrong_answer_gives_no_figure(
    upserts: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """A provider that loses rows must not look fast."""
    folder, done = upserts

    assert done.returncode == 1
    assert "no figure, because of a wrong answer: keys found" in done.stderr
    assert "| failed |" in rendered(folder, "rates")
    assert "FAILED: 1" in done.stdout


@pytest.mark.parametrize(
    ("workload", "providers"),
    [
        ("query_aggregation", ["nothing"]),
        pytest.param("query_aggregation", ["cairn", "rocksdb", "nothing"], marks=pytest.mark.slow),
        pytest.param("query_join", ["nothing"], marks=pytest.mark.slow),
    ],
)
def test_a_query_runs_beside_a_store_that_stores_nothing(
    tmp_path: Path, workload: str, providers: list[str]
) -> None:
    """The store that stores nothing shows what Spark itself costs: it must satisfy Spark."""
    small = ("--key-count", "10000", "--batch-count", "2")

    done = quick_run(tmp_path, "--workloads", workload, "--providers", *providers, *small)

    assert done.returncode == 0, done.stderr
    runs = numbers_by_run(tmp_path, "queries")
    assert list(runs) == [(workload, provider) for provider in providers]
    for numbers in runs.values():
        assert all(numbers[name] > 0 for name in ("rows_per_s", "batch_p50_ms", *RESOURCES))


def test_a_stream_of_python_is_measured(tmp_path: Path) -> None:
    """A workload that gives no number of its table is found when the figure is needed."""
    small = ("--batch-rows", "2000", "--batch-count", "2", "--warm-up-batches", "1")

    done = quick_run(
        tmp_path, "--workloads", "nexmark_q18", "--providers", "cairn_prefetch", *small
    )

    assert done.returncode == 0, done.stderr
    (numbers,) = numbers_by_run(tmp_path, "nexmark").values()
    shown = ("cpu_s_per_million", "rows_per_s", "commit_p50_ms", "commit_p99_ms")
    assert all(numbers[name] > 0 for name in (*shown, "state_rows", "state_bytes", "written_rows"))
    assert "| q18: last bid per bidder and auction: deduplication |" in rendered(
        tmp_path, "nexmark"
    )


@pytest.mark.slow
def test_a_killed_query_goes_on_with_the_same_state(tmp_path: Path) -> None:
    """A provider that loses rows in a kill must not look as if it recovered fast."""
    done = quick_run(
        tmp_path,
        *("--workloads", "nexmark_q20_recovery", "--providers", "cairn_prefetch", "rocksdb"),
        *("--batch-rows", "2000", "--batch-count", "2"),
    )

    assert done.returncode == 0, done.stderr
    runs = numbers_by_run(tmp_path, "nexmark_recovery")
    states = {numbers["state_rows"] for numbers in runs.values()}
    # Six batches, whose bids all stay in the state.
    assert len(states) == 1
    assert min(states) > 6 * 2000 * 0.92
    assert all(numbers["recovery_ms"] > 0 for numbers in runs.values())


@pytest.mark.slow
def test_requests_and_price_of_a_stream_are_counted(tmp_path: Path) -> None:
    """A provider whose requests are not seen would look as if S3 cost nothing."""
    small = ("--batch-rows", "1000", "--batch-count", "3", "--warm-up-batches", "1")

    done = quick_run(
        tmp_path, "--workloads", "nexmark_q18_s3", "--providers", "cairn_prefetch", *small
    )

    assert done.returncode == 0, done.stderr
    (numbers,) = numbers_by_run(tmp_path, "nexmark_s3").values()
    # Per batch two commits and Spark's two files, so far as they are reported in time.
    assert 2 * 3 <= numbers["put_requests"] <= 8 * 3
    assert numbers["usd_per_million"] > 0


def run_of(workload: str, provider: str, number: int, numbers: dict[str, float]) -> dict[str, Any]:
    """Return a run as a result file has it."""
    return {"workload": workload, "provider": provider, "run": number, "numbers": numbers}


def outcome_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a result file."""
    families = {"cairn": "cairn", "rocksdb": "spark", "nothing": "nothing"}
    return {
        "machine": {"commit": "abc", "processor": "some processor"},
        "providers": {
            name: {"title": name.title(), "family": family} for name, family in families.items()
        },
        "workloads": {"upserts": {"title": "upserts", "measure": "rows_per_s"}},
        "runs": runs,
    }


def write_results(folder: Path, group: str, runs: list[dict[str, Any]]) -> None:
    """Write the result file of a group."""
    (folder / f"results-{group}.json").write_text(json.dumps(outcome_of(runs)))


def test_a_table_says_how_many_runs_gave_numbers(tmp_path: Path) -> None:
    """A provider that failed four times of five must not look as well measured as the others."""
    rates = {"cairn": 3, "rocksdb": 1}
    runs = [
        run_of("upserts", provider, number, {"rows_per_s": 100})
        for provider, count in rates.items()
        for number in range(count)
    ]
    write_results(tmp_path, "rates", runs)

    assert "Medians of 1 to 3 runs at commit" in rendered(tmp_path, "rates")


def test_the_uploads_of_a_query_are_those_of_its_commits(tmp_path: Path) -> None:
    """Spark's maintenance may take a snapshot during one run and not during another."""
    uploaded = {"cairn": (10 * MIB, 0), "rocksdb": (60 * MIB, 40 * MIB)}
    runs = [
        run_of(
            "upserts",
            provider,
            0,
            {"spark_addBatch_ms": 5, "uploaded_bytes": total, "snapshot_bytes": snapshots},
        )
        for provider, (total, snapshots) in uploaded.items()
    ]
    write_results(tmp_path, "queries", runs)

    page = rendered(tmp_path, "queries-resources")

    assert "| upserts | uploaded by commits, MiB | 10 | 20 | 2.00x |" in page
    assert "snapshots" not in page


def test_providers_that_wrote_different_rows_are_found() -> None:
    """A query that loses rows under one provider must not look fast there."""
    runs = [
        run_of("query_join", provider, number, {"written_rows": rows})
        for number, counts in enumerate(({"cairn": 5, "rocksdb": 5, "nothing": 2}, {"cairn": 4}))
        for provider, rows in counts.items()
    ]
    assert differing(runs) == "[]"

    runs.append(run_of("query_join", "rocksdb", 1, {"written_rows": 6}))

    assert "rows written in run 2 of query_join: {'cairn': 4, 'rocksdb': 6}" in differing(runs)


def differing(runs: list[dict[str, Any]]) -> str:
    """Return what `summary.differing_counts` finds."""
    script = "import json, sys, summary; print(summary.differing_counts(json.load(sys.stdin)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=BENCHMARKS,
        input=json.dumps(outcome_of(runs)),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_chart_that_its_results_do_not_give_fails_the_check(tmp_path: Path) -> None:
    """A chart of an old measurement looks as true as one of the present."""
    results, images = tmp_path / "results", tmp_path / "images"
    shutil.copytree(BENCHMARKS / "results", results)
    folders = ("--results", str(results), "--images", str(images))
    assert program("charts.py", *folders).returncode == 0
    assert program("charts.py", *folders, "--check").returncode == 0
    drawn = sorted(path.name for path in images.iterdir())
    assert drawn == sorted(path.name for path in (REPOSITORY / "docs" / "images").glob("*.svg"))

    file = results / "s3-requests.json"
    file.write_text(file.read_text().replace('"PutObject": 400', '"PutObject": 800'))
    done = program("charts.py", *folders, "--check")

    assert done.returncode == 1
    assert "requests-light.svg differs from its results" in done.stdout
    assert "rates" not in done.stdout.replace(str(tmp_path), "")


def test_a_selection_without_workloads_is_an_error(tmp_path: Path) -> None:
    """A script that measures nothing must not look as if it had."""
    done = quick_run(tmp_path, "--group", "queries", "--workloads", "upserts")

    assert done.returncode == 2
    assert "none of these workloads is in these groups" in done.stderr


def test_a_ratio_above_one_means_better(tmp_path: Path) -> None:
    """More rows are better, and so is less time; medians are compared, and losses are shown."""
    samples = {
        "cairn": [(100, 4), (300, 9), (200, 5)],
        "rocksdb": [(50, 2), (60, 1), (50, 3)],
    }
    runs = [
        run_of("upserts", provider, number, {"rows_per_s": rate, "cpu_seconds": cpu})
        for provider, pairs in samples.items()
        for number, (rate, cpu) in enumerate(pairs)
    ]
    runs.append({"workload": "upserts", "provider": "cairn", "run": 3, "error": "no result"})
    write_results(tmp_path, "rates", runs)

    page = rendered(tmp_path, "rates", "rates-resources")

    assert "| upserts | 200 | 50 | 4.00x |" in page
    assert "| upserts | CPU of all processes, s | 5 | 2 | 0.40x |" in page
    assert "Medians of 3 runs at commit `abc`, on some processor." in page


def test_a_table_without_results_says_so(tmp_path: Path) -> None:
    """An empty table would look like a broken page."""
    assert "Not measured yet: no `benchmarks/results/results-s3.json`" in rendered(tmp_path, "s3")


def test_missing_jars_are_named_before_anything_runs(tmp_path: Path) -> None:
    """Without them one provider of many fails, and its column is empty after hours of runs."""
    (tmp_path / "s3a-jars").mkdir()
    (tmp_path / "s3a-jars" / "hadoop-aws.jar").touch()
    script = "import pathlib, sys, s3_storage; s3_storage.s3a_jars(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", script, str(tmp_path)]

    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "run `make s3a-jars bench-jars`" in done.stderr


def test_the_requests_of_idle_partitions_become_a_table(tmp_path: Path) -> None:
    """A count must say how many partitions had rows: ten PUTs are good for 200, not for ten."""
    nothing: dict[str, int] = {}
    at_start = {"spark_state": {"HeadObject": 3}, "elsewhere": {"PutObject": 4}}
    counts = {
        "batches": 20,
        "commit": {"PutObject": 200},
        "snapshot": nothing,
        "spark_state": nothing,
        "elsewhere": {"PutObject": 60},
        "start": at_start,
        "restart": at_start,
    }
    content = {
        "partitions": 200,
        "busy_partitions": 10,
        "format": 2,
        "counts": {"cairn": counts},
        "machine": {"commit": "abc", "processor": "some processor"},
    }
    (tmp_path / "s3-requests-idle.json").write_text(json.dumps(content))

    page = rendered(tmp_path, "requests-idle")

    assert "| cairn | 20 | 10 | 10 PutObject | 0 | 0 | 3 | 3 + 4 | 3 + 4 |" in page
    assert "200 partitions, of which 10 have rows; checkpoint format 2; at commit `abc`" in page


def test_every_mechanism_can_be_switched_off() -> None:
    """A patch that no longer applies is found when its mechanism changes, not in an ablation."""
    done = program("ablation.py", "--check")

    assert done.returncode == 0, done.stdout


def test_a_patch_that_does_not_apply_is_named(tmp_path: Path) -> None:
    """Whoever changed the sources must find which patch to write anew."""
    patch = tmp_path / "some-mechanism.patch"
    patch.write_text("--- a/LICENSE\n+++ b/LICENSE\n@@ -1 +1 @@\n-not there\n+nor there\n")
    script = "import pathlib, sys, patched_copy; "
    script += "patched_copy.check_patch(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", script, str(patch)]

    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "some-mechanism.patch does not apply to the sources" in done.stderr
    assert f"git diff > {patch}" in done.stderr


def test_the_gain_of_a_mechanism_is_a_ratio_of_medians(tmp_path: Path) -> None:
    """Above 1 the mechanism is better, whether more of a number is better or less."""
    numbers = {
        "all": [(120, 8), (200, 5), (180, 4)],
        "sort-by-first-bits": [(100, 10), (100, 10), (90, 20)],
    }
    runs = [
        run_of("upserts", copy, number, {"rows_per_s": rate, "batch_p50_ms": time})
        for copy, pairs in numbers.items()
        for number, (rate, time) in enumerate(pairs)
    ]
    runs.append({"workload": "upserts", "provider": "all", "run": 3, "error": "no result"})
    figures = {"figures": ["rows_per_s", "batch_p50_ms"]}
    providers = {name: {"title": name, "family": "cairn"} for name in numbers}
    outcome = outcome_of(runs) | {"providers": providers, "workloads": {"upserts": figures}}
    result = tmp_path / "ablation.json"
    result.write_text(json.dumps(outcome))
    only = ("--mechanisms", "sort-by-first-bits")

    done = program("ablation.py", "--report", "--result", str(result), *only)

    row = "| sort-by-first-bits | upserts, "
    assert f"{row}rows_per_s | 180 | 100 | 1.80 (1.20 to 2.00)" in done.stdout, done.stderr
    assert f"{row}batch_p50_ms | 5 | 10 | 2.00 (1.25 to 5.00)" in done.stdout
    assert "2.00 (1.25 to 5.00) in upserts |" in done.stdout
    assert "FAILED: no result" in done.stdout


def test_the_memory_of_all_processes_is_counted(tmp_path: Path) -> None:
    """The workers' memory counts as well as the JVM's."""
    ready = tmp_path / "ready"
    child = f"import pathlib, signal; a = bytearray({64 * MIB}); "
    child += f"pathlib.Path({str(ready)!r}).touch(); signal.pause()"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    sample = "import sys, process_memory as m; print(m.resident_bytes(int(sys.argv[1])))"
    parent = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        wait_until(ready.exists, 30, "the child's memory")
        command = [sys.executable, "-c", sample, str(parent.pid)]
        done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()

    assert int(done.stdout) > 64 * MIB


def test_transforms_are_compared_with_their_floors(tmp_path: Path) -> None:
    """Each engine gives a rate and CPU time; the ratios are to Spark's RocksDB."""
    result = tmp_path / "transform.json"
    sizes = ("--keys", "50", "--rows", "100", "--batches", "1", "--warm-up", "1", "--runs", "1")
    only = ("--workloads", "value", "--forms", "rows", "--engines", "rocksdb", "floor", "loop")

    done = program("transform.py", *sizes, *only, "--result", str(result))

    assert done.returncode == 0, done.stderr
    runs = json.loads(result.read_text())["runs"]
    assert [run["engine"] for run in runs] == ["rocksdb", "floor", "loop"]
    assert all(run["rows_per_s"] > 0 and run["cpu_s_per_batch"] > 0 for run in runs)
    assert all([batch["rows"] for batch in run["batches"]] == [100, 100] for run in runs)
    assert " (1.0x) | " in rendered(tmp_path, "transform")
