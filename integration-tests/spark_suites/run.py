"""Runs Spark's own stateful suites under Cairn, with Spark's RocksDB provider as the control.

    python integration-tests/spark_suites/run.py --provider both
    python integration-tests/spark_suites/run.py --provider cairn --quick
    python integration-tests/spark_suites/run.py --provider control --record-control

The exit code is 0 if Cairn passes exactly the tests that the control passes, except those that
`expected.toml` lists.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyspark
from suite_kit import BUILD, HERE, REPOSITORY, Kit, prepare
from suite_process import (
    FAILED,
    IGNORED,
    PASSED,
    ROCKSDB_PROVIDER,
    Provider,
    Suite,
    SuiteResult,
    run_suite,
)
from verdict import Control, Verdict, judge, read_control, read_expected, write_control

sys.path.insert(0, str(REPOSITORY / "integration-tests"))

from harness.minio import MinioProcess, find_minio_binary
from harness.s3 import endpoint_of
from harness.spark import CAIRN_FILES, FILE_MANAGER_CLASS, S3A_JARS, SHIM_JAR, s3a_conf

CAIRN_PROVIDER = "io.cairn.spark.CairnStateStoreProvider"
BUCKET = "suites"


def main(arguments: list[str] | None = None) -> int:
    """Run the selected suites; return the exit code."""
    options = _parser().parse_args(arguments)
    suites = _selected(options)
    if options.record_control and (options.quick or options.provider == "cairn"):
        print("--record-control needs whole suites under the control", file=sys.stderr)
        return 2
    if options.provider in ("cairn", "both") and not options.shim_jar.exists():
        print(f"no shim jar at {options.shim_jar}: build it with `make shim`", file=sys.stderr)
        return 2
    kit = prepare()
    results: list[SuiteResult] = []
    controls = read_control()
    if options.provider in ("control", "both"):
        control_results = _run_control(kit, suites, options)
        controls |= {result.suite: Control.of(result) for result in control_results}
        results += control_results
    verdict = Verdict()
    if options.provider in ("cairn", "both"):
        with _file_settings(suites) as file_settings:
            cairn = Provider(
                "cairn",
                options.provider_class,
                (ROCKSDB_PROVIDER,),
                (options.shim_jar, *(S3A_JARS.glob("*.jar") if "s3" in file_settings else ())),
                file_settings,
            )
            cairn_results = _run_all(kit, suites, cairn, options.parallel)
        verdict = judge(cairn_results, controls, read_expected(), cairn.class_name)
        results += cairn_results
    _print_table(suites, results)
    if options.record_control:
        _record(results)
    return _print_verdict(results, verdict)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--provider", choices=("control", "cairn", "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="only the suites marked quick")
    parser.add_argument(
        "--suites", nargs="+", metavar="NAME", help="only these; a part of the name is enough"
    )
    parser.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="suites run concurrently (default 1)"
    )
    parser.add_argument(
        "--refresh-control",
        action="store_true",
        help="run the control even if a result is cached",
    )
    parser.add_argument(
        "--record-control", action="store_true", help="write control.toml from this run's control"
    )
    parser.add_argument(
        "--provider-class",
        default=CAIRN_PROVIDER,
        help="class under test (default %(default)s)",
    )
    parser.add_argument("--shim-jar", type=Path, default=SHIM_JAR, help="jar of this class")
    parser.add_argument(
        "--list", action="store_true", dest="is_list", help="list the suites and exit"
    )
    return parser


def _selected(options: argparse.Namespace) -> list[Suite]:
    content = tomllib.loads((HERE / "suites.toml").read_text())
    entries = content["suite"]
    if options.is_list:
        for entry in entries:
            print(f"{entry['name']}{'  quick' if entry.get('quick') else ''}")
        raise SystemExit(0)
    suites = [
        Suite(
            name=entry["name"],
            class_name=f"{entry.get('package', content['package'])}."
            f"{entry.get('class', entry['name'])}",
            limit_s=entry["limit_s"],
            name_filter=entry.get("quick_filter", "") if options.quick else "",
            files=entry.get("files", ""),
        )
        for entry in entries
        if entry.get("quick") or not options.quick
    ]
    if options.suites:
        unknown = [
            part for part in options.suites if not any(part in suite.name for suite in suites)
        ]
        if unknown:
            message = f"no suite has a name like {', '.join(unknown)}; try --list"
            raise SystemExit(message)
        suites = [suite for suite in suites if any(part in suite.name for part in options.suites)]
    return suites


@contextmanager
def _file_settings(suites: list[Suite]) -> Iterator[dict[str, dict[str, str]]]:
    """Yield the properties of suites of the file manager; MinIO runs if one of them needs it."""
    manager = {FILE_MANAGER_CLASS: CAIRN_FILES}
    if not any(suite.files == "s3" for suite in suites):
        yield {"local": manager}
        return
    binary = find_minio_binary()
    if binary is None or not S3A_JARS.exists():
        message = "no minio program or no s3a jars: run `make minio s3a-jars`"
        raise SystemExit(message)
    with MinioProcess(binary) as server:
        client = server.client()
        client.create_bucket(Bucket=BUCKET)
        client.close()
        s3a = s3a_conf(endpoint_of(server).settings)
        default = {"spark.hadoop.fs.defaultFS": f"s3a://{BUCKET}"}
        hadoop = {f"spark.hadoop.{name}": value for name, value in s3a.items()}
        yield {"local": manager, "s3": {**manager, **default, **hadoop}}


def _run_control(kit: Kit, suites: list[Suite], options: argparse.Namespace) -> list[SuiteResult]:
    """Return the results of Spark's RocksDB provider, from the cache if they are there."""
    provider = Provider("control", ROCKSDB_PROVIDER)
    cached = (
        []
        if options.refresh_control
        else [
            SuiteResult.read(file)
            for suite in suites
            if (file := _folder(provider, suite) / "result.json").exists()
        ]
    )
    known = {result.suite for result in cached if result.is_ended and result.outcomes}
    missing = [suite for suite in suites if suite.name not in known]
    fresh = _run_all(kit, missing, provider, options.parallel)
    return [result for result in cached if result.suite in known] + fresh


