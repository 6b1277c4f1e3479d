"""Measures Cairn, Spark's own providers and a store that stores nothing, on this machine.

    python benchmarks/run.py                  the default groups, medians of 5 alternating runs
    python benchmarks/run.py --quick          small sizes, one run: shows that it works
    python benchmarks/run.py --group queries s3
    python benchmarks/run.py --workloads upserts scan --providers cairn rocksdb
    python benchmarks/run.py --list

Every run uses a new JVM. The numbers of each group go to its file `results-<group>.json`, from
which report.py writes the tables of the pages.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import result_file
from driver import (
    BUILD,
    CONF_PREFIX,
    SHIM_JAR,
    Jvm,
    Provider,
    RunFailedError,
    cairn_conf,
    compile_driver,
    interrupt_at_sigterm,
    load_provider,
    load_settings,
    require_shim,
    run_workload,
)
from s3_storage import DistantS3, distant_s3, s3a_jars
from streams import run_stream
from summary import (
    compare_figures,
    compare_resources,
    compare_times,
    differing_counts,
    shown_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = {
    "key_count": 1_000_000,
    "batch_rows": 100_000,
    "batch_count": 6,
    "store_count": 1,
    "partition_count": 2,
    "warm_up_batches": 3,  # of queries
}
QUICK = {
    "key_count": 50_000,
    "batch_rows": 5_000,
    "batch_count": 5,
    "store_count": 40,
    "warm_up_batches": 3,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the selected groups or workloads; return 1 if a run failed."""
    settings = load_settings()
    parser = _parser(settings)
    options = parser.parse_args(arguments)
    if options.list:
        _list(settings)
        return 0
    options.runs = options.runs or (1 if options.quick else 5)
    selected = _selected(settings, options)
    if not selected:
        parser.error("none of these workloads is in these groups; see --list")
    require_shim(options.shim_jar)
    interrupt_at_sigterm()
    compile_driver()
    failures = sum(
        Group(name, workloads, settings, options).run() for name, workloads in selected.items()
    )
    if failures:
        print(f"FAILED: {failures}")
    return 1 if failures else 0


def _parser(settings: dict[str, Any]) -> argparse.ArgumentParser:
    workloads = [entry["name"] for entry in settings["workload"]]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    named: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    parser.add_argument("--list", action="store_true", help="list groups and workloads; run none")
    parser.add_argument(
        "--group",
        choices=[*settings["groups"], "all"],
        help="groups to run (default: those marked in the list)",
        **named,
    )
    parser.add_argument("--workloads", choices=workloads, help="workloads to run", **named)
    parser.add_argument(
        "--providers",
        choices=list(settings["providers"]),
        help="providers to measure (default: those of the group)",
        **named,
    )
    parser.add_argument(
        "--runs", type=int, help="runs of each; their median is shown (default 5; quick 1)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and one run")
    for name, default in SIZES.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(
            option, type=int, help=f"of every workload (default {default:,}, or the workload's)"
        )
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
        "--results", type=Path, default=BUILD, help="folder of the result files (%(default)s)"
    )
    return parser


def _list(settings: dict[str, Any]) -> None:
    for name, group in settings["groups"].items():
        mark = "  (default)" if group.get("is_default") else ""
        print(f"{name}: {group['title']}{mark}; {', '.join(group['providers'])}")
        for entry in settings["workload"]:
            if entry["group"] == name:
                print(f"    {entry['name']:26} {entry['title']}")


