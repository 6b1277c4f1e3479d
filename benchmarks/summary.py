"""Medians, ratios and names of the numbers of a result file.

A result file has one group: ``machine``, ``heap``, ``is_quick``, ``group``, ``subject``,
``duration_s``, ``providers`` and ``workloads`` by name, and ``runs``, each with ``workload``,
``provider``, ``run`` (its number), ``sizes``, and ``numbers`` or ``error``.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MIB = 2**20
TRANSFORM_ENGINES = {
    "cairn": "Cairn",
    "bulk": "Cairn in bulk",
    "rocksdb": "Spark RocksDB",
    "floor": "dictionary",
    "loop": "dictionary and own loop",
    "groups": "applyInPandasWithState",
    "chunks": "apply_in_arrow_with_state",
}
PROVIDERS_READ = {"cairn": "Cairn", "hdfs": "Spark HDFS-backed", "rocksdb": "Spark RocksDB"}

Numbers = dict[str, float]
ByProvider = dict[str, Numbers]
Names = Callable[[dict[str, Any], ByProvider], dict[str, str]]

RESOURCES = {
    "cpu_seconds": "CPU of all processes, s",
    "cpu_us_per_written_row": "CPU per written row, us",
    "jvm_cpu_us_per_written_row": "of this the JVM, us",
    "worker_cpu_us_per_written_row": "of this Cairn's workers, us",
    "peak_rss_bytes": "peak memory of all processes, MiB",
    "disk_written_bytes": "written to disks, MiB",
    "uploaded_bytes": "uploaded to the checkpoint, MiB",
    "snapshot_bytes": "of these by snapshots, MiB",
    "state_rows": "state, rows",
    "state_bytes": "state, keys and values, MiB",
}


# The same of a query. Spark takes snapshots once a minute: a run of a fast provider may have none.
QUERY_RESOURCES = {
    name: title
    for name, title in RESOURCES.items()
    if name not in {"uploaded_bytes", "snapshot_bytes"}
} | {"commit_bytes": "uploaded by commits, MiB"}


def medians(outcome: dict[str, Any]) -> dict[str, ByProvider]:
    """Return the median of the successful runs by workload, provider and name of the number."""
    collected: dict[str, dict[str, dict[str, list[float]]]] = {}
    for record in outcome["runs"]:
        has_workers = outcome["providers"][record["provider"]].get("family") == "cairn"
        for name, value in with_shares(record.get("numbers", {}), has_workers=has_workers).items():
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


def with_shares(numbers: Numbers, *, has_workers: bool) -> Numbers:
    """Return the numbers of a run, with what JVM, workers and commits have of their sums.

    The JVM includes the short-lived processes that Spark starts.
    """
    added = {}
    if "uploaded_bytes" in numbers:
        added["commit_bytes"] = numbers["uploaded_bytes"] - numbers["snapshot_bytes"]
    rows = numbers.get("written_rows", 0)
    if rows and "jvm_cpu_seconds" in numbers:
        jvm_seconds = numbers["jvm_cpu_seconds"]
        added["jvm_cpu_us_per_written_row"] = jvm_seconds * 1e6 / rows
        if has_workers:
            workers_seconds = numbers["cpu_seconds"] - jvm_seconds
            added["worker_cpu_us_per_written_row"] = workers_seconds * 1e6 / rows
    return numbers | added


def run_counts(outcome: dict[str, Any]) -> tuple[int, int]:
    """Return of how many runs the medians are: at least, and at most."""
    counts = Counter(
        (run["workload"], run["provider"]) for run in outcome["runs"] if "numbers" in run
    )
    return min(counts.values(), default=0), max(counts.values(), default=0)


def differing_counts(outcome: dict[str, Any]) -> list[str]:
    """Return for each run of a workload in which the providers wrote, or have, different rows.

    Not those that store nothing: their queries find nothing.
    """
    counts: dict[tuple[str, str, int], dict[str, float]] = {}
    for run in outcome["runs"]:
        for name, title in (("written_rows", "rows written"), ("state_rows", "rows of state")):
            count = run.get("numbers", {}).get(name)
            if count and outcome["providers"][run["provider"]]["family"] != "nothing":
                key = (title, run["workload"], run["run"])
                counts.setdefault(key, {})[run["provider"]] = count
    return [
        f"{title} in run {number + 1} of {workload}: {by_provider}"
        for (title, workload, number), by_provider in counts.items()
        if len(set(by_provider.values())) > 1
    ]


def shown_numbers(entry: dict[str, Any], by_provider: ByProvider) -> dict[str, str]:
    """Return the titles of a workload's numbers by their names.

    They are those of its ``numbers`` in bench.toml; else the rate, or all medians and 99th
    percentiles.
    """
    if "numbers" in entry:
        named: dict[str, str] = entry["numbers"]
        return named
    if entry["measure"] == "rows_per_s":
        return {"rows_per_s": "rows/s"}
    return {
        name: re.sub(r"_(p\d\d)_(\w+)$", r" \1, \2", name).replace("_", " ")
        for name in next(iter(by_provider.values()), {})
        if re.search(r"_p(50|99)_", name)
    }


def subject_of(outcome: dict[str, Any]) -> str | None:
    """Return the provider whose ratios are shown: the group's, else Cairn, else none."""
    for name in (outcome.get("subject"), "cairn"):
        if name in outcome["providers"]:
            return str(name)
    return None


