"""Writes the tables of docs/benchmarks.md from result files: no figure there is written by hand.

    python benchmarks/report.py                     update the page
    python benchmarks/report.py --check             exit with 1 if that would change the page

A table is between `<!-- table: NAME -->` and `<!-- end -->`; other text is not changed. The results
are the JSON files of benchmarks/results/: results*.json (run.py; the workloads of one file were run
together), s3-requests.json, memory.json, worker-start.json. A table without its file says so.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driver import HERE, REPOSITORY
from run import medians, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = HERE / "results"
PAGE = REPOSITORY / "docs" / "benchmarks.md"
MIB = 2**20
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    """Update or check the page; return 1 if --check finds a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="change nothing; fail on a difference")
    options = parser.parse_args()
    text = options.page.read_text()
    updated = render(text, options.results)
    if not options.check:
        options.page.write_text(updated)
    elif updated != text:
        print(f"{options.page} differs from its results. Next: python benchmarks/report.py")
        return 1
    return 0


def render(text: str, results: Path) -> str:
    """Return ``text`` with every table filled from ``results``.

    Raises:
        KeyError: the page names an unknown table.
    """

    def fill(match: re.Match[str]) -> str:
        file, table = TABLES[match["name"]]
        sources = [json.loads(source.read_text()) for source in sorted(results.glob(file))]
        if sources:
            content = table(_merged(sources))
        else:
            content = f"*Not measured yet: no `benchmarks/results/{file}`.*"
        return f"{match[1]}\n{content}\n\n{match[3]}"

    return BLOCK.sub(fill, text)


def _merged(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first outcome with the providers, workloads and runs of all.

    Raises:
        ValueError: two of them have the same workload.
    """
    merged = outcomes[0]
    for outcome in outcomes[1:]:
        twice = merged["workloads"].keys() & outcome["workloads"].keys()
        if twice:
            message = f"{', '.join(sorted(twice))}: in two result files"
            raise ValueError(message)
        merged["workloads"] |= outcome["workloads"]
        merged["providers"] |= outcome["providers"]
        merged["runs"] += outcome["runs"]
    return merged


def machine_table(outcome: dict[str, Any]) -> str:
    """Return the facts of the machine."""
    facts = outcome["machine"] | {"heap of each JVM": outcome["heap"]}
    return _table(["what", "value"], [[name, str(value)] for name, value in facts.items()], "ll")


def throughput_table(outcome: dict[str, Any]) -> str:
    """Return the rows per second of each provider, and Cairn's ratio to the others."""
    return _comparison(outcome, "rows_per_s", {"rows_per_s": "rows/s"})


def latency_table(outcome: dict[str, Any]) -> str:
    """Return the medians and 99th percentiles of whole batches, commits and reads."""
    return _comparison(outcome, "latency", None)


def _comparison(outcome: dict[str, Any], measure: str, only: dict[str, str] | None) -> str:
    shown = [name for name, entry in outcome["workloads"].items() if entry["measure"] == measure]
    ran = {run["provider"] for run in outcome["runs"] if run["workload"] in shown}
    titles = {
        name: provider["title"] for name, provider in outcome["providers"].items() if name in ran
    }
    providers = list(titles)
    others = [name for name in providers if name != "cairn"] if "cairn" in providers else []
    head = ["workload", *([] if only else ["number"]), *(titles[name] for name in providers)]
    head += [f"Cairn : {titles[name]}" for name in others]
    rows, table = [], medians(outcome)
    for workload in shown:
        entry = outcome["workloads"][workload]
        by_provider = table.get(workload, {})
        names = only or _percentiles(by_provider)
        for name, title in names.items():
            cells = [
                _number(by_provider.get(provider, {}).get(name))
                if any(_is_of(run, workload, provider) for run in outcome["runs"])
                else ""
                for provider in providers
            ]
            ratios = [ratio(by_provider, name, other) for other in others]
            rows.append([entry["title"], *([] if only else [title]), *cells, *ratios])
    return _table(head, rows, "l" + ("" if only else "l") + "r" * (len(head) - (1 if only else 2)))


def _is_of(run: dict[str, Any], workload: str, provider: str) -> bool:
    return bool(run["workload"] == workload and run["provider"] == provider)


def _percentiles(by_provider: dict[str, dict[str, float]]) -> dict[str, str]:
    names = next(iter(by_provider.values()), {})
    return {
        name: re.sub(r"_(p\d\d)_(\w+)$", r" \1, \2", name).replace("_", " ")
        for name in names
        if re.search(r"_p(50|99)_", name)
    }


def requests_table(content: dict[str, Any]) -> str:
    """Return the S3 requests per batch under ``state/``."""
    rows = []
    for provider, groups in content["counts"].items():
        batches = groups["batches"]
        commit = sum(groups["commit"].values()) / batches
        kinds = ", ".join(f"{count / batches:g} {api}" for api, count in groups["commit"].items())
        snapshot = sum(groups["snapshot"].values()) / batches
        rows.append([provider, str(batches), f"{commit:g}", kinds, f"{snapshot:g}"])
    return _table(
        ["provider", "batches counted", "requests per batch", "which", "snapshots and retention"],
        rows,
        "lrrlr",
    )


def memory_table(content: dict[str, Any]) -> str:
    """Return the largest samples with their bounds."""
    rows = [
        [title, f"{content[largest] / MIB:.1f}", f"{content[bound] / MIB:.1f}"]
        for title, largest, bound in (
            ("cache, accounted bytes", "cache_max_bytes", "cache_bound_bytes"),
            ("worker, growth since its start", "worker_growth_max_bytes", "worker_bound_bytes"),
        )
    ]
    note = f"{content['duration_s']} s, {content['key_count']:,} keys, {content['rows']:,} rows, "
    note += f"{content['sample_count']} samples."
    return _table(["memory", "largest, MiB", "bound, MiB"], rows, "lrr") + f"\n\n{note}"


def worker_start_table(content: dict[str, Any]) -> str:
    """Return the time of each start and their median."""
    times = ", ".join(f"{time:.0f}" for time in content["times_ms"])
    return _table(["median, ms", "runs, ms"], [[f"{content['median_ms']:.0f}", times]], "rl")


def _number(value: float | None) -> str:
    if value is None:
        return "failed"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(head: list[str], rows: list[list[str]], align: str) -> str:
    marks = {"l": "---", "r": "---:"}
    lines = [head, [marks[side] for side in align], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "machine": ("results*.json", machine_table),
    "throughput": ("results*.json", throughput_table),
    "latency": ("results*.json", latency_table),
    "requests": ("s3-requests.json", requests_table),
    "memory": ("memory.json", memory_table),
    "worker-start": ("worker-start.json", worker_start_table),
}


if __name__ == "__main__":
    raise SystemExit(main())
