"""Shows that Cairn's memory stays within its bounds under a state three times larger than both.

    python benchmarks/memory.py                    10 minutes after the state is filled
    python benchmarks/memory.py --duration-s 60

Two bounds are checked every second: the cache's accounted bytes (metric `cairnCacheBytes`) against
`cairn.cacheMemory`, and the growth of each worker's resident memory since its start against
`cairn.workerMemory`. The exit code is 1 if one is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import result_file
from driver import (
    BUILD,
    SHIM_JAR,
    Jvm,
    Provider,
    cairn_conf,
    interrupt_at_sigterm,
    load_provider,
    load_settings,
    require_shim,
    run_workload,
)

MIB = 2**20
# A key of 8 and a value of 32 bytes with their row headers: the state's size before compression.
BYTES_PER_KEY = 60
# The result file keeps one of this many samples; the maxima are those of all samples.
KEEP_ONE_OF = 20


def main() -> int:
    """Run and print the largest samples with the bounds; return 1 if a bound was exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--duration-s", type=int, default=600)
    mib = "%(default)s MiB)"
    parser.add_argument(
        "--cache-mib", type=int, default=64, help=f"cairn.cacheMemory (default {mib}"
    )
    parser.add_argument(
        "--worker-mib", type=int, default=256, help=f"cairn.workerMemory (default {mib}"
    )
    parser.add_argument("--shim-jar", type=Path, default=SHIM_JAR)
    parser.add_argument("--cairn-conf", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--result", type=Path, default=BUILD / "memory.json")
    options = parser.parse_args()
    require_shim(options.shim_jar)
    interrupt_at_sigterm()
    folder = BUILD / f"memory-{os.getpid()}"  # two benchmarks may run at once
    key_count = 3 * max(options.cache_mib, options.worker_mib) * MIB // BYTES_PER_KEY
    numbers = run_workload(
        "memory",
        _provider(options),
        {"key-count": key_count, "batch-rows": 50_000, "duration-s": options.duration_s},
        Jvm(shim_jar=options.shim_jar, folder=folder),
    )
    samples = [
        json.loads(line) for line in (folder / "result.json.samples").read_text().splitlines()
    ]
    summary = summarise(samples, options.cache_mib * MIB, options.worker_mib * MIB)
    summary |= {
        "key_count": key_count,
        "fill_s": round(numbers["fill_seconds"]),
        "duration_s": round(numbers["work_seconds"]),
        "machine": machine.describe(BUILD),
    }
    result_file.write(options.result, summary | {"samples": samples[::KEEP_ONE_OF]})
    shutil.rmtree(folder)
    return _print(summary)


def _provider(options: argparse.Namespace) -> Provider:
    bounds = (f"cacheMemory={options.cache_mib}m", f"workerMemory={options.worker_mib}m")
    provider = load_provider(load_settings(), "cairn")
    return replace(provider, conf=provider.conf | cairn_conf([*bounds, *options.cairn_conf]))


def summarise(samples: list[dict[str, Any]], cache_bytes: int, worker_bytes: int) -> dict[str, Any]:
    """Return the largest values of all samples. A worker's growth counts from its first sample.

    Raises:
        SystemExit: nothing was measured: no sample has a worker, or none has a cache.
    """
    if not any(sample["worker_rss_bytes"] for sample in samples):
        message = "no worker process was found: the provider is not Cairn"
        raise SystemExit(message)
    if max(sample["cache_bytes"] for sample in samples) <= 0:
        message = "the provider reports no cairnCacheBytes"
        raise SystemExit(message)
    at_start: dict[str, int] = {}
    growth: dict[str, int] = {}
    for sample in samples:
        for pid, rss in sample["worker_rss_bytes"].items():
            at_start.setdefault(pid, rss)
            growth[pid] = max(growth.get(pid, 0), rss - at_start[pid])
    return {
        "sample_count": len(samples),
        "rows": samples[-1]["rows"],
        "cache_bound_bytes": cache_bytes,
        "cache_max_bytes": max(sample["cache_bytes"] for sample in samples),
        "worker_bound_bytes": worker_bytes,
        "worker_growth_max_bytes": max(growth.values()),
        "workers": {
            pid: {"at_start_bytes": at_start[pid], "growth_max_bytes": growth[pid]}
            for pid in growth
        },
        "jvm_rss_max_bytes": max(sample["rss_bytes"] for sample in samples),
    }


def _print(summary: dict[str, Any]) -> int:
    print(
        f"{summary['sample_count']} samples, {summary['rows']:,} rows"
        f" on {summary['key_count']:,} keys"
    )
    exceeded = 0
    for name, largest in (("cache", "cache_max_bytes"), ("worker", "worker_growth_max_bytes")):
        bound = summary[f"{name}_bound_bytes"]
        verdict = "within" if summary[largest] <= bound else "EXCEEDED"
        exceeded += summary[largest] > bound
        largest_mib, bound_mib = summary[largest] / MIB, bound / MIB
        print(f"{name:7} largest {largest_mib:8.1f} MiB   bound {bound_mib:8.1f} MiB   {verdict}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    raise SystemExit(main())
