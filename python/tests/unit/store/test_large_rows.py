"""Rows of kilobytes to megabytes: Python looks at rows, and never at each of their bytes.

A loop over the bytes of a key holds the interpreter's lock for seconds, and all stores of the
worker wait. Such a loop cannot be found by a clock on a busy machine, so its steps are counted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rig import Rig, family

import cairn

if TYPE_CHECKING:
    from collections.abc import Iterator

PUT, DELETE, APPEND = 1, 2, 3
PLAIN, LISTS = 0, 1
FAMILIES = [family(PLAIN, multi=False), family(LISTS, multi=True)]
ROW_COUNT = 6
SMALL, LARGE = 128 << 10, 1 << 20
"""Both are above all limits that decide how a row is stored: only a loop over bytes differs."""

SOURCES = str(Path(cairn.__file__).parent)
WAITING = ("engine", "event_loop.py")
"""Not counted: its steps depend on time."""

Shape = Callable[[int, int], tuple[bytes, bytes]]
"""Returns key and value of a row, by its number and about its size."""


class Steps:
    """Counts the lines of the package that all threads run."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: Any, _event: str, _argument: object) -> Any:  # noqa: ANN401
        name: str = frame.f_code.co_filename
        if not name.startswith(SOURCES) or any(part in name for part in WAITING):
            return None
        return self._line

    def _line(self, _frame: Any, event: str, _argument: object) -> Any:  # noqa: ANN401
        if event == "line":
            self.count += 1
        return self._line


@contextmanager
def counted() -> Iterator[Steps]:
    """Yield the count of what this thread, and threads that begin meanwhile, do."""
    steps = Steps()
    former = sys.gettrace()
    threading.settrace(steps.trace)
    sys.settrace(steps.trace)
    try:
        yield steps
    finally:
        sys.settrace(former)
        threading.settrace(former)


def equal_keys(number: int, size: int) -> tuple[bytes, bytes]:
    return b"%04d" % number + bytes(size), b"v"


def keys_that_differ_at_their_end(number: int, size: int) -> tuple[bytes, bytes]:
    return bytes(size) + b"%04d" % number, b"v"


def varied_keys(number: int, size: int) -> tuple[bytes, bytes]:
    return b"k" * (size + number), b"v" * number


def equal_values(number: int, size: int) -> tuple[bytes, bytes]:
    return b"%04d" % number, bytes(size)


def varied_values(number: int, size: int) -> tuple[bytes, bytes]:
    return b"%04d" % number, bytes(size + number)


def steps_of(folder: Path, shape: Shape, size: int) -> int:
    """Count the steps of the life of some rows: write, spill, commit, read, store, replay."""
    rows = dict(shape(number, size) for number in range(ROW_COUNT))
    lists = {key[:-1]: value for key, value in rows.items()}
    keys = list(rows)
    conf = {"minDeltasForSnapshot": 1, "minBatchesToRetain": 2}
    with counted() as steps:
        rig = Rig(folder / "local", str(folder / "objects"), 2, conf, pending_bytes=1 << 30)
        try:
            rig.load(0, None)
            rig.write([(PUT, PLAIN, key, value, 0) for key, value in rows.items()])
            assert rig.get(PLAIN, keys) == list(rows.values())  # of the spill
            rig.write([(APPEND, LISTS, key, value, 0) for key, value in lists.items()])
            found = rig.commit(1, None, FAMILIES)["checkpoint_id"]
            rig.load(1, found)
            assert rig.contents(PLAIN, 1) == rows
            found_rows, _ = rig.ranges(PLAIN, [(min(keys), min(keys) + b"\0")])
            assert found_rows == [(min(keys), rows[min(keys)])]
            page, _ = rig.instance.changes.page(1, found, 0, 1)
            assert page is not None
            rig.write([(DELETE, PLAIN, keys[0], None, 0)])
            rig.write([(APPEND, LISTS, key, value, 0) for key, value in lists.items()])
            found = rig.commit(2, found, FAMILIES)["checkpoint_id"]
            rig.load(2, found)
            rig.until_written(2)
            del rows[keys[0]]
            assert rig.contents(PLAIN, 2) == rows
            assert rig.get(PLAIN, keys) == [None, *rows.values()]
            assert rig.contents(LISTS, 2) == {key: 2 * value for key, value in lists.items()}
        finally:
            rig.crash()
        again = Rig(folder / "again", str(folder / "objects"), 2, conf, pending_bytes=1 << 30)
        try:
            again.load(2, found)
            again.until_written(2)
            assert again.contents(PLAIN, 2) == rows
        finally:
            again.crash()
    return steps.count


@pytest.mark.parametrize(
    "shape",
    [equal_keys, keys_that_differ_at_their_end, varied_keys, equal_values, varied_values],
)
def test_python_takes_no_step_per_byte(tmp_path: Path, shape: Shape) -> None:
    """One commit of 3 MB keys took a minute, in which no other store of the worker committed."""
    steps = {size: steps_of(tmp_path / str(size), shape, size) for size in (SMALL, LARGE)}

    # Some steps depend on time, as those of a wait. A step per word of one row would be more.
    assert steps[LARGE] - steps[SMALL] < (LARGE - SMALL) // 8, steps
