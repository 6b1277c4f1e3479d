"""Sections of the report about rows: sizes of keys, values and lists; times.

Layer: cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.cli.cells import time_text
from cairn.cli.charts import Axis, Mark, bars
from cairn.cli.markup import Markup, element, join
from cairn.cli.report_values import (
    SMALL_CHARTS_MAX,
    count_text,
    duration_text,
    ends,
    figure,
    folded,
    key_text,
    number,
    plural,
    second_text,
    size,
    size_text,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.cli.report_values import Show
    from cairn.reader.distributions import SizeFigures, TimeFigures
    from cairn.reader.family_rows import FamilyFigures
    from cairn.reader.report import Report


_LARGE = 1.5
"""Keys are named if the largest one exceeds the median by this factor."""


def sizes_of(report: Report) -> Markup:
    """Return the section about sizes."""
    read = [one for one in report.families if one.key_sizes is not None]
    if not read:
        return element("p", _not_read(report), class_="faint")
    read.sort(key=lambda one: (one.is_internal, -(one.row_bytes or 0)))
    columns = ("Rows of", "What", "Count", "Least", "Median", "90 %", "99 %", "Most", "Mean")
    rows = []
    for one in read:
        for what, sizes in _measured(one):
            show = number if what == "elements" else size
            numbers = (sizes.least, sizes.p50, sizes.p90, sizes.p99, sizes.most)
            mean = count_text(round(sizes.mean, 1)) if what == "elements" else size_text(sizes.mean)
            label = element("code", f"{one.operator}/{one.name}")
            rows.append((label, what, number(sizes.count), *map(show, numbers), mean))
    parts = [
        element(
            "div",
            element(
                "p",
                "As Spark encodes them. 90 and 99 of 100 are not larger than the columns say; "
                "these, and the median, are exact to 1/64.",
                class_="faint",
            ),
            table("Sizes of keys, values and lists", columns, rows, texts=(0, 1)),
            class_="card",
        )
    ]
    visible = [one for one in read if not one.is_internal]
    parts += [
        element("div", *charts, class_="cards small")
        for one in visible[:SMALL_CHARTS_MAX]
        if (charts := list(_size_charts(one)))
    ]
    parts += [_largest(one) for one in visible if _has_large(one)]
    return join(parts)


def _measured(one: FamilyFigures) -> Iterator[tuple[str, SizeFigures]]:
    for what, sizes in (
        ("keys", one.key_sizes),
        ("values", one.value_sizes),
        ("elements", one.list_lengths),
    ):
        if sizes is not None:
            yield what, sizes


def _size_charts(one: FamilyFigures) -> Iterator[Markup]:
    """Yield a chart of each measure that has different values."""
    for what, sizes in _measured(one):
        if sizes.least == sizes.most:
            continue
        show = count_text if what == "elements" else size_text
        spans = [_span(limit, show) for limit, _ in sizes.doublings]
        counts = [count for _, count in sizes.doublings]
        title = {"keys": "Size of keys", "values": "Size of values", "elements": "Length of lists"}
        summary = f"{title[what]} of {one.operator}/{one.name}: " + "; ".join(
            f"{span}: {count:,}" for span, count in zip(spans, counts, strict=True)
        )
        labels = ends([show(limit // 2) for limit, _ in sizes.doublings])
        yield figure(
            join([title[what], " of ", element("code", f"{one.operator}/{one.name}")]),
            f"Keys by doubling sizes, from the number below each bar. Most: {show(sizes.most)}.",
            bars(counts, spans, Axis(count_text, labels), summary),
            folded(
                "Table",
                table(
                    "Keys",
                    ("From, below", "Keys"),
                    list(zip(spans, map(number, counts), strict=True)),
                ),
            ),
        )


def _span(limit: int, show: Show) -> str:
    return f"{show(limit // 2)} to {show(limit)}"


def _has_large(one: FamilyFigures) -> bool:
    """Return whether some keys are much larger than most, in what the largest are chosen by."""
    measures = (one.list_lengths,) if one.is_list else (one.key_sizes, one.value_sizes)
    return any(sizes is not None and sizes.most > _LARGE * sizes.p50 for sizes in measures)


def _largest(one: FamilyFigures) -> Markup:
    name = f"{one.operator}/{one.name}"
    rows = [
        (
            element("span", key_text(large.key), class_="key"),
            large.key.column("partition")[0].as_py(),
            *([] if large.elements is None else [number(large.elements)]),
            size(large.key_bytes),
            size(large.value_bytes),
        )
        for large in one.largest
    ]
    columns = (
        "Key",
        "Partition",
        *(("Elements",) if one.is_list else ()),
        "Size of key",
        "Of value",
    )
    what = "Longest lists" if one.is_list else "Largest rows"
    return element("div", table(f"{what} of {name}", columns, rows), class_="card")


def _not_read(report: Report) -> str:
    if report.reads.is_quick:
        return "A quick report reads no rows."
    return "No rows were read."


def times_of(report: Report) -> Markup:
    """Return the section about times."""
    found = [(one, times) for one in report.families for times in one.times]
    if not found:
        has_rows = any(one.key_sizes is not None for one in report.families)
        return element(
            "p", "No column has a time." if has_rows else _not_read(report), class_="faint"
        )
    # Those by which rows expire first.
    found.sort(key=lambda one: not one[1].is_expiry)
    legend = element(
        "p",
        "Of windows it is the end. Lines: ",
        element("b", "watermark", class_="a"),
        " and ",
        element("b", "time of the batch", class_="b"),
        ". Rows before the watermark wait for their removal, if the column is event time; expired "
        "rows before the time of the batch do, if they expire by the clock.",
        class_="faint",
    )
    charts = [_time_chart(report, one, times) for one, times in found[:SMALL_CHARTS_MAX]]
    columns = ("Column", "Rows", "Without", "First", "Last", "Before the watermark")
    rows = [
        (
            element("code", f"{one.operator}/{one.name}.{times.column}"),
            number(times.count),
            number(times.nulls),
            time_text(times.first_ms),
            time_text(times.last_ms),
            "" if times.before_watermark is None else number(times.before_watermark),
            "" if times.before_batch is None else number(times.before_batch),
        )
        for one, times in found
    ]
    made = table("Times", (*columns, "Before the batch"), rows, texts=(0, 3, 4))
    return join(
        [
            legend,
            element("div", *charts, class_="cards"),
            element("div", made, class_="card"),
        ]
    )


def _time_chart(report: Report, one: FamilyFigures, times: TimeFigures) -> Markup:
    first = times.bins[0][0]
    span = len(times.bins) * times.bin_ms
    marks = [
        Mark((at - first) / span, kind)
        for at, kind in ((report.watermark_ms, "a"), (report.batch_ms, "b"))
        if at and first <= at <= first + span
    ]
    name = f"{one.operator}/{one.name}.{times.column}"
    kind = "Expiry" if times.is_expiry else "Time"
    about = plural(times.count, "row")
    about += f" from {second_text(times.first_ms)} to {second_text(times.last_ms)}"
    about += _distance(report, times)
    return figure(
        join([f"{kind} ", element("code", name)]),
        about,
        bars(
            [count for _, count in times.bins],
            [f"from {time_text(begin)}" for begin, _ in times.bins],
            Axis(count_text, (second_text(times.first_ms), second_text(times.last_ms))),
            f"{kind} {name}: {about}",
            marks,
        ),
        folded(
            "Table",
            table(
                f"Rows by time, in spans of {duration_text(times.bin_ms / 1000)}",
                ("From", "Rows"),
                [(time_text(begin), number(count)) for begin, count in times.bins if count],
            ),
        ),
    )


def _distance(report: Report, times: TimeFigures) -> str:
    """Return how far the oldest row is behind the watermark, or else behind the batch."""
    for at, what in ((report.watermark_ms, "watermark"), (report.batch_ms, "batch")):
        if at:
            behind = (at - times.first_ms) / 1000
            where = "before" if behind >= 0 else "after"
            return f"; the first is {duration_text(abs(behind))} {where} the {what}."
    return "."
