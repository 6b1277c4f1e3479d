"""The report as one page of HTML: no script, nothing from a network.

Layer: cli. Each section is a function of the report. All names and keys are data: ``markup``
escapes them.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from cairn import __version__
from cairn.cli.cells import time_text
from cairn.cli.charts import share_bar
from cairn.cli.markup import Markup, element, join
from cairn.cli.report_batches import over_batches
from cairn.cli.report_partitions import by_store, partitions_of, row_measure
from cairn.cli.report_rows import sizes_of, times_of
from cairn.cli.report_style import STYLE
from cairn.cli.report_values import (
    UNKNOWN,
    duration_text,
    number,
    plural,
    ratio_text,
    size,
    size_text,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cairn.reader.findings import Finding
    from cairn.reader.report import BatchFigures, Report

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_FINDINGS_MAX = 200
_PROVIDERS = {
    "cairn": "Cairn",
    "rocksdb": "Spark's RocksDB provider",
    "hdfs": "Spark's HDFS-backed provider",
}
_SECTIONS = (
    ("findings", "Findings"),
    ("batches", "Over the batches"),
    ("families", "Stores and families"),
    ("partitions", "Partitions"),
    ("sizes", "Keys, values and lists"),
    ("times", "Age and expiry"),
    ("reads", "How this was made"),
)


def render(report: Report) -> str:
    """Return the page."""
    bodies = (
        _findings(report),
        over_batches(report),
        _families(report),
        partitions_of(report),
        sizes_of(report),
        times_of(report),
        _reads(report),
    )
    sections = [
        element("section", element("h2", title), body, id_=name)
        for (name, title), body in zip(_SECTIONS, bodies, strict=True)
    ]
    links = [element("a", title, href=f"#{name}") for name, title in _SECTIONS]
    main = element(
        "main",
        element("header", *_head(report), element("nav", *links, aria_label="Sections")),
        *sections,
        element("footer", f"cairn {__version__}, {report.made_at:%Y-%m-%d %H:%M:%S} UTC"),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"State of {report.location}, batch {report.batch}"),
        element("style", Markup(STYLE)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', main), lang='en')}\n"


# -- head ----------------------------------------------------------------------------------------


def _head(report: Report) -> Iterator[Markup]:
    yield element("h1", f"State at batch {report.batch}")
    watermark = f", watermark {time_text(report.watermark_ms)}" if report.watermark_ms else ""
    yield element(
        "p",
        element("code", report.location),
        f" \N{MIDDLE DOT} {_PROVIDERS[report.provider]}, checkpoint format "
        f"{report.checkpoint_format}, planned {time_text(report.batch_ms)}{watermark}",
        class_="faint",
    )
    yield element("dl", *(_tile(*one) for one in _tiles(report)), class_="tiles")


def _tile(name: str, value: object, about: object = "") -> Markup:
    parts = [element("dt", name), element("dd", value)]
    if about:
        parts.append(element("dd", about, class_="sub"))
    return element("div", *parts, class_="tile")


def _tiles(report: Report) -> Iterator[tuple[str, object, object]]:
    worst = _worst(report.findings)
    yield (
        "Findings",
        element("span", len(report.findings), class_=worst or "good"),
        f"worst: {worst}" if worst else "none",
    )
    visible = [one for one in report.families if not one.is_internal]
    keys = [one.keys for one in visible if one.keys is not None]
    yield (
        "Keys",
        number(sum(keys)) if len(keys) == len(visible) else UNKNOWN,
        plural(len(visible), "family", many="families"),
    )
    row_bytes = [one.row_bytes for one in report.families if one.row_bytes is not None]
    if row_bytes:
        yield "Keys and values", size(sum(row_bytes)), "uncompressed"
    objects = sum(one.objects for one in report.partitions)
    stored = sum(one.stored_bytes for one in report.partitions)
    yield "Stored", size(stored), join([number(objects), " objects, all batches"])
    yield "Batches", number(len(report.batches)), _range_of(report.batches)
    stores = {(one.operator, one.store) for one in report.partitions}
    yield (
        "Partitions",
        number(len(report.partitions)),
        f"of {plural(len(stores), 'store')}, {plural(len(report.operators), 'operator')}",
    )
    skew, place = _largest_skew(report)
    if skew is not None:
        yield "Largest partition", ratio_text(skew), f"of the median of its store: {place}"


def _range_of(batches: Sequence[BatchFigures]) -> str:
    return f"{batches[0].batch} to {batches[-1].batch}"


def _worst(findings: Sequence[Finding]) -> str | None:
    there = {one.severity for one in findings}
    return next((one for one in ("error", "warning", "note") if one in there), None)


def _largest_skew(report: Report) -> tuple[float | None, str]:
    found: list[tuple[float, str]] = []
    for name, partitions in by_store(report.partitions):
        known = row_measure(partitions)
        middle = median(value for _, value in known)
        if middle and len(known) > 1:
            largest, most = max(known, key=lambda one: one[1])
            found.append((most / middle, f"{name}, partition {largest.partition}"))
    return max(found, default=(None, ""))


# -- findings ------------------------------------------------------------------------------------


def _findings(report: Report) -> Markup:
    scope = (
        "Only Spark's logs and the paths of schemas were checked: a quick report reads no rows."
        if report.reads.is_quick
        else "Spark's logs were checked, all rows that this report is about, and the objects of "
        "their stores."
    )
    if not report.findings:
        found = element("p", element("span", "Nothing is wrong.", class_="good"), " ", scope)
        return element("div", found, class_="card")
    shown = report.findings[:_FINDINGS_MAX]
    rows = [
        (
            element("span", one.severity, class_=one.severity),
            element("code", one.rule),
            _place_of(one),
            _message_of(one),
            element("span", one.meaning, " ", _cure(one), class_="prose"),
        )
        for one in shown
    ]
    more = len(report.findings) - len(shown)
    rest = [element("p", f"And {more:,} more: cairn verify shows all.")] if more else []
    names = ("Severity", "Rule", "Where", "What", "What it means")
    made = table("What is wrong", names, rows, texts=range(len(names)))
    return element("div", element("p", scope, class_="faint"), made, *rest, class_="card")


def _place_of(one: Finding) -> str:
    batch = "" if one.batch is None else f"batch {one.batch}"
    return ", ".join(part for part in (str(one.place or ""), batch) if part) or "logs"


def _message_of(one: Finding) -> Markup:
    name = [] if one.object_name is None else [" ", element("code", one.object_name)]
    return element("span", one.message, *name, class_="prose")


def _cure(one: Finding) -> Markup:
    return element("span", f"To mend it: {one.cure}.", class_="faint")


# -- families ------------------------------------------------------------------------------------


def _families(report: Report) -> Markup:
    total = sum(one.row_bytes or 0 for one in report.families)
    columns = ("Operator", "Rows of", "Keys", "Rows", "Keys and values", "Share", "Mean row")
    rows = []
    for one in sorted(report.families, key=lambda one: (-(one.row_bytes or 0), -(one.keys or 0))):
        share = (one.row_bytes or 0) / total if total else 0
        label = [element("code", one.name)]
        label += [element("span", " list", class_="faint")] if one.is_list else []
        label += [element("span", " internal", class_="faint")] if one.is_internal else []
        rows.append(
            (
                _operator(report, one.operator),
                join(label),
                number(one.keys),
                number(one.rows),
                size(one.row_bytes),
                join([f"{share:.1%}", share_bar(share)]) if total else "",
                size_text(one.row_bytes / one.keys) if one.row_bytes and one.keys else "",
            )
        )
    about = (
        "Bytes are those of keys and values as Spark encodes them, before compression. An "
        "operator has its internal families for itself, such as indexes and counters."
    )
    stored = report.stored
    kinds = (
        ("changes", stored.changes),
        ("snapshots, without tables", stored.snapshots),
        ("tables (SST files)", stored.tables),
        ("others", stored.others),
    )
    whole = sum(value for _, value in kinds)
    kept = [
        (name, size(value), join([f"{value / whole:.1%}", share_bar(value / whole)]))
        for name, value in kinds
        if value
    ]
    return join(
        [
            element(
                "div",
                element("p", about, class_="faint"),
                table("Families by size", columns, rows, texts=(0, 1)),
                class_="card",
            ),
            element(
                "div",
                table(
                    "Stored objects of all retained batches", ("Objects", "Bytes", "Share"), kept
                ),
                class_="card",
            ),
        ]
    )


def _operator(report: Report, operator: int) -> str:
    name = report.operators[operator]
    return f"{operator}" if name is None else f"{operator} {name}"


# -- reads ---------------------------------------------------------------------------------------


def _reads(report: Report) -> Markup:
    reads = report.reads
    how = (
        "A quick report: listings, Spark's logs, and headers of changelogs; no rows."
        if reads.is_quick
        else f"All rows of batch {report.batch} were read once; of other batches listings, Spark's "
        "logs, and headers."
    )
    counted = (
        f" Keys and sizes of {reads.measured_batches:,} of {len(report.batches):,} batches were "
        "found without reading rows."
    )
    rows = [(name, number(count)) for name, count in sorted(reads.requests.items())]
    return element(
        "div",
        element("p", how, counted, f" It took {duration_text(reads.seconds)}."),
        table("Requests", ("Call", "Requests"), rows),
        class_="card",
    )