@dataclass(frozen=True)
class Line:
    """One number of one workload, as tables show it.

    Attributes:
        workload: title of the workload.
        number: title of the number.
        cells: the number under each provider; empty if it was not measured there.
        ratios: how many times better the subject is than each other provider.
    """

    workload: str
    number: str
    cells: list[str]
    ratios: list[str]


@dataclass(frozen=True)
class Comparison:
    """A table of the providers of a result file.

    Attributes:
        providers: titles of the providers.
        ratios: titles of the ratios.
        lines: the table's lines.
    """

    providers: list[str]
    ratios: list[str]
    lines: list[Line]


def compare_figures(outcome: dict[str, Any]) -> Comparison:
    """Return the numbers that each workload is about; a provider without them has failed."""
    return _compare(outcome, shown_numbers, is_due=True)


def compare_resources(outcome: dict[str, Any]) -> Comparison:
    """Return CPU, memory and bytes of each workload, where they were measured."""
    return _compare(outcome, lambda _entry, found: _resources(found), is_due=False)


def _resources(by_provider: ByProvider) -> dict[str, str]:
    is_query = any("spark_addBatch_ms" in numbers for numbers in by_provider.values())
    return QUERY_RESOURCES if is_query else RESOURCES


def compare_times(outcome: dict[str, Any]) -> Comparison:
    """Return the times of a batch's parts: Spark's ``addBatch``, Cairn's ``commitMs`` and so on."""
    return _compare(outcome, lambda _entry, found: _reported_times(found), is_due=False)


def _reported_times(by_provider: ByProvider) -> dict[str, str]:
    names = sorted({name for numbers in by_provider.values() for name in numbers})
    titles = {}
    for name in names:
        if phase := re.fullmatch(r"spark_(\w+)_ms", name):
            titles[name] = f"Spark's {phase[1]}, ms"
    for name in names:
        if own := re.fullmatch(r"cairn([A-Z])(\w*Ms)", name):
            titles[name] = own[1].lower() + own[2]
    return titles


def _compare(outcome: dict[str, Any], names_of: Names, *, is_due: bool) -> Comparison:
    table, subject = medians(outcome), subject_of(outcome)
    ran = {run["provider"] for run in outcome["runs"]}
    if not is_due:
        ran = {
            provider
            for workload, found in table.items()
            for provider, numbers in found.items()
            if numbers.keys() & names_of(outcome["workloads"][workload], found).keys()
        }
    providers = [name for name in outcome["providers"] if name in ran]
    others = [name for name in providers if name != subject] if subject in providers else []
    lines = []
    for workload, entry in outcome["workloads"].items():
        by_provider = table.get(workload, {})
        tried = {run["provider"] for run in outcome["runs"] if run["workload"] == workload}
        for name, title in names_of(entry, by_provider).items():
            found = {one: numbers[name] for one, numbers in by_provider.items() if name in numbers}
            if not found and not is_due:
                continue
            missing = {one: "failed" if is_due and one in tried else "" for one in providers}
            cells = missing | {one: as_text(name, value) for one, value in found.items()}
            ratios = [_ratio(name, found.get(subject or ""), found.get(one)) for one in others]
            lines.append(Line(entry["title"], title, [cells[one] for one in providers], ratios))
    titles = {name: provider["title"] for name, provider in outcome["providers"].items()}
    return Comparison(
        [titles[name] for name in providers],
        [f"{titles[subject or '']} : {titles[name]}" for name in others],
        lines,
    )


def _ratio(name: str, ours: float | None, theirs: float | None) -> str:
    """Return how many times better ours is: a higher rate, or less of all else."""
    if not ours or not theirs:
        return ""
    times = ours / theirs if name.endswith("rows_per_s") else theirs / ours
    return f"{times:.2f}x"


def as_text(name: str, value: float) -> str:
    """Return a number as it is shown; bytes in MiB."""
    shown = value / MIB if name.endswith("_bytes") else value
    return f"{shown:,.0f}" if shown >= 100 else f"{shown:.3g}"