def _selected(
    settings: dict[str, Any], options: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """Return the workloads to run by their groups, in the order of bench.toml."""
    if options.group:
        groups = set(settings["groups"]) if "all" in options.group else set(options.group)
    elif options.workloads:
        groups = set(settings["groups"])
    else:
        groups = {name for name, group in settings["groups"].items() if group.get("is_default")}
    selected: dict[str, list[dict[str, Any]]] = {}
    for entry in settings["workload"]:
        is_named = not options.workloads or entry["name"] in options.workloads
        if entry["group"] in groups and is_named:
            selected.setdefault(entry["group"], []).append(entry)
    return selected


class Group:
    """The runs of one group, which alternate over its providers, and their result file."""

    def __init__(
        self,
        name: str,
        workloads: list[dict[str, Any]],
        settings: dict[str, Any],
        options: argparse.Namespace,
    ) -> None:
        self._options = options
        given = {name: getattr(options, name) for name in SIZES}
        self._given = {name: value for name, value in given.items() if value}
        self._settings = settings
        self._jvm = Jvm(heap=settings["heap"], shim_jar=options.shim_jar)
        self._entry = settings["groups"][name]
        self._workloads = workloads
        self._providers = self._load_providers()
        self._result = options.results / f"results-{name}.json"
        self._outcome: dict[str, Any] = {
            "machine": machine.describe(BUILD),
            "heap": settings["heap"],
            "is_quick": options.quick,
            "group": name,
            "subject": self._entry.get("subject", "cairn"),
            "duration_s": 0,
            "providers": {one.name: dataclasses.asdict(one) for one in self._providers},
            "workloads": {entry["name"]: entry for entry in workloads},
            "runs": [],
        }

    def run(self) -> int:
        """Run everything and print the table; return the number of failed runs."""
        print(f"\n== {self._entry['title']}", flush=True)
        start, failures = time.monotonic(), 0
        with self._storage() as storage:
            for number_of_run in range(self._options.runs):
                # The order of the providers rotates: a machine that slows down affects all.
                turn = number_of_run % max(1, len(self._providers))
                order = self._providers[turn:] + self._providers[:turn]
                for entry in self._workloads:
                    for provider in order:
                        if provider.name not in entry.get("providers", [provider.name]):
                            continue
                        failures += not self._run_one(entry, provider, number_of_run, storage)
                        self._outcome["duration_s"] = round(time.monotonic() - start)
                        result_file.write(self._result, self._outcome)
        print_tables(self._outcome)
        differences = differing_counts(self._outcome)
        for difference in differences:
            print(f"DIFFERENT: {difference}", file=sys.stderr)
        print(f"\nresults: {self._result}", flush=True)
        return failures + len(differences)

    def _load_providers(self) -> list[Provider]:
        options = self._options
        extra = cairn_conf(options.cairn_conf)
        providers = []
        for name in options.providers or self._entry["providers"]:
            provider = load_provider(self._settings, name)
            if provider.family == "cairn":
                provider = dataclasses.replace(
                    provider,
                    class_name=options.provider_class or provider.class_name,
                    conf=provider.conf | extra,
                )
            providers.append(provider)
        return providers

    @contextlib.contextmanager
    def _storage(self) -> Iterator[DistantS3 | None]:
        """Run the S3 server of the group's workloads, if they need one."""
        delays = {entry["latency_ms"] for entry in self._workloads if "storage" in entry}
        if not delays:
            yield None
            return
        is_audited = any("stream" in entry for entry in self._workloads)
        with distant_s3(max(delays), is_audited=is_audited) as storage:
            yield storage

    def _run_one(
        self,
        entry: dict[str, Any],
        provider: Provider,
        number_of_run: int,
        storage: DistantS3 | None,
    ) -> bool:
        """Run one workload; return False if it failed, after printing and recording the reason."""
        sizes = sizes_of(entry, is_quick=self._options.quick) | self._given
        sizes["seed"] = number_of_run + 1
        record: dict[str, Any] = {
            "workload": entry["name"],
            "provider": provider.name,
            "run": number_of_run,
            "sizes": sizes,
            "load": round(os.getloadavg()[0], 1),  # of the minute before
        }
        try:
            record["numbers"] = measure(entry, provider, sizes, self._jvm, storage)
        except RunFailedError as error:
            record["error"] = str(error)
            print(f"run {number_of_run + 1}  {error}", file=sys.stderr, flush=True)
        else:
            numbers = record["numbers"]
            shown = "  ".join(
                f"{title} {numbers[name]:,.2f}"
                for name, title in shown_numbers(entry, {provider.name: numbers}).items()
            )
            print(f"run {number_of_run + 1}  {entry['name']:24} {provider.title:26} {shown}")
            sys.stdout.flush()
        self._outcome["runs"].append(record)
        return "numbers" in record


def measure(
    entry: dict[str, Any],
    provider: Provider,
    sizes: dict[str, int],
    jvm: Jvm,
    storage: DistantS3 | None = None,
) -> dict[str, float]:
    """Run a workload of bench.toml once; return its numbers.

    Args:
        entry: the workload.
        provider: the provider, without the workload's settings for its family.
        sizes: those of the workload, and the seed.
        jvm: what the JVM has; the checkpoint is the workload's.
        storage: the S3 server, if the workload needs one.

    Raises:
        RunFailedError: the run gave no numbers.
    """
    driver = entry.get("driver", entry["name"])
    arguments: dict[str, object] = {name.replace("_", "-"): size for name, size in sizes.items()}
    arguments["rows"] = entry.get("rows", "longs")
    if storage is not None and "storage" in entry:
        provider = dataclasses.replace(provider, conf=storage.conf() | provider.conf)
        jvm = dataclasses.replace(jvm, jars=s3a_jars(), checkpoint=storage.new_checkpoint())
    if "stream" in entry:
        return run_stream(entry, _with(provider, entry.get("conf")), sizes, jvm, storage)
    if "fill_conf" not in entry:
        return run_workload(driver, _with(provider, entry.get("conf")), arguments, jvm)
    checkpoint = BUILD / f"filled-{os.getpid()}"  # two benchmarks may run at once
    shutil.rmtree(checkpoint, ignore_errors=True)
    jvm = dataclasses.replace(jvm, checkpoint=checkpoint.as_uri())
    try:
        fill = {**arguments, "batch-count": 0}
        run_workload(driver, _with(provider, entry["fill_conf"]), fill, jvm)
        return run_workload(driver, _with(provider, entry.get("conf")), arguments, jvm)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _with(provider: Provider, by_family: dict[str, dict[str, str]] | None) -> Provider:
    """Return the provider with a workload's settings for its family, below its own."""
    more = (by_family or {}).get(provider.family, {})
    return dataclasses.replace(provider, conf=more | provider.conf)


def sizes_of(entry: dict[str, Any], *, is_quick: bool) -> dict[str, int]:
    """Return the sizes of a workload of bench.toml."""
    sizes = SIZES | {name: entry[name] for name in SIZES if name in entry}
    if is_quick:
        sizes |= {name: value for name, value in QUICK.items() if value < sizes[name]}
    return sizes


def print_tables(outcome: dict[str, Any]) -> None:
    """Print figures, resources and reported times; a ratio above 1: the first is better."""
    print("\n" + ", ".join(f"{name} {value}" for name, value in outcome["machine"].items()))
    for compare in (compare_figures, compare_resources, compare_times):
        table = compare(outcome)
        row = "{:44.44} {:33.33}" + " {:>26.26}" * len(table.providers + table.ratios)
        if table.lines:
            print("\n" + row.format("workload", "number", *table.providers, *table.ratios))
        for line in table.lines:
            print(row.format(line.workload, line.number, *line.cells, *line.ratios))


if __name__ == "__main__":
    raise SystemExit(main())
