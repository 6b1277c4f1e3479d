"""Records what docs/parity.md shows, in results.json: the runs of each feature per provider.

    record.py runs [NAME...]    run the features of features.toml (or those of these names)
    record.py tests JUNIT...    add the outcomes of tests; `make test` writes them to
                                .build/parity-tests.xml, recovery-tests.xml and
                                integration-tests.xml, those of the shim
                                jvm-shim/build/<minor>/test-reports/TEST-junit-jupiter.xml

Each outcome has the date and the commit of its run.

An outcome of a run is `yes`, `no: ` and the error's condition, or `no: ` and what differs. A run
has three micro-batches with a restart after the second. Rows are compared with those of Spark's
RocksDB provider in checkpoint format 1, or of the HDFS-backed one where the former fails.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyspark

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME, JOIN_STATE_FORMAT
from harness.processes import nothing_survives
from harness.recorded import head_commit, today
from harness.spark import CAIRN, HDFS, REPOSITORY, ROCKSDB, STATE_STORE, running_driver

OPERATORS = "integration-tests/parity/test_operators.py"
FEATURES = HERE / "features.toml"
RESULTS = HERE / "results.json"
PROVIDERS = {"hdfs": HDFS, "rocksdb": ROCKSDB, "cairn": CAIRN}
FILES_BEFORE_RESTART, FILES_AFTER_RESTART = 2, 1
YES = "yes"
# Conditions that only say that a query or a task failed; the cause has its own.
_OUTER = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"}
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
# Where an error without a condition says what has happened, the best place first.
_CAUSES = (r"(assertion failed: [^\n]*)", r"executor driver\): ([^\n]*)", r"Exception: ([^\n]*)")

Key = tuple[str, int, str]


class Runs:
    """Finished runs by operator, checkpoint format, settings and provider; each is run once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: dict[tuple[Key, str], Run | str] = {}

    def get(self, key: Key, provider: str) -> Run | str:
        """Return the run, or why it failed."""
        if (key, provider) not in self._done:
            self._done[key, provider] = self._run(key, provider)
        return self._done[key, provider]

    def reference(self, operator: str) -> Run:
        """Return the run whose results are expected."""
        for provider in ("rocksdb", "hdfs"):
            run = self.get((operator, 1, "{}"), provider)
            if isinstance(run, Run):
                return run
        raise RuntimeError(f"{operator} fails under both providers of Spark")

    def _run(self, key: Key, provider: str) -> Run | str:
        name, checkpoint_format, conf = key
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        events = Events(folder / "input")
        checkpoint = str(folder / "checkpoint")
        class_name = PROVIDERS[provider]
        settings = json.loads(conf)
        run = Run(BY_NAME[name], events, checkpoint, class_name, checkpoint_format, settings)
        try:
            events.add_files(0, FILES_BEFORE_RESTART)
            run.advance()
            events.add_files(FILES_BEFORE_RESTART, FILES_AFTER_RESTART)
            run.advance()
        except Exception as error:  # noqa: BLE001 - the outcome of the run
            return condition_of(str(error))
        return _fallback(run) or run


def _fallback(run: Run) -> str:
    """Return the state format of joins that the query has instead of the one it asked for."""
    asked = run.operator.conf.get(JOIN_STATE_FORMAT)
    if asked is None:
        return ""
    offsets = Path(run.checkpoint, "offsets", "0").read_text().splitlines()
    used = json.loads(offsets[1])["conf"][JOIN_STATE_FORMAT]
    return "" if used == asked else f"Spark uses state format {used} instead, without an error"


def condition_of(message: str) -> str:
    """Return the condition in an error's message, else the cause that it names."""
    found = [one for one in _CONDITION.findall(message) if one not in _OUTER]
    if found:
        return f"`{found[0]}`"
    for pattern in _CAUSES:
        cause = re.search(pattern, message)
        if cause:
            return f"`{cause[1][:120].strip()}`"
    return f"`{message.splitlines()[0][:120].strip()}`"


