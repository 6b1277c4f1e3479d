"""Section of the report: how the state has grown over the batches.

Layer: cli.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from cairn.cli.cells import time_text
from cairn.cli.charts import Axis, bars, line
from cairn.cli.markup import Markup, element, join
from cairn.cli.report_values import (
    SMALL_CHARTS_MAX,
    UNKNOWN,
    count_text,
    duration_text,
    ends,
    figure,
    folded,
    number,
    size,
    size_text,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cairn.cli.report_values import Show
    from cairn.reader.report import BatchFigures, Report


def over_batches(report: Report) -> Markup:
    """Return the section."""
    batches = report.batches
    names = [f"batch {one.batch}" for one in batches]
    labels = ends([str(one.batch) for one in batches])
    loads = [one.load_bytes for one in batches]
    charts = []
    if any(value is not None for value in loads):
        charts.append(
            figure(
                "Size of the state",
                "Bytes of the objects that a load of all partitions reads: snapshots, and the "
                "changes after them.",
                line(
                    loads, names, Axis(size_text, labels), _trend("Size", batches, loads, size_text)
                ),
            )
        )
    written = [one.change_bytes for one in batches]
    charts.append(
        figure(
            "Changes per batch",
            "Bytes of the changes that each batch has stored, as far as they are still there.",
            bars(
                written,
                names,
                Axis(size_text, labels),
                _trend("Changes", batches, written, size_text),
            ),
        )
    )
    commits = [one.commits for one in batches]
    charts.append(
        figure(
            "Commits per batch",
            f"Partitions of stores with objects of changes; there are {len(report.partitions):,}.",
            bars(
                commits,
                names,
                Axis(count_text, labels),
                _trend("Commits", batches, commits, count_text),
            ),
        )
    )
    spans = _intervals(batches)
    if any(value is not None for value in spans):
        charts.append(
            figure(
                "Time between batches",
                "From the time at which Spark planned the batch before to that of the batch.",
                line(
                    spans,
                    names,
                    Axis(duration_text, labels),
                    _trend("Time", batches, spans, duration_text),
                ),
            )
        )
    table_ = folded(f"Table of {len(batches):,} batches", _batch_table(batches, spans))
    return join(
        [
            element("div", *charts, class_="cards"),
            element("div", table_, class_="card"),
            *_keys_over_batches(report, names, labels),
        ]
    )


def _keys_over_batches(
    report: Report, names: Sequence[str], labels: Sequence[str]
) -> Iterator[Markup]:
    batches = report.batches
    families = [(one.operator, one.name) for one in report.families if not one.is_internal]
    known = [one.keys for one in batches if one.keys is not None]
    if not known:
        why = "Spark's providers store no numbers of keys." if report.provider != "cairn" else ""
        yield element("p", f"Keys over the batches are not known. {why}", class_="faint")
        return
    families.sort(key=lambda one: -known[-1].get(one, 0))
    charts = []
    for family in families[:SMALL_CHARTS_MAX]:
        values = [None if one.keys is None else one.keys.get(family) for one in batches]
        title = f"{family[0]}/{family[1]}"
        summary = _trend(f"Keys of {title}", batches, values, count_text)
        charts.append(
            figure(title, _change(values), line(values, names, Axis(count_text, labels), summary))
        )
    more = len(families) - len(charts)
    rows = [
        (one.batch, *(number(one.keys[family]) for family in families))
        for one in batches
        if one.keys is not None
    ]
    columns = ("Batch", *(f"{operator}/{name}" for operator, name in families))
    yield element("h3", "Keys per family over the batches")
    yield element(
        "p",
        f"From the headers of changelogs of {len(known):,} batches, as operator and name."
        + (f" The {len(charts)} largest of {len(families)} families." if more else ""),
        class_="faint",
    )
    yield element("div", *charts, class_="cards small")
    yield element(
        "div",
        folded(f"Table of keys at {len(rows):,} batches", table("Keys", columns, rows, texts=())),
        class_="card",
    )


def _change(values: Sequence[int | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{known[-1]:,} keys" + (f", before {known[0]:,}" if len(known) > 1 else "")


def _batch_table(batches: Sequence[BatchFigures], spans: Sequence[float | None]) -> Markup:
    columns: tuple[str, ...] = ("Batch", "Planned at", "Since the last", "Watermark", "Commits")
    columns += ("Changes", "Snapshots", "Bytes of these", "State")
    rows = [
        (
            one.batch,
            UNKNOWN if one.planned_at_ms is None else time_text(one.planned_at_ms),
            "" if span is None else duration_text(span),
            time_text(one.watermark_ms) if one.watermark_ms else "",
            number(one.commits),
            size(one.change_bytes),
            number(one.snapshots),
            size(one.snapshot_bytes),
            size(one.load_bytes),
        )
        for one, span in zip(batches, spans, strict=True)
    ]
    return table("Batches", columns, rows, texts=(1, 3))


def _intervals(batches: Sequence[BatchFigures]) -> list[float | None]:
    spans: list[float | None] = [None]
    for before, after in pairwise(batches):
        start, end = before.planned_at_ms, after.planned_at_ms
        if start is None or end is None or before.batch + 1 != after.batch:
            spans.append(None)
        else:
            spans.append(max(0, end - start) / 1000)
    return spans


def _trend(
    what: str, batches: Sequence[BatchFigures], values: Sequence[float | None], show: Show
) -> str:
    known = [
        (value, one.batch) for value, one in zip(values, batches, strict=True) if value is not None
    ]
    if not known:
        return f"{what}: not known."
    (least, at_least), (most, at_most) = min(known), max(known)
    return (
        f"{what} at the batches {known[0][1]} to {known[-1][1]}: {show(known[0][0])} at the first, "
        f"{show(known[-1][0])} at the last, least {show(least)} at {at_least}, most {show(most)} "
        f"at {at_most}."
    )
