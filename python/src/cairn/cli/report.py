"""`cairn report`: one page of HTML about the state: size, skew, growth, age, findings.

Layer: cli, over `Checkpoint.report`.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from cairn.cli.options import CheckpointCommand, Place, with_batch, with_place
from cairn.cli.streams import show_partitions


def _html(_: click.Context, __: click.Parameter, value: Path) -> Path:
    if value.suffix not in (".html", ".htm"):
        raise click.BadParameter(f"{str(value)!r} does not end with .html.")
    if not value.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {str(value.parent)!r} does not exist.")
    return value


@click.command(cls=CheckpointCommand)
@with_place
@with_batch
@click.option(
    "--operator",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of the stateful operator. Default: all.",
)
@click.option(
    "--store",
    metavar="NAME",
    help="Store: Spark's name of it, or the short name that ls shows. Default: all.",
)
@click.option(
    "--quick",
    "is_quick",
    is_flag=True,
    help="Read no rows: listings, Spark's logs and headers only. Sizes of keys and values, lists, "
    "times and most findings are then left out; of Spark's providers the numbers of keys too.",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    callback=_html,
    metavar="FILE.html",
    help="File that is written, or replaced; it appears when it is whole.",
)
def report(
    place: Place,
    batch: int | None,
    operator: int | None,
    store: str | None,
    to: Path,
    *,
    is_quick: bool,
) -> None:
    """Write a report about the state, as one HTML file that needs no network.

    It shows size and keys over the batches, keys and bytes per partition and per family, sizes of
    keys and values, the longest lists, times and expiry, and the findings of verify. All rows of
    the batch are read once.
    """
    from cairn.cli.report_page import render  # noqa: PLC0415 - it imports pyarrow

    with place.open() as checkpoint:
        found = checkpoint.report(
            batch=batch,
            operator=operator,
            store=store,
            is_quick=is_quick,
            progress=show_partitions,
        )
    # Two commands may write the file at a time: the last one that ends wins.
    part = to.with_name(f".{to.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_text(render(found), encoding="utf-8")
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
