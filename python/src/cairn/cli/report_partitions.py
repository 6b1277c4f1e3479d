"""Section of the report: rows and bytes per partition, and how uneven they are.

Layer: cli.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, TypeAlias

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
    from collections.abc import Callable, Sequence

    from cairn.cli.report_values import Show
    from cairn.reader.report import PartitionFigures, Report

    Measure: TypeAlias = Callable[[PartitionFigures], int | None]

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


def row_measure(partitions: Sequence[PartitionFigures]) -> list[tuple[PartitionFigures, int]]:
    """Return the partitions with what shows the skew best of what is known: keys, or bytes.

    Without those of which it is not known.
    """
    return _known(partitions, _keys) or _known(partitions, _stored)


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
    measures: list[tuple[str, Measure, Show]] = [
        ("Keys per partition", _keys, count_text),
        ("Keys and values per partition", _row_bytes, size_text),
        ("Stored bytes per partition", _stored, size_text),
    ]
    charts = [
        _skew(f"{title} of store {name}", title, partitions, measure, show)
        for title, measure, show in measures
        if _known(partitions, measure)
    ][:2]
    order = sorted(row_measure(partitions), key=lambda one: -one[1])
    columns = ("Partition", "Keys", "Keys and values", "Objects", "Stored")

    def rows(shown: Sequence[PartitionFigures]) -> list[tuple[object, ...]]:
        return [
            (
                one.partition,
                number(one.keys),
                size(one.row_bytes),
                number(one.objects),
                size(one.stored_bytes),
            )
            for one in shown
        ]

    is_cut = len(partitions) > _TOP
    top = [one for one, _ in order[:_TOP]] if is_cut else partitions
    what = f"The {_TOP} largest" if is_cut else "All partitions"
    tables = [table(f"{what} of store {name}", columns, rows(top), texts=(0,))]
    if is_cut:
        whole = table(f"All of store {name}", columns, rows(partitions), texts=(0,))
        tables.append(folded(f"All {len(partitions):,} partitions", whole))
    return join([element("div", *charts, class_="cards"), element("div", *tables, class_="card")])


def _keys(one: PartitionFigures) -> int | None:
    return one.keys


def _row_bytes(one: PartitionFigures) -> int | None:
    return one.row_bytes


def _stored(one: PartitionFigures) -> int | None:
    return one.stored_bytes


def _known(
    partitions: Sequence[PartitionFigures], measure: Measure
) -> list[tuple[PartitionFigures, int]]:
    return [(one, value) for one in partitions if (value := measure(one)) is not None]


def _skew(
    name: str,
    title: str,
    partitions: Sequence[PartitionFigures],
    measure: Measure,
    show: Show,
) -> Markup:
    known = _known(partitions, measure)
    values = [value for _, value in known]
    names = [f"partition {one.partition}" for one, _ in known]
    about = _about(known, show)
    if unknown := len(partitions) - len(known):
        about += f" {unknown:,} could not be read, and are not shown."
    summary = f"{name}, {len(values):,} partitions. {about}"
    if len(values) <= _IN_ORDER_MAX:
        labels = ends([str(one.partition) for one, _ in known])
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
        median(values),
        f"{name} in the order of their numbers, as ratio to the median.",
    )
    return figure(title, about, ranked, cells)


def _about(known: Sequence[tuple[PartitionFigures, int]], show: Show) -> str:
    middle = median(value for _, value in known)
    largest, most = max(known, key=lambda one: one[1])
    empty = sum(not value for _, value in known)
    about = f"Median {show(middle)}, largest {show(most)} in partition {largest.partition}"
    about += f": {ratio_text(most / middle)} the median" if middle else ""
    return about + (f"; {empty:,} empty." if empty else ".")
