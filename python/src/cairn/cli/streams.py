"""Standard output and standard error, of which a caller may have closed either.

Layer: cli. Python has ``None`` in place of a closed one; see ``ClosedOutput``.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from typing import TYPE_CHECKING, BinaryIO

import click

if TYPE_CHECKING:
    from typing import TextIO

    from cairn.offline.move.running import MoveProgress


def standard_output() -> BinaryIO:
    """Return where rows go.

    Raises:
        OSError: it is closed.
    """
    return sys.stdout.buffer


def write_line(text: str) -> None:
    """Write a line to standard output, with names of files in their own bytes.

    Raises:
        OSError: it is closed, or what it goes to is full.
    """
    stream = standard_output()
    stream.write(os.fsencode(f"{text}\n"))
    stream.flush()


class ClosedOutput(io.TextIOBase):
    """A closed standard output. For ``None`` click writes nothing, and the command succeeds."""

    @property
    def buffer(self) -> BinaryIO:
        """Where rows would go.

        Raises:
            OSError: always.
        """
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def write(self, _: str, /) -> int:
        """Raise what ``buffer`` does."""
        return self.buffer.write(b"")


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person looks at a stream."""
    return stream is not None and stream.isatty()


class _Steps:
    """Shows on standard error, if that is a terminal, how much is done, and how long it takes yet.

    Args:
        what: is counted.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._first = 0
        self._began_s: float | None = None

    def __call__(self, done: int, count: int, more: str = "") -> None:
        """Show how many are done, and of how many; ``more``: what else is said of them."""
        if not is_terminal(sys.stderr):
            return
        now_s = time.monotonic()
        if self._began_s is None:
            self._first, self._began_s = done, now_s
        text = f"{done:,} of {count:,} {self._what}{more}"
        if self._first < done < count:
            left_s = (now_s - self._began_s) / (done - self._first) * (count - done)
            text += f", {left_s:,.0f} s left"
        click.echo(f"\r{text}    ", err=True, nl=False)
        if done == count:
            click.echo("", err=True)
            self._began_s = None


show_partitions = _Steps("partitions")
show_steps = _Steps("steps")
_show_objects = _Steps("objects")


def show_move(progress: MoveProgress) -> None:
    """Show how far a move is, there as well."""
    if is_terminal(sys.stderr):
        left = progress.seconds_left
        text = (
            f"{progress.stores:,} of {progress.of_stores:,} partitions, {progress.rows:,} rows, "
            f"{progress.stored_bytes / 1e6:,.0f} MB"
        )
        if left is not None and progress.stores < progress.of_stores:
            text += f", {left:,.0f} s left"
        end = "\n" if progress.stores == progress.of_stores else ""
        click.echo(f"\r{text}    {end}", err=True, nl=False)


def show_copies(done: int, count: int, done_bytes: int, count_bytes: int) -> None:
    """Show how many objects were copied, there as well."""
    _show_objects(done, count, f", {done_bytes >> 20:,} of {count_bytes >> 20:,} MiB")
