"""Progress of long work, on a terminal only.

Layer: cli.
"""

from __future__ import annotations

import sys

import click


def show_partitions(done: int, count: int) -> None:
    """Show how many partitions were read."""
    _show(done, count, "partitions")


def show_steps(done: int, count: int) -> None:
    """Show how many steps were carried out."""
    _show(done, count, "steps")


def _show(done: int, count: int, what: str) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == count else ""
        click.echo(f"\r{done:,} of {count:,} {what}", err=True, nl=False)
        click.echo(end, err=True, nl=False)
