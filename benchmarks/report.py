"""Writes the tables of README.md, docs/benchmarks.md and benchmarks/results/*.md from result files.

    python benchmarks/report.py                     update the pages
    python benchmarks/report.py --check             exit with 1 if that would change a page

A table is between `<!-- table: NAME -->` and `<!-- end -->`; other text is not changed. The results
are the JSON files of benchmarks/results/: results-GROUP.json (run.py), s3-requests.json,
s3-requests-idle.json, memory.json, gil-hold.json, worker-start.json, reading.json, moving.json,
moving-large.json. A table without its file says so. A group has three tables: GROUP,
GROUP-resources and GROUP-times. Two tables are of all groups: `summary` has one line of each of
four groups, `pages` the pages of all results. A chart of charts.py is between
`<!-- chart: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charts import IMAGES, charts
from driver import HERE, REPOSITORY
from summary import (
    MIB,
    PROVIDERS_READ,
    TRANSFORM_ENGINES,
    Comparison,
    compare_figures,
    compare_resources,
    compare_times,
    medians,
    run_counts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = HERE / "results"
PAGES = (REPOSITORY / "README.md", REPOSITORY / "docs" / "benchmarks.md", *RESULTS.glob("*.md"))
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
CHART = re.compile(r"(<!-- chart: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    """Update or check the pages; return 1 if --check finds a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, action="append", help="default: all pages")
    parser.add_argument("--check", action="store_true", help="change nothing; fail on a difference")
    options = parser.parse_args()
    differs = False
    for page in options.page or PAGES:
        text = page.read_text()
        images = os.path.relpath(IMAGES, page.resolve().parent)
        updated = render(text, options.results, images)
        if not options.check:
            page.write_text(updated)
        elif updated != text:
            print(f"{page} differs from its results. Next: python benchmarks/report.py")
            differs = True
    return 1 if differs else 0


def render(text: str, results: Path, images: str) -> str:
    """Return ``text`` with every table and chart filled from ``results``.

    Args:
        text: of a page.
        results: the folder with the result files.
        images: the folder with the charts, as seen from the page.

    Raises:
        KeyError: the page names an unknown table.
    """

    def fill(match: re.Match[str]) -> str:
        if match["name"] in OVERVIEWS:
            return f"{match[1]}\n{OVERVIEWS[match['name']](results)}\n\n{match[3]}"
        file, table = _source(match["name"])
        source = results / file
        if source.exists():
            content = table(json.loads(source.read_text()))
        else:
            content = f"*Not measured yet: no `benchmarks/results/{file}`.*"
        return f"{match[1]}\n{content}\n\n{match[3]}"

    return CHART.sub(lambda match: _with_picture(match, results, images), BLOCK.sub(fill, text))


def _with_picture(match: re.Match[str], results: Path, images: str) -> str:
    """Return the picture of a chart; nothing where its results are not there."""
    chart = charts(results).get(match["name"])
    if chart is None:
        return f"{match[1]}{match[3]}"
    file = f"{images}/{match['name']}"
    return (
        f"{match[1]}<picture>\n"
        f'  <source media="(prefers-color-scheme: dark)" srcset="{file}-dark.svg">\n'
        f'  <img alt="{chart.title}" src="{file}-light.svg">\n'
        f"</picture>\n{match[3]}"
    )


def _source(name: str) -> tuple[str, Callable[[dict[str, Any]], str]]:
    """Return the file and the form of a table.

    Raises:
        KeyError: the page names an unknown table.
    """
    if name in TABLES:
        return TABLES[name]
    group, _, part = name.partition("-")
    if group not in tomllib.loads((HERE / "bench.toml").read_text())["groups"]:
        raise KeyError(name)
    return f"results-{group}.json", GROUP_TABLES[part]


def summary_table(results: Path) -> str:
    """Return one line of each of four groups, for those who read no other table."""
    rows = []
    for title, group, workload, number, ours, peers in SUMMARY:
        outcome = json.loads((results / f"results-{group}.json").read_text())
        by_provider = medians(outcome)[workload]
        cells = [f"{by_provider[name][number]:,.0f}" if name else "" for name in (ours, *peers)]
        commit = outcome["machine"]["commit"]
        rows.append([f"[{title}]({RESULTS_PATH}/{group}.md)", *cells, f"`{commit}`"])
    head = ["", "Cairn", "Spark RocksDB", "Spark RocksDB, tuned", "commit"]
    return _table(head, rows, "lrrrl")


