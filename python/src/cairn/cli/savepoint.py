"""`cairn savepoint`: a batch is kept, listed, given up.

Layer: cli, over `cairn.savepoints`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.cli.options import CheckpointCommand, Place, with_place
from cairn.cli.output import Field, Output, with_output
from cairn.savepoints import create_savepoint, delete_savepoint, list_savepoints

if TYPE_CHECKING:
    from datetime import datetime

CREATE_FIELDS = (
    Field("name", "string", "its name"),
    Field("batch", "integer", "the batch that it keeps"),
    Field("stores", "integer", "how many stores it pins"),
)
LIST_FIELDS = (
    Field("name", "string or null", "its name; null: it was not finished, and cannot be used"),
    Field("batch", "integer or null", "the batch that it keeps; null: not known"),
    Field("created", "string or null", "when, in ISO 8601"),
    Field("stores", "integer", "how many stores it pins"),
    Field("missing", "integer", "how many of its pins are missing"),
    Field("status", "string", "whole, broken, or unfinished: docs/reader.md"),
)


@click.group()
def savepoint() -> None:
    """Keep a batch of a query of Cairn's, list what is kept, or give it up.

    The query may run. Nothing is copied: purges and sweeps of the query keep the objects of the
    batch. Spark's files of the batch are in the savepoint.
    """


@savepoint.command(cls=CheckpointCommand)
@with_place
@click.option("--name", metavar="NAME", help="Its name. Default: made of batch and time.")
@click.option(
    "--batch",
    type=click.IntRange(min=0),
    metavar="N",
    help="The batch to keep: a committed one that is retained. Default: the newest.",
)
@with_output
def create(place: Place, output: Output, *, name: str | None, batch: int | None) -> None:
    """Keep a batch, until its savepoint is deleted."""
    made = create_savepoint(place.location, name=name, batch=batch, storage_options=place.options)
    output.write_fields(CREATE_FIELDS, [[made.name, made.batch, len(made.stores)]])


@savepoint.command("list", cls=CheckpointCommand)
@with_place
@with_output
def list_(place: Place, output: Output) -> None:
    """List the savepoints, and what is left of those that were not finished."""
    found = list_savepoints(place.location, storage_options=place.options)
    rows: list[list[Any]] = [
        [one.name, one.batch, _text(one.created_at), one.stores, one.missing_pins, one.status]
        for one in found
    ]
    output.write_fields(LIST_FIELDS, rows)


@savepoint.command(cls=CheckpointCommand)
@with_place
@click.option("--name", metavar="NAME", required=True, help="Its name.")
def delete(place: Place, *, name: str) -> None:
    """Give up a savepoint: the query's next purges delete what it kept alone, or `cairn gc`."""
    delete_savepoint(place.location, name, storage_options=place.options)


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds")
