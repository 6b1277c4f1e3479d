"""Tests Cairn on several minor versions of Spark: `make spark-matrix`.

For each minor: its jar is built; the shim's own tests, the integration tests of `TESTS` and a quick
part of Spark's own suites, as that minor has them, run on its pyspark. At the end checkpoints go
from minor to minor (`test_upgrade.py`). The first run installs each pyspark into `.build/minors`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = (
    "parity/test_aggregation.py",
    "parity/test_operators.py",
    "parity/test_transform.py",
    "parity/test_evolution.py",
    "recovery/test_repartition.py",
    "recovery/test_worker_killed.py",
    "metadata/test_local_files.py",
)
SUITES = "integration-tests/spark_suites/run.py"
OTHERS = sorted(one.stem for one in (REPOSITORY / "python" / "minors").glob("*.txt"))


def main() -> int:
    """Run the selected minors; return the exit code."""
    options = _parser().parse_args()
    results = [
        (f"Spark {minor}", name, *_run(command))
        for minor in options.minors
        for name, command in _steps(minor)
        if name in options.steps
    ]
    if "upgrade" in options.steps:
        command = _pytest(sys.executable, "minors")
        results.append(("all minors", "upgrade", *_run(command, {"CAIRN_TEST_MINORS": "1"})))
    for minor, name, passed, seconds in results:
        print(f"{minor:12} {name:12} {'passed' if passed else 'FAILED'} {seconds:6.0f} s")
    return 0 if all(passed for _, _, passed, _ in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    steps = ("jar", "java", "integration", "suites", "upgrade")
    parser.add_argument("--minors", nargs="+", default=OTHERS, metavar="MINOR")
    parser.add_argument("--steps", nargs="+", default=steps, choices=steps)
    return parser


def _steps(minor: str) -> list[tuple[str, list[str]]]:
    if minor not in OTHERS:
        return [
            ("jar", ["make", "shim"]),
            ("java", ["make", "java-tests"]),
            ("integration", _pytest(sys.executable, *TESTS)),
            ("suites", [sys.executable, SUITES, "--quick"]),
        ]
    program = str(REPOSITORY / "scripts" / "minor_shim.sh")
    python = str(REPOSITORY / ".build" / "minors" / minor / "bin" / "python")
    return [
        ("jar", [program, minor]),
        ("java", [program, minor, "test"]),
        ("integration", _pytest(python, *TESTS)),
        ("suites", [python, SUITES, "--quick", "--provider", "both"]),
    ]


def _pytest(python: str, *tests: str) -> list[str]:
    settings = ["-c", "python/pyproject.toml", "--rootdir", "."]
    # PySpark 4.1 leaves the socket of each collect() open.
    settings += ["-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    return [python, "-m", "pytest", *settings, *(f"integration-tests/{one}" for one in tests)]


def _run(command: list[str], environment: dict[str, str] | None = None) -> tuple[bool, float]:
    """Run in the root of the repository; return whether it passed, and its seconds."""
    print("$", *command, flush=True)
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **(environment or {})}, check=False
    )
    return done.returncode == 0, time.monotonic() - start


if __name__ == "__main__":
    sys.exit(main())
