"""`cairn savepoint`: a batch is kept, listed, given up.

Layer: cli, over `cairn.savepoints`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import CheckpointCommand, Place, with_apply, with_place
from cairn.cli.output import Field, Output, with_output
from cairn.savepoints import create_savepoint, delete_savepoint, list_savepoints

if TYPE_CHECKING:
    from datetime import datetime

CREATE_FIELDS = (
    Field("name", "string", "its name"),
    Field("batch", "integer", "the batch that it keeps"),
    Field("stores", "integer", "how many stores it pins"),
    Field("done", "boolean", "whether it is created"),
)
DELETE_FIELDS = (
    Field("name", "string", "its name"),
    Field("batch", "integer or null", "the batch that it keeps; null: its object is damaged"),
    Field("stores", "integer or null", "how many stores it pins; null: as above"),
    Field("done", "boolean", "whether it is deleted"),
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
@with_apply("Create it. The query may run.")
@with_output
def create(
    place: Place, output: Output, *, name: str | None, batch: int | None, is_applied: bool
) -> None:
    """Keep a batch, until its savepoint is deleted; without --apply, show what is kept.

    Exit code 3: there is something to keep.
    """
    made = create_savepoint(
        place.location,
        name=name,
        batch=batch,
        storage_options=place.options,
        dry_run=not is_applied,
    )
    output.write_fields(CREATE_FIELDS, [[made.name, made.batch, len(made.stores), is_applied]])
    _end("Nothing was created. Add --apply.", is_applied=is_applied)


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
@with_apply("Delete it. The query may run.")
@with_output
def delete(place: Place, output: Output, *, name: str, is_applied: bool) -> None:
    """Give up a savepoint; without --apply, show which.

    The query's next purges delete what it kept alone, or `cairn gc`. Exit code 3: there is
    something to give up.
    """
    found = delete_savepoint(
        place.location, name, storage_options=place.options, dry_run=not is_applied
    )
    kept = [None, None] if found is None else [found.batch, len(found.stores)]
    output.write_fields(DELETE_FIELDS, [[name, *kept, is_applied]])
    _end("Nothing was deleted. Add --apply.", is_applied=is_applied)


def _end(text: str, *, is_applied: bool) -> None:
    if not is_applied:
        click.echo(text, err=True)
        click.get_current_context().exit(Exit.FINDINGS)


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds")
