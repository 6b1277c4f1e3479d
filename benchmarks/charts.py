"""Draws the charts of README.md and docs/benchmarks.md from result files, as SVG: one per table.

    python benchmarks/charts.py                     write docs/images/*.svg
    python benchmarks/charts.py --check             exit with 1 if that would change a chart

Each chart has a form for a light and one for a dark page. A bar's length and label are medians of
benchmarks/results/, as in the tables of report.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from driver import HERE, REPOSITORY, load_settings
from summary import PROVIDERS_READ, TRANSFORM_ENGINES, as_text, medians, shown_numbers

RESULTS = HERE / "results"
IMAGES = REPOSITORY / "docs" / "images"
FONT = "-apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
WIDTH, BARS_FROM, LABEL_WIDTH, LETTER_PX = 760, 214, 176, 6.3
BAR_PX, BAR_GAP, GROUP_GAP, TOP = 15, 3, 14, 84
# Text, fainter text, axis; then one colour per bar or part, in the order of the legend.
THEMES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "light": ("#1f2328", "#59636e", "#d1d9e0", ("#0b6bcb", "#8c96a1", "#c3cad2", "#bc6c25")),
    "dark": ("#f0f6fc", "#9198a1", "#3d444d", ("#4ea1ff", "#8b949e", "#566170", "#e0a15e")),
}


OWN, SPARK = "cairn_prefetch", ("rocksdb", "rocksdb_tuned")
# Name of the chart: group, number, providers.
GROUPS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "stores": ("rates", "rows_per_s", ("cairn", *SPARK)),
    "shapes": ("shapes", "rows_per_s", ("cairn", *SPARK)),
    "queries": ("queries", "rows_per_s", (OWN, *SPARK)),
    "large": ("large", "rows_per_s", (OWN, "rocksdb")),
    "large_operators": ("large_operators", "rows_per_s", (OWN, "rocksdb")),
    "loads": ("loads", "", ("cairn", *SPARK)),
    "s3": ("s3", "batch_p50_ms", ("cairn", "nothing_files", "rocksdb_tuned_s3")),
    "nexmark": ("nexmark", "cpu_s_per_million", (OWN, "rocksdb", "hdfs")),
    "nexmark_adapted": ("nexmark_adapted", "cpu_s_per_million", (OWN, "rocksdb")),
    "nexmark_large": ("nexmark_large", "cpu_s_per_million", (OWN, "rocksdb")),
    "nexmark_s3": ("nexmark_s3", "batch_p50_ms", (OWN, "rocksdb_tuned_s3", "hdfs")),
    "nexmark_recovery": ("nexmark_recovery", "recovery_ms", (OWN, "rocksdb", "hdfs")),
    "shufflebench": ("shufflebench", "rows_per_s", (OWN, *SPARK)),
    "engines": ("engines", "rows_per_s", (OWN, "rocksdb_tuned", "flink", "flink_minibatch")),
    "engines_latency": (
        "engines_latency",
        "latency_p50_ms",
        (OWN, "rocksdb_tuned", "flink", "flink_minibatch"),
    ),
}
GROUP_TITLES = {name: group["title"] for name, group in load_settings()["groups"].items()}


@dataclass(frozen=True)
class Bar:
    """The parts that follow each other, with the index of their colour, and the text after them."""

    parts: tuple[tuple[float, int], ...]
    label: str


@dataclass(frozen=True)
class Chart:
    """Groups of bars below each other, all with one scale."""

    title: str
    subtitle: str
    legend: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]


def main() -> int:
    """Write or check the charts; return 1 if --check finds a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--check", action="store_true", help="change nothing; fail on a difference")
    options = parser.parse_args()
    drawn = {
        options.images / f"{name}-{theme}.svg": draw(chart, theme)
        for name, chart in charts(options.results).items()
        for theme in THEMES
    }
    differing = [path for path, text in drawn.items() if not _has(path, text)]
    if options.check:
        for path in differing:
            print(f"{path} differs from its results. Next: python benchmarks/charts.py")
        return 1 if differing else 0
    options.images.mkdir(parents=True, exist_ok=True)
    for path in differing:
        path.write_text(drawn[path])
    return 0