def _run_all(kit: Kit, suites: list[Suite], provider: Provider, parallel: int) -> list[SuiteResult]:
    def run(suite: Suite) -> SuiteResult:
        result = run_suite(kit, suite, provider, _folder(provider, suite))
        print(_progress_line(result), flush=True)
        return result

    with ThreadPoolExecutor(max_workers=parallel) as pool:
        return list(pool.map(run, suites))


def _folder(provider: Provider, suite: Suite) -> Path:
    part = "-quick" if suite.name_filter else ""
    return BUILD / "runs" / provider.label / f"{suite.name}{part}"


def _progress_line(result: SuiteResult) -> str:
    ended = "" if result.is_ended else "  STOPPED at its time limit"
    counts = f"{len(result.names(PASSED))} passed, {len(result.names(FAILED))} failed"
    return f"{result.provider:8} {result.suite}: {counts}, {result.seconds:.0f} s{ended}"


def _print_table(suites: list[Suite], results: list[SuiteResult]) -> None:
    row = "{:46} {:8} {:>6} {:>6} {:>7} {:>8}  {}"
    print(
        "\n"
        + row.format("suite", "provider", "passed", "failed", "ignored", "seconds", "stores opened")
    )
    for suite in suites:
        for result in (result for result in results if result.suite == suite.name):
            opened = ", ".join(
                f"{count} {name.rpartition('.')[2]}"
                for name, count in sorted(result.opened.items())
            )
            counts = [len(result.names(outcome)) for outcome in (PASSED, FAILED, IGNORED)]
            note = "" if result.is_ended else "  (stopped at its time limit)"
            print(
                row.format(
                    suite.name, result.provider, *counts, f"{result.seconds:.0f}", opened + note
                )
            )


def _record(results: list[SuiteResult]) -> None:
    controls = [
        Control.of(result) for result in results if result.provider == "control" and result.is_ended
    ]
    versions = {
        "spark": pyspark.__version__,
        "suites_of_spark": "4.2.0",
        "provider": ROCKSDB_PROVIDER,
    }
    write_control(controls, versions)
    print(f"\nrecorded {len(controls)} suites in control.toml")


def _print_verdict(results: list[SuiteResult], verdict: Verdict) -> int:
    for result in results:
        if result.provider == "control":
            for test in result.names(FAILED):
                print(f"the control itself fails: {result.suite}: {test}")
    for title, lines in (
        ("The control passes, this provider does not, and the test is not listed", verdict.broken),
        ("Wrongly listed in expected.toml", verdict.healed),
        ("Did not run on the provider under test", verdict.elsewhere),
    ):
        if lines:
            print(f"\n{title} ({len(lines)}):")
            print("\n".join(f"  {line}" for line in lines))
    unfinished = [result for result in results if not result.is_ended]
    is_pass = verdict.is_pass and not unfinished
    judged = any(result.provider == "cairn" for result in results)
    print("\n" + (("PASS" if is_pass else "FAIL") if judged else "control only: no verdict"))
    return 0 if is_pass else 1


if __name__ == "__main__":
    raise SystemExit(main())
