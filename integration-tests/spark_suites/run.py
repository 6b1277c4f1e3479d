"""Runs Spark's own stateful suites under Cairn, with Spark's RocksDB provider as the control.

    python integration-tests/spark_suites/run.py
    python integration-tests/spark_suites/run.py --quick
    python integration-tests/spark_suites/run.py --provider both --record-control

By default only Cairn runs, and is compared with the recorded outcomes of the control
(control.toml). They are recorded again for another Spark, or for suites that have none. On another
minor version of Spark, `--provider both --quick` compares with the control of the same run.

A run that was ended goes on where it stopped: results are kept in `.build/spark-suites/runs`, by
the provider's jar and worker and the test classes.

`--record-cairn` writes the counts of a whole run that passed into cairn.toml, which docs/parity.md
shows.

The exit code is 0 if Cairn passes exactly the tests that the control passes, except those that
`expected.toml` lists.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyspark
from report import Progress, print_table, print_verdict
from suite_kit import BUILD, HERE, IS_REFERENCE, OWN_PACKAGE, REPOSITORY, Kit, prepare
from suite_list import Suite, read_excluded, read_suites, read_waiting, unlisted
from suite_process import ROCKSDB_PROVIDER, Provider, SuiteResult, run_suite, run_together
from verdict import (
    Control,
    judge,
    read_control,
    read_expected,
    recorded_spark,
    write_cairn,
    write_control,
)

sys.path.insert(0, str(REPOSITORY / "integration-tests"))

from harness.minio import MinioProcess, find_minio_binary
from harness.processes import end_with_descendants
from harness.recorded import head_commit, today
from harness.s3 import endpoint_of
from harness.spark import (
    CAIRN_FILES,
    FILE_MANAGER_CLASS,
    S3A_JARS,
    SHIM_JAR,
    s3a_conf,
    s3a_jars,
)

CAIRN_PROVIDER = "io.cairn.spark.CairnStateStoreProvider"
BUCKET = "suites"


def main(arguments: list[str] | None = None) -> int:
    """Run the selected suites; return the exit code."""
    options = command_line().parse_args(arguments)
    suites = _selected(options)
    refusal = _refusal(options)
    if refusal:
        print(refusal, file=sys.stderr)
        return 2
    kit = prepare()
    control = Provider("control", ROCKSDB_PROVIDER)
    with _file_settings(suites if options.provider != "control" else []) as file_settings:
        s3a = s3a_jars() if "s3" in file_settings else []
        cairn = Provider(
            "cairn",
            options.provider_class,
            (ROCKSDB_PROVIDER,),
            (options.shim_jar, *s3a),
            file_settings,
        )
        providers = {"control": [control], "cairn": [cairn], "both": [control, cairn]}
        planned = [(one, suite) for suite in suites for one in providers[options.provider]]
        results = run_all(kit, planned, options)
    of_control = [result for result in results if result.provider == "control"]
    of_cairn = [result for result in results if result.provider == "cairn"]
    controls = _recorded() | {
        result.suite: Control.of(result) for result in of_control if result.is_ended
    }
    expected = read_expected(controls, is_whole=IS_REFERENCE)
    verdict = judge(of_cairn, controls, expected, cairn.class_name)
    print_table(suites, results)
    if options.record_control:
        _record(of_control)
    if options.quick or options.suites:
        return print_verdict(results, verdict, [])
    waiting = read_waiting()
    print(f"\n{len(waiting)} suites have not been run yet under both providers (--list)")
    new_suites = unlisted([*suites, *waiting], read_excluded(), kit.classes)
    code = print_verdict(results, verdict, new_suites)
    if options.record_cairn and code == 0:
        _record_cairn(of_cairn)
    return code


def _refusal(options: argparse.Namespace) -> str:
    """Return why a run with these options is refused; empty: it is not."""
    if options.record_control and (options.quick or options.provider == "cairn"):
        return "--record-control needs whole suites under the control"
    is_part = options.quick or options.suites or options.provider == "control"
    if options.record_cairn and (is_part or not IS_REFERENCE):
        return "--record-cairn needs all suites under Cairn, on the reference version of Spark"
    if options.provider in ("cairn", "both") and not options.shim_jar.exists():
        return f"no shim jar at {options.shim_jar}: build it with `make shim`"
    if not IS_REFERENCE and (options.provider == "cairn" or options.record_control):
        return f"the control is not recorded for Spark {pyspark.__version__}: use --provider both"
    if options.provider == "cairn" and recorded_spark() != pyspark.__version__:
        return (
            f"control.toml is of Spark {recorded_spark()}, installed is {pyspark.__version__}:"
            " use --provider both --record-control"
        )
    return ""


def _recorded() -> dict[str, Control]:
    """Return the committed outcomes of the control: of the reference version of Spark."""
    return read_control() if IS_REFERENCE else {}


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--provider", choices=("control", "cairn", "both"), default="cairn")
    parser.add_argument("--quick", action="store_true", help="only the suites marked quick")
    parser.add_argument(
        "--suites",
        nargs="+",
        metavar="NAME",
        help="only these, by name or by a part of several names",
    )
    parser.add_argument(
        "--parallel",
        type=int,
        default=2,
        metavar="N",
        help="suites run concurrently, each with 3 GiB of heap (default 2; all take an hour then)",
    )
    parser.add_argument(
        "--anew",
        action="store_true",
        help="run every suite; without it, results of the same jar, worker and test classes are"
        " kept, and a run that was ended goes on where it stopped",
    )
    parser.add_argument(
        "--record-control", action="store_true", help="write control.toml from this run's control"
    )
    parser.add_argument(
        "--record-cairn",
        action="store_true",
        help="write cairn.toml from this run, if it has all suites and passes",
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
    suites = [suite for suite in read_suites(is_quick=options.quick) if _is_for_this_spark(suite)]
    waiting = read_waiting()
    if options.is_list:
        quick = {suite.name for suite in read_suites(is_quick=True)}
        for suite in suites:
            print(f"{suite.name}{'  quick' if suite.name in quick else ''}")
        for suite in waiting:
            print(f"{suite.name}  waiting: runs only if it is named")
        raise SystemExit(0)
    if options.suites:
        suites += waiting
        names = {name for part in options.suites for name in _named(part, suites)}
        suites = [suite for suite in suites if suite.name in names]
    return suites


def _is_for_this_spark(suite: Suite) -> bool:
    """Other minors have neither our suites nor, with another Hadoop, the jars for those on S3."""
    if IS_REFERENCE:
        return True
    is_without_s3 = S3A_JARS.exists() and not s3a_jars()
    return not (suite.class_name.startswith(OWN_PACKAGE) or (suite.files == "s3" and is_without_s3))


def _named(part: str, suites: list[Suite]) -> list[str]:
    """Return the suite of this name, or else those with this part in their names."""
    names = [suite.name for suite in suites]
    found = [part] if part in names else [name for name in names if part in name]
    if not found:
        message = f"no suite has a name like {part}; try --list"
        raise SystemExit(message)
    return found


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


def run_all(
    kit: Kit, planned: list[tuple[Provider, Suite]], options: argparse.Namespace
) -> list[SuiteResult]:
    """Run what has no result yet, and return all results."""
    recorded = {name: control.seconds for name, control in _recorded().items()}
    pairs = [(provider.label, suite.name) for provider, suite in planned]
    progress = Progress(pairs, recorded, options.parallel)
    labels = {provider.label for provider, _ in planned}
    keys = {label: key_of(kit, label, options.shim_jar) for label in labels}
    results: list[SuiteResult] = []

    def finish(result: SuiteResult) -> None:
        result.key = keys[result.provider]
        # Workers run the source as it is: a result while that was changed is nobody's.
        if key_of(kit, result.provider, options.shim_jar) == result.key:
            result.save(_result_file(result.provider, result.suite, result.name_filter))
        results.append(result)
        progress.ended(result)

    def run(provider: Provider, suites: list[Suite]) -> None:
        due = []
        for suite in suites:
            file = _result_file(provider.label, suite.name, suite.name_filter)
            kept = None if options.anew else SuiteResult.read(file)
            if kept is not None and kept.key == keys[provider.label] and kept.is_ended:
                results.append(kept)
                progress.ended(kept, is_kept=True)
            else:
                due.append(suite)
        if len(due) > 1:
            folder = BUILD / "runs" / provider.label / f"together-{due[0].jvm}"
            for result in run_together(kit, due, provider, folder):
                finish(result)
            ended = {result.suite for result in results if result.provider == provider.label}
            due = [suite for suite in due if suite.name not in ended]
        for suite in due:
            folder = _result_file(provider.label, suite.name, suite.name_filter).parent
            finish(run_suite(kit, suite, provider, folder))

    with ThreadPoolExecutor(max_workers=options.parallel) as pool:
        list(pool.map(lambda job: run(*job), _jobs(planned)))
    return results


def _jobs(planned: list[tuple[Provider, Suite]]) -> list[tuple[Provider, list[Suite]]]:
    """Put the suites of one JVM together."""
    jobs: dict[tuple[str, str], tuple[Provider, list[Suite]]] = {}
    for provider, suite in planned:
        key = (provider.label, f"together {suite.jvm}" if suite.jvm else suite.name)
        jobs.setdefault(key, (provider, []))[1].append(suite)
    return list(jobs.values())


def key_of(kit: Kit, label: str, shim_jar: Path) -> str:
    """Return a digest of what runs: Spark, the tests, their JVM, and Cairn's jar and worker."""
    digest = hashlib.sha256(f"{pyspark.__version__} {kit.digest()}".encode())
    digest.update((HERE / "suite_process.py").read_bytes())
    worker = sorted((REPOSITORY / "python" / "src" / "cairn").rglob("*.py"))
    for file in (shim_jar, *worker) if label == "cairn" else ():
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _result_file(label: str, suite: str, name_filter: str) -> Path:
    part = "-quick" if name_filter else ""
    return BUILD / "runs" / label / f"{suite}{part}" / "result.json"


def _record(results: list[SuiteResult]) -> None:
    controls = [Control.of(result) for result in results if result.is_ended]
    versions = {
        "spark": pyspark.__version__,
        "suites_of_spark": "4.2.0",
        "provider": ROCKSDB_PROVIDER,
    }
    write_control(controls, versions)
    print(f"\nrecorded {len(controls)} suites in control.toml")


def _record_cairn(results: list[SuiteResult]) -> None:
    of_run = {"spark": pyspark.__version__, "date": today(), "commit": head_commit(REPOSITORY)}
    write_cairn(results, of_run)
    print(f"recorded {len(results)} suites in cairn.toml")


if __name__ == "__main__":
    # The suites that have ended keep their results; the next run goes on after them.
    end_with_descendants(signal.SIGINT, signal.SIGTERM)
    raise SystemExit(main())
