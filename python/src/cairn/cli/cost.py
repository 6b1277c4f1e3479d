"""`cairn cost`: what a checkpoint costs on S3, where it goes, and what would lower it.

Layer: cli, over `Checkpoint.cost`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cairn.cli.options import CheckpointCommand, Place, with_place
from cairn.cli.output import Field, Output, with_output

if TYPE_CHECKING:
    from cairn.reader.cost import Cost, CostPart
    from cairn.reader.request_rates import FileManager

PART_FIELDS = (
    Field(
        "part",
        "string",
        "commits, idle commits (without rows), snapshots, retention, logs (Spark's own files), "
        "other, total",
    ),
    Field("objects", "integer", "that are stored now; measured"),
    Field("bytes", "integer", "that are stored now; measured"),
    Field("requests_per_batch", "number", "of all kinds"),
    Field("requests_per_month", "integer", "of all kinds"),
    Field("requests_are", "string", "measured by the objects that they left, or estimated"),
    Field("storage_price", "number", "of the bytes, per month"),
    Field("request_price", "number", "per month"),
    Field("price", "number", "of both, per month"),
    Field("currency", "string", "of the prices"),
)
BASIS_FIELDS = (
    Field("name", "string", "of the figure"),
    Field("value", "string", "its value"),
    Field("source", "string", "measured, estimated, assumed, or given by an option"),
    Field("meaning", "string", "what it is, and where it comes from", is_whole=True),
)
ADVICE_FIELDS = (
    Field("name", "string", "of the advice"),
    Field("saving", "number", "per month, at most; estimated; savings do not add up"),
    Field("currency", "string", "of the saving"),
    Field("what", "string", "what to do, and what it needs", is_whole=True),
)
_DIGITS = 4


@click.command(cls=CheckpointCommand)
@with_place
@click.option(
    "--prices",
    "table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Table of prices; docs/reader.md has its form. Default: an example, S3 Standard in "
    "us-east-1; --basis shows its date.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time between two batches. Default: the median of the last ones in Spark's log.",
)
@click.option(
    "--file-manager",
    type=click.Choice(["cairn", "rename", "abortable"]),
    help="What writes Spark's own files: Cairn's file manager, Spark's default, or that of "
    "spark-hadoop-cloud. Default: cairn with Cairn's provider, else rename.",
)
@click.option(
    "--basis", "is_basis", is_flag=True, help="Show what the figures rest on: measured or not."
)
@click.option("--advice", "is_advice", is_flag=True, help="Show what would lower the price.")
@with_output
def cost(
    place: Place,
    table: Path | None,
    interval_s: float | None,
    file_manager: FileManager | None,
    output: Output,
    *,
    is_basis: bool,
    is_advice: bool,
) -> None:
    """Show what a checkpoint costs per month on S3, and where it goes.

    Objects, bytes, commits per batch and the time between batches are measured: everything is
    listed, and up to 400 changelogs are looked into. Requests are estimated by counts per commit,
    snapshot and file that were measured once, as if the query ran without a pause; starts, loads
    and transfer are not in it. The prices are an example: take yours from your bill by --prices.
    """
    if is_basis and is_advice:
        raise click.UsageError("--basis and --advice exclude each other.")
    from cairn.reader.prices import Prices  # noqa: PLC0415 - the reader imports pyarrow

    prices = None if table is None else Prices.parse(table.read_bytes(), str(table))
    with place.open() as checkpoint:
        found = checkpoint.cost(prices=prices, interval_s=interval_s, file_manager=file_manager)
    currency = found.prices.currency
    if is_basis:
        rows = ([one.name, one.value, one.source, one.meaning] for one in found.facts)
        output.write_fields(BASIS_FIELDS, rows)
    elif is_advice:
        advice = ([one.name, _rounded(one.saving), currency, one.what] for one in found.advice)
        output.write_fields(ADVICE_FIELDS, advice)
    else:
        output.write_fields(PART_FIELDS, (_row(one, found) for one in found.parts))


def _row(part: CostPart, found: Cost) -> list[Any]:
    per_batch = part.requests.count
    return [
        part.part,
        part.objects,
        part.bytes,
        _rounded(per_batch),
        round(per_batch * found.batches_per_month),
        part.requests_are,
        _rounded(part.storage_price),
        _rounded(part.request_price),
        _rounded(part.price),
        found.prices.currency,
    ]


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
