"""Measures Cairn and Spark's own providers, called through `StateStoreProvider` on this machine.

    python benchmarks/run.py           all workloads, medians of 5 alternating runs
    python benchmarks/run.py --quick   small sizes, one run: shows that it works, not how fast
    python benchmarks/run.py --workloads upserts scan --providers cairn rocksdb

Every run uses a new JVM. The numbers go to a JSON file, from which report.py writes the tables of
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

import machine
import result_file
from driver import (
    BUILD,
    CONF_PREFIX,
    HERE,
    SHIM_JAR,
    Provider,
    RunFailedError,
    compile_driver,
    run_workload,
)

QUICK = {"key_count": 50_000, "batch_rows": 5_000, "batch_count": 5, "store_count": 40}


def main(arguments: list[str] | None = None) -> int:
    """Run the selected workloads; return 1 if a run failed."""
    settings = tomllib.loads((HERE / "bench.toml").read_text())
    options = _parser(settings).parse_args(arguments)
    options.runs = options.runs or (1 if options.quick else 5)
    providers = _providers(settings, options)
    workloads = [entry for entry in settings["workload"] if entry["name"] in options.workloads]
    if "cairn" in options.providers and not options.shim_jar.exists():
        print(f"no shim jar at {options.shim_jar}: build it with `make shim`", file=sys.stderr)
        return 2
    compile_driver()
    outcome: dict[str, Any] = {
        "machine": machine.describe(BUILD),
        "heap": settings["heap"],
        "is_quick": options.quick,
        "providers": {provider.name: dataclasses.asdict(provider) for provider in providers},
        "workloads": {entry["name"]: entry for entry in workloads},
        "runs": [],
    }
    failures = 0
    for number in range(options.runs):
        # The order of the providers rotates, so that a machine that slows down affects all.
        order = providers[number % len(providers) :] + providers[: number % len(providers)]
        for entry in workloads:
            for provider in order:
                failures += not _run(entry, provider, number, options, settings, outcome)
                result_file.write(options.result, outcome)
    print_table(outcome)
    print(f"\nresults: {options.result}" + (f"\n{failures} runs FAILED" if failures else ""))
    return 1 if failures else 0


def _parser(settings: dict[str, Any]) -> argparse.ArgumentParser:
    workloads = [entry["name"] for entry in settings["workload"]]
    providers = list(settings["providers"])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workloads",
        nargs="+",
        choices=workloads,
        default=workloads,
        metavar="NAME",
        help=f"of {', '.join(workloads)}",
    )
    parser.add_argument(
        "--providers",
        nargs="+",
        choices=providers,
        default=providers,
        metavar="NAME",
        help=f"of {', '.join(providers)}",
    )
    parser.add_argument(
        "--runs", type=int, help="runs of each; their median is shown (default 5; quick 1)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and one run")
    parser.add_argument("--key-count", type=int, help="keys in the state (default 1,000,000)")
    parser.add_argument("--batch-rows", type=int, help="rows per batch (default 100,000)")
    parser.add_argument("--provider-class", help="class to measure as cairn")
    parser.add_argument("--shim-jar", type=Path, default=SHIM_JAR, help="jar of this class")
    parser.add_argument(
        "--cairn-conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a setting of Cairn without its prefix {CONF_PREFIX}; may be repeated",
    )
    parser.add_argument(
        "--result",
        type=Path,
        default=BUILD / "results.json",
        help="JSON file (default %(default)s)",
    )
    return parser


def _providers(settings: dict[str, Any], options: argparse.Namespace) -> list[Provider]:
    extra = dict(pair.split("=", 1) for pair in options.cairn_conf)
    providers = []
    for name in options.providers:
        entry = settings["providers"][name]
        class_name, conf = entry["class"], dict(entry["conf"])
        if name == "cairn":
            class_name = options.provider_class or class_name
            conf |= {CONF_PREFIX + key: value for key, value in extra.items()}
        providers.append(Provider(name, entry["title"], class_name, conf))
    return providers


def _run(
    entry: dict[str, Any],
    provider: Provider,
    number: int,
    options: argparse.Namespace,
    settings: dict[str, Any],
    outcome: dict[str, Any],
) -> bool:
    """Run one workload; return False if it failed, after printing and recording the reason."""
    sizes = _sizes(entry, options) | {"seed": number + 1}
    if provider.name == "cairn" and "cairn_conf" in entry:
        provider = dataclasses.replace(provider, conf=entry["cairn_conf"] | provider.conf)
    record: dict[str, Any] = {
        "workload": entry["name"],
        "provider": provider.name,
        "run": number,
        "sizes": sizes,
    }
    try:
        record["numbers"] = run_workload(
            entry.get("driver", entry["name"]),
            provider,
            {name.replace("_", "-"): value for name, value in sizes.items()},
            heap=settings["heap"],
            shim_jar=options.shim_jar,
        )
    except RunFailedError as error:
        record["error"] = str(error)
        print(f"run {number + 1}  {error}", file=sys.stderr, flush=True)
    else:
        shown = "  ".join(
            f"{name} {value:,.2f}" for name, value in _headline(entry, record["numbers"]).items()
        )
        print(f"run {number + 1}  {entry['name']:24} {provider.title:18} {shown}", flush=True)
    outcome["runs"].append(record)
    return "numbers" in record


def _sizes(entry: dict[str, Any], options: argparse.Namespace) -> dict[str, int]:
    sizes = {"key_count": 1_000_000, "batch_rows": 100_000, "batch_count": 6, "store_count": 1}
    sizes |= {name: entry[name] for name in sizes if name in entry}
    if options.quick:
        sizes |= {name: value for name, value in QUICK.items() if value < sizes[name]}
    if options.key_count:
        sizes["key_count"] = options.key_count
    if options.batch_rows:
        sizes["batch_rows"] = options.batch_rows
    return sizes


def _headline(entry: dict[str, Any], numbers: dict[str, float]) -> dict[str, float]:
    """Return the numbers to print: the rate, or every median and 99th percentile."""
    if entry["measure"] == "rows_per_s":
        return {"rows_per_s": numbers["rows_per_s"]}
    return {name: value for name, value in numbers.items() if "_p50_" in name or "_p99_" in name}


def medians(outcome: dict[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the median of the successful runs by workload, provider and name of the number."""
    collected: dict[str, dict[str, dict[str, list[float]]]] = {}
    for record in outcome["runs"]:
        for name, value in record.get("numbers", {}).items():
            by_provider = collected.setdefault(record["workload"], {}).setdefault(
                record["provider"], {}
            )
            by_provider.setdefault(name, []).append(value)
    return {
        workload: {
            provider: {name: statistics.median(values) for name, values in numbers.items()}
            for provider, numbers in by_provider.items()
        }
        for workload, by_provider in collected.items()
    }


