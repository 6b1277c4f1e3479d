"""Measures the time from a worker's start to its first reply, by the shim's metric, in five JVMs.

python benchmarks/worker_start.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import machine
import result_file
from driver import (
    BUILD,
    SHIM_JAR,
    Jvm,
    interrupt_at_sigterm,
    load_provider,
    load_settings,
    require_shim,
    run_workload,
)


def main() -> int:
    """Start workers, print each time and the median; return 1 if the provider reports none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--shim-jar", type=Path, default=SHIM_JAR)
    parser.add_argument("--result", type=Path, default=BUILD / "worker-start.json")
    options = parser.parse_args()
    require_shim(options.shim_jar)
    interrupt_at_sigterm()
    provider = load_provider(load_settings(), "cairn")
    times = []
    for number in range(options.runs):
        numbers = run_workload("worker_start", provider, {}, Jvm(shim_jar=options.shim_jar))
        time_ms = numbers["worker_start_ms"]
        if time_ms < 0:
            print("the provider reports no cairnWorkerStartMs", file=sys.stderr)
            return 1
        print(f"run {number + 1}  {time_ms:.0f} ms", flush=True)
        times.append(time_ms)
    median = statistics.median(times)
    print(f"median  {median:.0f} ms")
    content = {"times_ms": times, "median_ms": median, "machine": machine.describe(BUILD)}
    result_file.write(options.result, content)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
