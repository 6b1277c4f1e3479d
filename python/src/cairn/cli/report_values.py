"""Values of a report as a page shows them: numbers, sizes, times, keys, tables.

Layer: cli. A number is an element ``data`` with the exact number, however it is shown.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from cairn.cli.cells import plain, time_text
from cairn.cli.markup import Markup, element
from cairn.reader.families import PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_UNIT = 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SHOWN_MAX = 160
_NO_DIGITS_FROM = 10
_LABELS_MAX = 12
_LABELS_LETTERS_MAX = 36
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60
Show: TypeAlias = "Callable[[float], str]"
SMALL_CHARTS_MAX = 24
"""Small charts of a section: tables have the others."""
UNKNOWN = Markup('<span class="faint">unknown</span>')


def number(value: int | None) -> Markup:
    """Return a count."""
    return UNKNOWN if value is None else element("data", f"{value:,}", value=value)


def size(value: int | None) -> Markup:
    """Return a number of bytes."""
    return UNKNOWN if value is None else element("data", size_text(value), value=value)


def size_text(value: float) -> str:
    """Return a number of bytes with three digits and a unit."""
    unit = 0
    while value >= _UNIT and unit < len(_UNITS) - 1:
        value, unit = value / _UNIT, unit + 1
    digits = 0 if unit == 0 or value >= 100 else 1 if value >= 10 else 2  # noqa: PLR2004
    return f"{value:,.{digits}f} {_UNITS[unit]}"


def count_text(value: float) -> str:
    """Return a count, which may be between two."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def ratio_text(value: float) -> str:
    """Return how many times something is."""
    digits = 0 if value >= _NO_DIGITS_FROM else 1
    return f"{value:,.{digits}f}\N{MULTIPLICATION SIGN}"


def second_text(milliseconds: int) -> str:
    """Return a time in ISO 8601, without fractions of seconds."""
    return time_text(milliseconds // 1000 * 1000)


def plural(count: int, noun: str, *, many: str | None = None) -> str:
    """Return a count with a noun."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def duration_text(seconds: float) -> str:
    """Return a span of time with two units at most."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for first, unit, second, lesser in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "min"),
        (_MINUTE_S, "min", 1, "s"),
    ):
        if whole >= first:
            rest = whole % first // second
            return f"{whole // first:,} {unit}" + (f" {rest} {lesser}" if rest else "")
    return f"{whole} s"


def key_text(key: pa.Table) -> str:
    """Return the key of a row as JSON, cut if it is long."""
    names = [name for name in key.schema.names if name != PARTITION]
    cells = {name: plain(key.column(name).combine_chunks())[0] for name in names}
    shown = json.dumps(cells, ensure_ascii=False)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}\N{HORIZONTAL ELLIPSIS}"


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    texts: Sequence[int] = (0,),
) -> Markup:
    """Return a table that scrolls by itself if it is too wide.

    Args:
        caption: what it has.
        columns: their names.
        rows: of cells, texts or markup.
        texts: the places of columns that are no numbers.
    """
    classes = [None if place in texts else "n" for place in range(len(columns))]
    head = [
        element("th", name, scope="col", class_=kind)
        for name, kind in zip(columns, classes, strict=True)
    ]
    body = [
        element(
            "tr",
            *(element("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True)),
        )
        for row in rows
    ]
    drawn = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *body),
    )
    return element("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=caption)


def folded(summary: str, content: Markup) -> Markup:
    """Return content that is shown on demand."""
    return element("details", element("summary", summary), content)


def figure(title: object, about: object, *content: Markup, id_: str | None = None) -> Markup:
    """Return a chart with its title, and what it means."""
    caption = element("figcaption", element("h3", title), element("p", about))
    return element("figure", caption, *content, id_=id_)


def ends(names: Sequence[str]) -> tuple[str, ...]:
    """Return all names for an axis if there is room, else those of both ends and the middle."""
    if len(names) <= _LABELS_MAX and sum(map(len, names)) <= _LABELS_LETTERS_MAX:
        return tuple(names)
    if len(names) % 2:
        return names[0], names[len(names) // 2], names[-1]
    return names[0], names[-1]