def print_table(outcome: dict[str, Any]) -> None:
    """Print the medians, with Cairn's ratio to each other provider (above 1: Cairn is better)."""
    print("\n" + ", ".join(f"{name} {value}" for name, value in outcome["machine"].items()))
    table = medians(outcome)
    providers = list(outcome["providers"])
    others = [name for name in providers if name != "cairn"] if "cairn" in providers else []
    row = "{:44} {:26}" + " {:>12}" * len(providers) + " {:>14}" * len(others)
    print(row.format("workload", "number", *providers, *(f"cairn/{name}" for name in others)))
    for workload, entry in outcome["workloads"].items():
        by_provider = table.get(workload, {})
        names = next((_headline(entry, numbers) for numbers in by_provider.values()), {})
        for name in names:
            cells = [_cell(by_provider.get(provider, {}).get(name)) for provider in providers]
            ratios = [ratio(by_provider, name, other) for other in others]
            print(row.format(entry["title"][:44], name, *cells, *ratios))


def _cell(value: float | None) -> str:
    if value is None:
        return "failed"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ratio(by_provider: dict[str, dict[str, float]], name: str, other: str) -> str:
    """Return how many times better Cairn is than ``other``: a higher rate or a shorter time."""
    ours, theirs = (by_provider.get(one, {}).get(name) for one in ("cairn", other))
    if not ours or not theirs:
        return ""
    times = ours / theirs if name == "rows_per_s" else theirs / ours
    return f"{times:.2f}x"


if __name__ == "__main__":
    raise SystemExit(main())