def pages_table(results: Path) -> str:
    """Return the pages of results with the commits and the numbers of runs of their tables."""
    groups = tomllib.loads((HERE / "bench.toml").read_text())["groups"]
    rows = []
    for page in sorted(set(RESULTS.glob("*.md")) - {RESULTS / "README.md"}):
        text = page.read_text()
        title = text.partition("\n")[0].removeprefix("# ")
        files = dict.fromkeys(_source(match["name"])[0] for match in BLOCK.finditer(text))
        contents = [
            json.loads((results / file).read_text()) for file in files if (results / file).exists()
        ]
        commits = dict.fromkeys(one["machine"].get("commit", "an older one") for one in contents)
        is_group = page.stem in groups and contents
        runs = "-".join(str(n) for n in sorted(set(run_counts(contents[0])))) if is_group else ""
        link = f"[{title}](../{RESULTS_PATH}/{page.name})"
        named = re.findall(r"at commit `(\w+)`", text)  # of a page without result files
        rows.append([link, ", ".join(commits or named), runs])
    return _table(["results", "commit", "runs"], rows, "llr")


def machine_table(outcome: dict[str, Any]) -> str:
    """Return the facts of the machine."""
    facts = outcome["machine"] | {"heap of each JVM": outcome["heap"]}
    rows = [[name, str(value)] for name, value in facts.items() if name != "commit"]
    return _table(["what", "value"], rows, "ll")


def figures_table(outcome: dict[str, Any]) -> str:
    """Return what each workload is about, with the ratios and the origin of the numbers."""
    table = _comparison(compare_figures(outcome))
    least, most = run_counts(outcome)
    runs = str(most) if least == most else f"{least} to {most}"
    what = "One run" if runs == "1" else f"Medians of {runs} runs"
    return f"{table}\n\n{what} {_origin(outcome)}."


def _origin(content: dict[str, Any]) -> str:
    """Return where a result is from; older result files do not say it."""
    machine = content.get("machine", {})
    if "commit" not in machine:
        return "at an older commit"
    return f"at commit `{machine['commit']}`, on {machine['processor']}"


def resources_table(outcome: dict[str, Any]) -> str:
    """Return CPU, memory and bytes of each workload."""
    return _comparison(compare_resources(outcome))


def times_table(outcome: dict[str, Any]) -> str:
    """Return the times of a batch's parts that Cairn, or Spark, reports."""
    return _comparison(compare_times(outcome))


def _comparison(compared: Comparison) -> str:
    """Return a table; the column of the number is left out where it is rows/s in all lines."""
    if not compared.lines:
        return "*Not measured: the result file has none of these numbers.*"
    has_number = any(line.number != "rows/s" for line in compared.lines)
    head = ["workload", *(["number"] if has_number else []), *compared.providers, *compared.ratios]
    rows = [
        [line.workload, *([line.number] if has_number else []), *line.cells, *line.ratios]
        for line in compared.lines
    ]
    left = 2 if has_number else 1
    return _table(head, rows, "l" * left + "r" * (len(head) - left))


def requests_table(content: dict[str, Any]) -> str:
    """Return the S3 requests per batch, and those of a start and a restart with one batch."""
    rows = []
    for provider, groups in content["counts"].items():
        batches = groups["batches"]
        kinds = ", ".join(f"{count / batches:g} {api}" for api, count in groups["commit"].items())
        per_batch = [
            f"{sum(groups.get(name, {}).values()) / batches:g}"
            for name in ("commit", "snapshot", "spark_state", "elsewhere")
        ]
        starts = [
            " + ".join(
                str(sum(groups[phase][name].values())) for name in ("spark_state", "elsewhere")
            )
            if phase in groups
            else ""
            for phase in ("start", "restart")
        ]
        rows.append([provider, str(batches), per_batch[0], kinds, *per_batch[1:], *starts])
    head = [
        "provider",
        "batches counted",
        "commits, per batch",
        "which",
        "snapshots and retention",
        "`state/`, by Spark itself",
        "Spark's other files",
        "by Spark at a start",
        "at a restart",
    ]
    note = f"{content['partitions']} partitions"
    if content.get("busy_partitions", content["partitions"]) != content["partitions"]:
        note += f", of which {content['busy_partitions']} have rows"
    note += f"; checkpoint format {content['format']}; {_origin(content)}."
    return f"{_table(head, rows, 'lrrlrrrrr')}\n\n{note}"


