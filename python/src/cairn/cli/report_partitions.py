"""Section of the report: rows and bytes per partition, and how uneven they are.

Layer: cli.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from cairn.cli.charts import Axis, bars, heat
from cairn.cli.markup import Markup, element, join
from cairn.cli.report_values import (
    count_text,
    ends,
    figure,
    folded,
    number,
    ratio_text,
    size,
    size_text,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cairn.cli.report_values import Show
    from cairn.reader.report import PartitionFigures, Report

_IN_ORDER_MAX = 60
"""So many partitions have a bar each, in their order."""
_TOP = 10


def by_store(
    partitions: Sequence[PartitionFigures],
) -> list[tuple[str, list[PartitionFigures]]]:
    """Return the partitions of each store, with the store as operator and name."""
    stores: dict[str, list[PartitionFigures]] = {}
    for one in partitions:
        stores.setdefault(f"{one.operator}/{one.store}", []).append(one)
    return list(stores.items())


def row_measure(partitions: Sequence[PartitionFigures]) -> tuple[str, list[int]]:
    """Return what shows the skew best of what is known, and its values."""
    keys = [one.keys for one in partitions if one.keys is not None]
    if keys:
        return "keys", [one.keys or 0 for one in partitions]
    return "stored bytes", [one.stored_bytes for one in partitions]


def partitions_of(report: Report) -> Markup:
    """Return the section."""
    parts = [
        element(
            "p",
            "The time of a batch is that of its slowest task: a partition that is much larger than "
            "the others delays all. Keys are those of the program; bytes include what operators "
            "have for themselves.",
            class_="faint",
        )
    ]
    for name, partitions in by_store(report.partitions):
        parts.append(element("h3", f"Store {name}"))
        parts.append(_store_partitions(name, partitions))
    return join(parts)


def _store_partitions(name: str, partitions: Sequence[PartitionFigures]) -> Markup:
    is_read = any(one.row_bytes is not None for one in partitions)
    charts = []
    if any(one.keys is not None for one in partitions):
        values = [one.keys or 0 for one in partitions]
        charts.append(_skew("Keys per partition", name, partitions, values, count_text))
    if is_read:
        values = [one.row_bytes or 0 for one in partitions]
        charts.append(_skew("Keys and values per partition", name, partitions, values, size_text))
    else:
        values = [one.stored_bytes for one in partitions]
        charts.append(_skew("Stored bytes per partition", name, partitions, values, size_text))
    measure = row_measure(partitions)[1]
    order = sorted(range(len(partitions)), key=lambda place: -measure[place])
    columns = ("Partition", "Keys", "Keys and values", "Objects", "Stored")

    def rows(places: Sequence[int]) -> list[tuple[object, ...]]:
        return [
            (
                partitions[place].partition,
                number(partitions[place].keys),
                size(partitions[place].row_bytes),
                number(partitions[place].objects),
                size(partitions[place].stored_bytes),
            )
            for place in places
        ]

    top = f"The {_TOP} largest" if len(partitions) > _TOP else "All partitions, the largest first"
    tables = [table(f"{top} of store {name}", columns, rows(order[:_TOP]), texts=(0,))]
    if len(partitions) > _TOP:
        whole = table(f"All of store {name}", columns, rows(range(len(partitions))), texts=(0,))
        tables.append(folded(f"All {len(partitions):,} partitions", whole))
    return join(
        [
            element("div", *charts, class_="cards"),
            element("div", *tables, class_="card"),
        ]
    )


def _skew(
    title: str,
    store: str,
    partitions: Sequence[PartitionFigures],
    values: Sequence[int],
    show: Show,
) -> Markup:
    middle = median(values)
    most = max(values)
    largest = partitions[values.index(most)].partition
    empty = sum(not value for value in values)
    about = f"Median {show(middle)}, largest {show(most)} in partition {largest}"
    about += f": {ratio_text(most / middle)} the median" if middle else ""
    about += f"; {empty:,} empty." if empty else "."
    names = [f"partition {one.partition}" for one in partitions]
    summary = f"{title} of store {store}, {len(values):,} partitions. {about}"
    if len(values) <= _IN_ORDER_MAX:
        labels = ends([str(one.partition) for one in partitions])
        return figure(title, about, bars(values, names, Axis(show, labels), summary))
    order = sorted(range(len(values)), key=lambda place: -values[place])
    ranked = bars(
        [values[place] for place in order],
        [names[place] for place in order],
        Axis(show, ("largest", f"{len(values):,} partitions", "smallest")),
        summary,
    )
    cells = heat(
        values,
        [f"{name}: {show(value)}" for name, value in zip(names, values, strict=True)],
        middle,
        f"{title} in the order of their numbers, as ratio to the median.",
    )
    return figure(title, about, ranked, cells)