def _has(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def charts(results: Path) -> dict[str, Chart]:
    """Return the charts by the names of their files; a group without results has none."""
    of_groups = {
        name: _group(_read(results, f"results-{group}"), number, providers)
        for name, (group, number, providers) in GROUPS.items()
        if (results / f"results-{group}.json").exists()
    }
    return {
        "rates": _rates(_read(results, "results-rates"), _read(results, "results-queries")),
        "requests": _requests(_read(results, "s3-requests")),
        "reading": _reading(_read(results, "reading")),
        "transform": _transform(_read(results, "transform")),
        **of_groups,
    }


def _read(results: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results / f"{name}.json").read_text())
    return content


def _group(outcome: dict[str, Any], number: str, providers: tuple[str, ...]) -> Chart:
    """Return one number of a group's table, for some of its providers.

    Args:
        outcome: the group's result file.
        number: name of the number; empty: each of those that the table shows, as a group of bars.
        providers: those that have a bar, if they were measured.
    """
    found = medians(outcome)
    providers = tuple(one for one in providers if one in outcome["providers"])
    groups, title = [], ""
    for workload, entry in outcome["workloads"].items():
        numbers = shown_numbers(entry, found.get(workload, {}))
        for name in [number] if number else numbers:
            title = numbers.get(name, name)
            values = [found.get(workload, {}).get(one, {}).get(name) for one in providers]
            bars = [
                Bar(((value, colour),), as_text(name, value)) if value else Bar((), "no figure")
                for colour, value in enumerate(values)
            ]
            if any(values):
                groups.append((entry["title"] if number else title, tuple(bars)))
    commit = outcome["machine"].get("commit", "an older commit")
    named = title if number else next(iter(outcome["workloads"].values()))["title"]
    return Chart(
        GROUP_TITLES[outcome["group"]],
        f"{named}; at {commit}",
        tuple(outcome["providers"][one]["title"] for one in providers),
        tuple(groups),
    )


def _reading(content: dict[str, Any]) -> Chart:
    groups = []
    for provider, key in dict.fromkeys((run["provider"], run["key"]) for run in content["runs"]):
        bars = []
        for colour, reader in enumerate(("cairn", "spark")):
            kind = (provider, key, reader)
            read_s = statistics.median(
                run["read_s"]
                for run in content["runs"]
                if (run["provider"], run["key"], run["reader"]) == kind
            )
            rate = content["rows"] / read_s
            bars.append(Bar(((rate, colour),), f"{rate:,.0f}"))
        groups.append((f"{PROVIDERS_READ[provider]}, {key} keys", tuple(bars)))
    return Chart(
        "Rows per second that a reader gives",
        f"A state of {content['rows']:,} keys; at {content['machine']['commit']}",
        ("Cairn's reader", "Spark's statestore source"),
        tuple(groups),
    )


def _transform(content: dict[str, Any]) -> Chart:
    engines = ("bulk", "rocksdb", "chunks")
    groups = []
    for workload, form in dict.fromkeys((run["workload"], run["form"]) for run in content["runs"]):
        bars = []
        for colour, engine in enumerate(engines):
            rates = [
                run["rows_per_s"]
                for run in content["runs"]
                if (run["workload"], run["form"], run["engine"]) == (workload, form, engine)
            ]
            if rates:
                rate = statistics.median(rates)
                bars.append(Bar(((rate, colour),), f"{rate:,.0f}"))
        groups.append((f"{workload}, {form}", tuple(bars)))
    return Chart(
        "Rows per second of transformWithState in PySpark",
        f"{content['keys']:,} keys, batches of {content['rows']:,} rows; "
        f"at {content['machine']['commit']}",
        tuple(TRANSFORM_ENGINES[engine] for engine in engines),
        tuple(groups),
    )