def outcome(runs: Runs, feature: dict[str, Any], provider: str) -> str:
    """Run a feature under a provider and compare it."""
    conf = {STATE_STORE + name: value for name, value in feature.get("conf", {}).items()}
    key = (feature["operator"], feature.get("format", 1), json.dumps(conf))
    run = runs.get(key, provider)
    if isinstance(run, str):
        return f"no: {run}"
    expected = runs.reference(feature["operator"])
    if run.record.rows != expected.record.rows:
        return "no: other rows"
    read = READS.get(feature.get("reads", ""))
    try:
        if read and read(run) != read(expected):
            return "no: another state"
    except Exception as error:  # noqa: BLE001 - the outcome
        return f"no: {condition_of(str(error))}"
    return YES


def _states(run: Run, batch: int) -> list[list[str]]:
    views = [view for view in run.operator.views if not view.is_store_of_join]
    return [run.state(view, batchId=batch) for view in views]


def _from_snapshot(run: Run) -> list[str]:
    view = run.operator.views[-1]
    versions = run.snapshot_versions(view)
    if not versions:
        raise RuntimeError("there is no snapshot of partition 0")
    start = {"snapshotStartBatchId": versions[0] - 1, "snapshotPartitionId": 0}
    return run.state(view, batchId=run.record.last_batch, **start)


READS: dict[str, Callable[[Run], Any]] = {
    "state": lambda run: _states(run, run.record.last_batch),
    "earlier": lambda run: _states(run, FILES_BEFORE_RESTART - 1),
    "changes": lambda run: run.changes(run.operator.views[-1], run.record.last_batch),
    "snapshot": _from_snapshot,
}


def record_runs(names: list[str]) -> None:
    """Run features and record their outcomes."""
    features = [one for one in tomllib.loads(FEATURES.read_text())["feature"] if "operator" in one]
    chosen = [one for one in features if not names or one["name"] in names]
    results = read_results()
    results["spark"] = pyspark.__version__
    labels = {_label(one) for one in features}
    results["runs"] = {name: run for name, run in results["runs"].items() if name in labels}
    scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with nothing_survives(), running_driver(), scratch as folder:
        runs = Runs(Path(folder))
        for feature in chosen:
            # First, because all compare with it.
            runs.reference(feature["operator"])
            with ThreadPoolExecutor(len(PROVIDERS)) as pool:
                calls = {one: pool.submit(outcome, runs, feature, one) for one in PROVIDERS}
                by_provider = {one: call.result() for one, call in calls.items()}
            print(f"{feature['name']}: {by_provider}", flush=True)
            results["runs"][_label(feature)] = {"at": _now(), **by_provider}
            write_results(results)


def record_tests(files: list[str]) -> None:
    """Add the outcomes of pytest's result files, for the tests of files that features name."""
    results = read_results()
    features = FEATURES.read_text()
    for name in files:
        outcomes: dict[str, str] = {}
        # Written by pytest on this machine.
        for case in ET.parse(name).iter("testcase"):  # noqa: S314
            path, test = _named(case)
            if path not in features and path != OPERATORS:
                continue
            kinds = {child.tag for child in case}
            state = "failed" if kinds & {"failure", "error"} else "passed"
            state = "skipped" if "skipped" in kinds else state
            # The invocations of a Java test with parameters are one test.
            if outcomes.get(f"{path}::{test}") != "failed":
                outcomes[f"{path}::{test}"] = state
        results["tests"] |= {test: f"{state} {_now()}" for test, state in outcomes.items()}
    write_results(results)


def read_results() -> dict[str, Any]:
    """Return what is recorded."""
    empty = {"spark": "", "runs": {}, "tests": {}}
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else empty


def write_results(results: dict[str, Any]) -> None:
    """Write what is recorded, in an order that does not depend on the runs."""
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def _label(feature: dict[str, Any]) -> str:
    return f"{feature['area']}: {feature['name']}"


def _named(case: ET.Element) -> tuple[str, str]:
    """Return the file and the name of a test; a Java test's name is without its parameters."""
    path = case.attrib["classname"].replace(".", "/")
    if path.startswith("io/cairn/"):
        name = case.attrib["name"].partition("(")[0]
        return f"jvm-shim/src/test/java/{path}.java", name
    return f"{path}.py", case.attrib["name"]


def _now() -> str:
    return f"{today()} {head_commit(REPOSITORY)}"


def main() -> None:
    """Read the command line."""
    commands = {"runs": record_runs, "tests": record_tests}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    main()