def memory_table(content: dict[str, Any]) -> str:
    """Return the largest samples with their bounds."""
    rows = [
        [title, f"{content[largest] / MIB:.1f}", f"{content[bound] / MIB:.1f}"]
        for title, largest, bound in (
            ("cache, accounted bytes", "cache_max_bytes", "cache_bound_bytes"),
            ("worker, growth since its start", "worker_growth_max_bytes", "worker_bound_bytes"),
        )
    ]
    note = f"{content['key_count']:,} keys, {content['rows']:,} rows; "
    note += f"{content.get('fill_s', 0)} s of fill and {content['duration_s']} s of work, "
    note += f"{content['sample_count']} samples;\n{_origin(content)}."
    return _table(["memory", "largest, MiB", "bound, MiB"], rows, "lrr") + f"\n\n{note}"


def worker_start_table(content: dict[str, Any]) -> str:
    """Return the time of each start and their median."""
    times = ", ".join(f"{time:.0f}" for time in content["times_ms"])
    table = _table(["median, ms", "runs, ms"], [[f"{content['median_ms']:.0f}", times]], "rl")
    return f"{table}\n\nMeasured {_origin(content)}."


def gil_hold_table(content: dict[str, Any]) -> str:
    """Return the median and the longest wait for each call."""
    rows = [
        [call["call"], f"{statistics.median(call['waits_ms']):.2f}", f"{max(call['waits_ms']):.2f}"]
        for call in content["calls"]
    ]
    runs = len(content["calls"][0]["waits_ms"])
    table = _table(["call", "median, ms", "longest, ms"], rows, "lrr")
    note = f"{content['key_count']:,} keys, {runs} calls, {_origin(content)}."
    return f"{table}\n\n{note}"


def reading_table(content: dict[str, Any]) -> str:
    """Return the medians of both readers beside each other, by provider and key."""
    runs = content["runs"]
    rows, counts = [], set()
    for provider, key in dict.fromkeys((run["provider"], run["key"]) for run in runs):
        cells = [PROVIDERS_READ[provider], key]
        medians_of: dict[str, list[float]] = {}
        for reader in ("cairn", "spark"):
            kind = (provider, key, reader)
            of_kind = [one for one in runs if (one["provider"], one["key"], one["reader"]) == kind]
            counts.add(len(of_kind))
            medians_of[reader] = [
                statistics.median(run[name] for run in of_kind)
                for name in ("read_s", "whole_s", "peak_mib")
            ]
        ours, theirs = medians_of["cairn"], medians_of["spark"]
        cells += [f"{content['rows'] / one[0]:,.0f}" for one in (ours, theirs)]
        cells.append(f"{theirs[0] / ours[0]:.1f}x")
        for place, form in ((0, ".2f"), (1, ".2f"), (2, ",.0f")):
            cells += [format(one[place], form) for one in (ours, theirs)]
        rows.append(cells)
    head = ["state of", "key", "rows/s, Cairn", "Spark", "Cairn : Spark"]
    for number in ("without start, s", "whole process, s", "peak, MiB"):
        head += [f"{number}, Cairn", "Spark"]
    table = _table(head, rows, "llrrrrrrrrr")
    shown = "-".join(map(str, sorted(counts)))
    return f"{table}\n\n{content['rows']:,} keys, medians of {shown} runs {_origin(content)}."


def moving_table(content: dict[str, Any]) -> str:
    """Return the medians of moves, by source and target."""
    runs = content["runs"]
    rows, counts = [], set()
    for source, target in dict.fromkeys((run["source"], run["target"]) for run in runs):
        of_kind = [one for one in runs if (one["source"], one["target"]) == (source, target)]
        counts.add(len(of_kind))
        whole_s, cpu_s, peak_mib = (
            statistics.median(run[name] for run in of_kind)
            for name in ("whole_s", "cpu_s", "peak_mib")
        )
        cells = [PROVIDERS_READ[source], PROVIDERS_READ[target]]
        cells += [f"{content['rows'] / whole_s:,.0f}", f"{whole_s:.1f}", f"{cpu_s:.1f}"]
        rows.append([*cells, f"{peak_mib:,.0f}"])
    head = ["from", "to", "rows/s", "whole process, s", "CPU, s", "peak, MiB"]
    table = _table(head, rows, "llrrrr")
    shown = "-".join(map(str, sorted(counts)))
    return f"{table}\n\n{content['rows']:,} keys, medians of {shown} runs {_origin(content)}."