def _rates(stores: dict[str, Any], queries: dict[str, Any]) -> Chart:
    lines = (
        ("a whole query: aggregation", queries, "query_aggregation"),
        ("a whole query: deduplication", queries, "query_deduplication"),
        ("get + put, one thread", stores, "upserts"),
        ("get + put, two threads", stores, "two_stores"),
        ("get, one thread", stores, "reads"),
    )
    groups = []
    for title, outcome, workload in lines:
        rates = medians(outcome)[workload]
        own = "cairn_prefetch" if outcome is queries else "cairn"
        bars = [
            Bar(((rates[provider]["rows_per_s"], colour),), f"{rates[provider]['rows_per_s']:,.0f}")
            for colour, provider in enumerate((own, "rocksdb", "rocksdb_tuned"))
        ]
        groups.append((title, tuple(bars)))
    commits = [outcome["machine"]["commit"] for outcome in (queries, stores)]
    return Chart(
        "Rows per second",
        "A state of 1 M keys that fits into the cache; 2 cores, local files; "
        f"queries at {commits[0]}, stores at {commits[1]}",
        ("Cairn", "Spark RocksDB", "Spark RocksDB, tuned"),
        tuple(groups),
    )


def _requests(content: dict[str, Any]) -> Chart:
    lines = (
        ("Cairn", "cairn"),
        ("Spark RocksDB", "rocksdb"),
        ("Spark RocksDB, renames nothing", "rocksdb_abortable"),
    )
    partitions = content["partitions"]
    groups = []
    for title, provider in lines:
        counts = content["counts"][provider]
        parts = [
            sum(sum(counts[kind].values()) for kind in kinds) / counts["batches"]
            for kinds in (("commit",), ("snapshot",), ("spark_state", "elsewhere"))
        ]
        label = f"{sum(parts):.1f} ({parts[0] / partitions:.3g} per commit)"
        groups.append((title, (Bar(tuple(zip(parts, range(3), strict=True)), label),)))
    return Chart(
        "S3 requests per micro-batch",
        f"An aggregation with {partitions} partitions, so {partitions} commits; "
        f"at {content['machine']['commit']}",
        ("commits of the state", "snapshots and clean-up", "Spark's own files"),
        tuple(groups),
    )


def draw(chart: Chart, theme: str) -> str:
    """Return the chart as an SVG document."""
    text, faint, axis, colours = THEMES[theme]
    titles = max(len(title) for title, _ in chart.groups)
    begin = max(BARS_FROM, round(titles * LETTER_PX) + 16)
    full = WIDTH - LABEL_WIDTH - begin
    longest = max(sum(size for size, _ in bar.parts) for _, bars in chart.groups for bar in bars)
    lines = [
        _text(0, 18, chart.title, text, "font-size='16' font-weight='600'"),
        _text(0, 38, chart.subtitle, faint),
    ]
    left = 0.0
    for name, colour in zip(chart.legend, colours, strict=False):
        lines.append(_bar(left, 53, 11, 11, colour))
        lines.append(_text(left + 16, 63, name, text))
        left += 16 + 6.8 * len(name) + 18
    top = float(TOP)
    for title, bars in chart.groups:
        middle = top + (len(bars) * (BAR_PX + BAR_GAP) - BAR_GAP) / 2 + 4
        lines.append(_text(begin - 12, middle, title, text, "text-anchor='end'"))
        for bar in bars:
            left = float(begin)
            for size, index in bar.parts:
                width = size / longest * full
                lines.append(_bar(left, top, width, BAR_PX, colours[index]))
                left += width
            lines.append(_text(left + 6, top + BAR_PX - 3, bar.label, faint))
            top += BAR_PX + BAR_GAP
        top += GROUP_GAP - BAR_GAP
    bottom = top - GROUP_GAP + 6
    lines.append(
        f"<line x1='{begin}' y1='{TOP - 6}' x2='{begin}' y2='{bottom:g}' stroke='{axis}'/>"
    )
    total = bottom + 6
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='-4 0 {WIDTH} {total:g}' "
        f"width='{WIDTH}' height='{total:g}' role='img' aria-label='{escape(chart.title)}' "
        f"font-family=\"{FONT}\" font-size='12'>"
    )
    return "\n".join([head, *lines, "</svg>", ""])


def _text(left: float, base: float, text: str, colour: str, more: str = "") -> str:
    attributes = f" {more}" if more else ""
    return f"<text x='{left:g}' y='{base:g}' fill='{colour}'{attributes}>{escape(text)}</text>"


def _bar(left: float, top: float, width: float, height: float, colour: str) -> str:
    place = f"x='{left:.4g}' y='{top:g}' width='{width:.4g}' height='{height:g}'"
    return f"<rect {place} fill='{colour}'/>"


if __name__ == "__main__":
    raise SystemExit(main())
