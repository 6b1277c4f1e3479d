"""Standard output and standard error, of which a caller may have closed either.

Layer: cli. Python has ``None`` in place of a closed one.
"""

from __future__ import annotations

import errno
import os
import sys
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
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return sys.stdout.buffer


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person looks at a stream."""
    return stream is not None and stream.isatty()


def show_partitions(done: int, count: int) -> None:
    """Show how many partitions of stores were read on standard error, if that is a terminal."""
    _show(done, count, "partitions")


def show_steps(done: int, count: int) -> None:
    """Show how many steps were carried out, there as well."""
    _show(done, count, "steps")


def show_move(progress: MoveProgress) -> None:
    """Show how far a move is, there as well."""
    if is_terminal(sys.stderr):
        left = progress.seconds_left
        text = (
            f"{progress.stores:,} of {progress.of_stores:,} stores, {progress.rows:,} rows, "
            f"{progress.stored_bytes / 1e6:,.0f} MB"
        )
        if left is not None and progress.stores < progress.of_stores:
            text += f", {left:,.0f} s left"
        end = "\n" if progress.stores == progress.of_stores else ""
        click.echo(f"\r{text}    {end}", err=True, nl=False)


def show_copies(done: int, count: int, done_bytes: int, count_bytes: int) -> None:
    """Show how many objects were copied, there as well."""
    size = f"objects, {done_bytes >> 20:,} of {count_bytes >> 20:,} MiB"
    _show(done, count, size)


def _show(done: int, count: int, what: str) -> None:
    if is_terminal(sys.stderr):
        end = "\n" if done == count else ""
        click.echo(f"\r{done:,} of {count:,} {what}", err=True, nl=False)
        click.echo(end, err=True, nl=False)