def transform_table(content: dict[str, Any]) -> str:
    """Return the rows/s of each engine with their ratio to Spark's RocksDB, and the CPU time."""
    runs = content["runs"]
    engines = list(dict.fromkeys(run["engine"] for run in runs))
    rows = []
    for kind in dict.fromkeys((run["workload"], run["form"]) for run in runs):
        by_engine = [
            [
                run
                for run in runs
                if (run["workload"], run["form"], run["engine"]) == (*kind, engine)
            ]
            for engine in engines
        ]
        rates, cpu_us = (
            [
                scale * statistics.median(run[number] for run in of_engine) if of_engine else None
                for of_engine in by_engine
            ]
            for number, scale in (("rows_per_s", 1), ("cpu_s_per_batch", 1e6 / content["rows"]))
        )
        base = rates[engines.index("rocksdb")] if "rocksdb" in engines else None
        ratios = [f" ({rate / base:.1f}x)" if rate and base else "" for rate in rates]
        shown = [
            f"{rate:,.0f}{ratio}" if rate else "" for rate, ratio in zip(rates, ratios, strict=True)
        ]
        rows.append([*kind, *shown, *(f"{used:.0f}" if used else "" for used in cpu_us)])
    titles = [TRANSFORM_ENGINES[engine] for engine in engines]
    head = ["state", "form", *(f"rows/s, {title}" for title in titles)]
    head += [f"CPU us per row, {title}" for title in titles]
    table = _table(head, rows, "ll" + "r" * (len(head) - 2))
    kinds = Counter((run["workload"], run["form"], run["engine"]) for run in runs)
    shown_counts = "-".join(map(str, sorted(set(kinds.values()))))
    note = f"{content['keys']:,} keys, batches of {content['rows']:,} rows, medians of"
    return f"{table}\n\n{note} {shown_counts} runs {_origin(content)}."


def _table(head: list[str], rows: list[list[str]], align: str) -> str:
    marks = {"l": "---", "r": "---:"}
    lines = [head, [marks[side] for side in align], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


RESULTS_PATH = "benchmarks/results"  # from README.md
# Title, group, workload, number, Cairn's provider, and the two of Spark's.
SPARK = ("rocksdb", "rocksdb_tuned")
SUMMARY = (
    ("upserts: get + put, rows/s", "rates", "upserts", "rows_per_s", "cairn", SPARK),
    (
        "a whole query: aggregation, rows/s",
        "queries",
        "query_aggregation",
        "rows_per_s",
        "cairn_prefetch",
        SPARK,
    ),
    (
        "a store of 1 M keys from its changelogs, ms",
        "loads",
        "load",
        "changelogs_ms",
        "cairn",
        SPARK,
    ),
    (
        "a batch of 20,000 rows on S3 at 20 ms, ms",
        "s3",
        "s3_batches",
        "batch_p50_ms",
        "cairn",
        ("", "rocksdb_tuned_s3"),
    ),
)
OVERVIEWS: dict[str, Callable[[Path], str]] = {"summary": summary_table, "pages": pages_table}
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "machine": ("results-rates.json", machine_table),
    "requests": ("s3-requests.json", requests_table),
    "requests-idle": ("s3-requests-idle.json", requests_table),
    "memory": ("memory.json", memory_table),
    "gil-hold": ("gil-hold.json", gil_hold_table),
    "worker-start": ("worker-start.json", worker_start_table),
    "reading": ("reading.json", reading_table),
    "moving": ("moving.json", moving_table),
    "moving-large": ("moving-large.json", moving_table),
    "transform": ("transform.json", transform_table),
}
GROUP_TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "": figures_table,
    "resources": resources_table,
    "times": times_table,
}


if __name__ == "__main__":
    raise SystemExit(main())
