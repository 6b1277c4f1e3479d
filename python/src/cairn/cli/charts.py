"""Charts: plots of inline SVG with axes, and a sentence for those who do not see them.

Layer: cli. The SVG is stretched to the width of the page. All text is outside of it, so that it has
one size on wide and on narrow screens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.cli.markup import Markup, element, join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WIDTH, HEIGHT = 1000, 100
_HOVERED_MAX = 300
"""Values that have a text of their own under the pointer; of more, the table alone has them."""
_GAP = 0.18
"""The distance of bars, by their width."""
_LEVELS = (0.0, 0.5, 1.25, 2.0, 4.0)
LEVEL_NAMES = (
    "nothing",
    "up to half the median",
    "about the median",
    "up to twice",
    "up to 4 times",
    "more than 4 times",
)


@dataclass(frozen=True, slots=True)
class Axis:
    """What is beside a plot.

    Attributes:
        format: text of a value.
        labels: below the plot: one per value, or some that are evenly spread from its left end to
            its right end.
    """

    format: Callable[[float], str]
    labels: Sequence[str]


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line; the caller says what it is.

    Attributes:
        at: from 0, the left end, to 1.
        kind: names its colour: ``a`` or ``b``.
    """

    at: float
    kind: str


def bars(
    values: Sequence[float],
    names: Sequence[str],
    axis: Axis,
    summary: str,
    marks: Sequence[Mark] = (),
) -> Markup:
    """Return a plot with a bar per value, from zero.

    Args:
        values: 0 or more.
        names: what each bar is.
        axis: beside the plot.
        summary: what the plot shows, in one sentence.
        marks: lines across the bars.
    """
    top = max(values, default=0) or 1
    if len(values) <= _HOVERED_MAX:
        shapes = [_bar(place, value / top, len(values)) for place, value in enumerate(values)]
    else:
        step = WIDTH / len(values)
        corners = (
            f"V{_number(HEIGHT * (1 - value / top))}H{_number(step * place)}"
            for place, value in enumerate(values, 1)
        )
        outline = f"M0,{HEIGHT}{''.join(corners)}V{HEIGHT}Z"
        shapes = [element("path", d=outline, class_="bar")]
    return _plot(
        [*shapes, *_marks(marks), *_pointed(values, names, axis)], len(values), top, axis, summary
    )


def line(values: Sequence[float | None], names: Sequence[str], axis: Axis, summary: str) -> Markup:
    """Return a plot with a line over the values that are known, from zero.

    Args: as of ``bars``.
    """
    top = max((value for value in values if value is not None), default=0) or 1
    step = WIDTH / max(1, len(values))
    points = [
        (step * (place + 0.5), HEIGHT * (1 - value / top))
        for place, value in enumerate(values)
        if value is not None
    ]
    path = "L".join(f"{_number(x)},{_number(y)}" for x, y in points)
    shapes = []
    if len(points) > 1:
        area = f"M{_number(points[0][0])},{HEIGHT}L{path}L{_number(points[-1][0])},{HEIGHT}Z"
        shapes += [
            element("path", d=area, class_="area"),
            element("path", d=f"M{path}", class_="line"),
        ]
    if len(points) <= _HOVERED_MAX // 4:
        # A line without length, with round ends, is a dot however the plot is stretched.
        dots = "".join(f"M{_number(x)},{_number(y)}h0" for x, y in points)
        shapes.append(element("path", d=dots, class_="dot"))
    return _plot([*shapes, *_pointed(values, names, axis)], len(values), top, axis, summary)


def share_bar(share: float) -> Markup:
    """Return a small bar for a table's cell; the number is beside it."""
    drawn = element("rect", width=_number(WIDTH * share), height=HEIGHT, class_="bar")
    return element(
        "svg",
        drawn,
        class_="share",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def heat(values: Sequence[int], names: Sequence[str], median: float, summary: str) -> Markup:
    """Return a cell per value, in their order; its colour is the ratio to the median."""
    cells = [
        element("i", class_=f"h{level_of(value, median)}", title=name)
        for value, name in zip(values, names, strict=True)
    ]
    legend = [
        element("span", element("i", class_=f"h{number}"), " ", name)
        for number, name in enumerate(LEVEL_NAMES)
    ]
    return join(
        [
            element("div", *cells, class_="heat", role="img", aria_label=summary),
            element("p", *legend, class_="legend", aria_hidden="true"),
        ]
    )


def level_of(value: float, median: float) -> int:
    """Return the index in ``LEVEL_NAMES`` of a value."""
    if value <= 0:
        return 0
    ratio = value / median if median else len(LEVEL_NAMES)
    return next(
        (number for number, limit in enumerate(_LEVELS) if number and ratio <= limit), len(_LEVELS)
    )


def _bar(place: int, share: float, count: int) -> Markup:
    step = WIDTH / count
    return element(
        "rect",
        x=_number(step * (place + _GAP / 2)),
        y=_number(HEIGHT * (1 - share)),
        width=_number(step * (1 - _GAP)),
        height=_number(HEIGHT * share),
        class_="bar",
    )


def _pointed(values: Sequence[float | None], names: Sequence[str], axis: Axis) -> Iterator[Markup]:
    """Yield what shows a value under the pointer: its column, so that small bars are found."""
    if len(values) > _HOVERED_MAX:
        return
    step = WIDTH / max(1, len(values))
    for place, (value, name) in enumerate(zip(values, names, strict=True)):
        if value is not None:
            title = element("title", f"{name}: {axis.format(value)}")
            x, width = _number(step * place), _number(step)
            yield element("rect", title, x=x, y=0, width=width, height=HEIGHT, class_="over")


def _marks(marks: Sequence[Mark]) -> Iterator[Markup]:
    for one in marks:
        x = _number(WIDTH * min(1, max(0, one.at)))
        yield element("path", d=f"M{x},0V{HEIGHT}", class_=f"mark {one.kind}")


def _plot(shapes: Sequence[Markup], count: int, top: float, axis: Axis, summary: str) -> Markup:
    grid = [element("path", d=f"M0,{y}H{WIDTH}", class_="grid") for y in (0, HEIGHT // 2, HEIGHT)]
    drawn = element(
        "svg",
        *grid,
        *shapes,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=summary,
    )
    scale = [element("span", axis.format(value)) for value in (top, top / 2, 0)]
    labels = [element("span", label) for label in axis.labels]
    is_each = len(labels) == count
    return element(
        "div",
        element("div", *scale, class_="y", aria_hidden="true"),
        drawn,
        element("div", *labels, class_="x each" if is_each else "x", aria_hidden="true"),
        class_="plot",
    )


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
