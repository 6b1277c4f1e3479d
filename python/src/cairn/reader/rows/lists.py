"""Lists: the elements of list values.

Layer: reader.rows.

    list    := element*
    element := i32le n  row[n]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cairn.errors import CorruptError
from cairn.reader.rows.spans import Places, Spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cairn.reader.rows.spans import Int64s

_LENGTH_BYTES = 4
# numpy needs as long for one step over so many lists as Python for one step over each of them.
_FEW = 32


def elements(values: Spans, where: str) -> tuple[Spans, Int64s]:
    """Return the rows of all lists, in order, and for each of them the number of its list.

    Lists whose elements all have one length are split at once. Others are walked: all lists by one
    element at a time, as long as many have one more.

    Raises:
        CorruptError: an element ends behind its list.
    """
    is_even, counts = _even(values)
    owners = np.repeat(np.arange(len(values)), counts)
    first = np.cumsum(counts) - counts
    index = np.arange(len(owners)) - first[owners]
    sizes = np.zeros(len(values), np.int64)
    sizes[is_even] = values.sizes[is_even] // counts[is_even]
    starts = values.starts[owners] + sizes[owners] * index + _LENGTH_BYTES
    ends = starts + sizes[owners] - _LENGTH_BYTES
    others = np.nonzero(~is_even & (values.sizes > 0))[0]
    if len(others):
        walked = _walk(values, others, where)
        starts, ends, owners = (
            np.concatenate(pair) for pair in zip((starts, ends, owners), walked, strict=True)
        )
        order = np.argsort(starts, kind="stable")
        starts, ends, owners = starts[order], ends[order], owners[order]
    return Spans(values.data, starts, ends), owners


def _even(values: Spans) -> tuple[NDArray[np.bool_], Int64s]:
    """Return which lists have elements of one length, and how many each of these has, else 0."""
    counts = np.zeros(len(values), np.int64)
    is_even = values.sizes >= _LENGTH_BYTES
    candidates = np.nonzero(is_even)[0]
    places = Places(values.data, values.starts[candidates], None)
    lengths = places.load("<i4").astype(np.int64)
    steps = lengths + _LENGTH_BYTES
    fits = (lengths >= 0) & (values.sizes[candidates] % np.maximum(steps, 1) == 0)
    is_even[candidates] = fits
    candidates, lengths, steps = candidates[fits], lengths[fits], steps[fits]
    counts[candidates] = values.sizes[candidates] // steps
    owners = np.repeat(np.arange(len(candidates)), counts[candidates])
    first = np.cumsum(counts[candidates]) - counts[candidates]
    index = np.arange(len(owners)) - first[owners]
    at = values.starts[candidates][owners] + steps[owners] * index
    differs = Places(values.data, at, None).load("<i4") != lengths[owners]
    uneven = candidates[np.unique(owners[differs])]
    is_even[uneven] = False
    counts[uneven] = 0
    return is_even, counts


def _walk(values: Spans, lists: Int64s, where: str) -> tuple[Int64s, Int64s, Int64s]:
    """Return start, end and list of each element of some lists."""
    starts: list[Int64s] = []
    ends: list[Int64s] = []
    owners: list[Int64s] = []
    at = values.starts[lists]
    while len(lists) > _FEW:
        bodies = at + _LENGTH_BYTES
        limits = values.ends[lists]
        if bool((bodies > limits).any()):
            raise _torn(where)
        after = bodies + Places(values.data, at, None).load("<i4")
        if bool(((after < bodies) | (after > limits)).any()):
            raise _torn(where)
        starts.append(bodies)
        ends.append(after)
        owners.append(lists)
        has_more = after < limits
        lists, at = lists[has_more], after[has_more]
    for owner, place in zip(lists.tolist(), at.tolist(), strict=True):
        bodies, after = _walk_one(values.data, place, int(values.ends[owner]), where)
        starts.append(bodies)
        ends.append(after)
        owners.append(np.full(len(bodies), owner))
    return np.concatenate(starts), np.concatenate(ends), np.concatenate(owners)


def _walk_one(data: NDArray[np.uint8], at: int, limit: int, where: str) -> tuple[Int64s, Int64s]:
    view = data.data
    starts = []
    ends = []
    while at < limit:
        body = at + _LENGTH_BYTES
        if body > limit:
            raise _torn(where)
        at = body + int.from_bytes(view[at:body], "little", signed=True)
        if not body <= at <= limit:
            raise _torn(where)
        starts.append(body)
        ends.append(at)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _torn(where: str) -> CorruptError:
    return CorruptError(f"{where}: an element of a list ends behind the list")
