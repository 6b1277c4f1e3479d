"""`cairn diff`: how the state differs between two batches, or two checkpoints.

Layer: cli, over `cairn.reader.changes`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import (
    BatchNumber,
    CheckpointCommand,
    Place,
    Stores,
    with_limit,
    with_place,
    with_stores,
)
from cairn.cli.output import Field, Output, with_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.reader.checkpoint import Checkpoint, StoreInfo

FIELDS = (
    Field("operator", "integer", "number of the stateful operator"),
    Field("name", "string", "short name of the rows"),
    Field(
        "change",
        "string",
        "added, removed, or changed_from and changed_to: the value before and after",
    ),
    Field("partition", "integer", "partition that has the row"),
    Field("key", "object", "columns of the key; one named change is change_2 here"),
    Field("value", "object", "columns of the value; likewise"),
)


@click.command(cls=CheckpointCommand)
@with_place
@click.argument("before", type=BatchNumber())
@click.argument("after", type=BatchNumber())
@click.option(
    "--other",
    metavar="LOCATION",
    help="Take AFTER from this checkpoint, with the same options of storage.",
)
@with_stores
@with_limit
@with_output
def diff(
    place: Place,
    before: int | None,
    after: int | None,
    other: str | None,
    stores: Stores,
    limit: int | None,
    output: Output,
) -> None:
    """Show the keys that were added, removed or changed; exit 3 if there are any.

    BEFORE and AFTER are numbers of batches, or latest. Without --operator and --store all stores
    are compared, but those that an operator has for itself. Each store is read twice; memory grows
    by 32 bytes per key of a partition. Keys and values are compared as stored bytes.
    """
    from cairn.cli.selection import chosen_stores  # noqa: PLC0415 - it imports pyarrow

    with ExitStack() as stack:
        old = stack.enter_context(place.open())
        new = stack.enter_context(replace(place, location=other).open()) if other else old
        numbers = old.view(before).batch, new.view(after).batch
        chosen = chosen_stores(new, numbers[1], stores)
        changes = _Counted(_rows(old, new, numbers, chosen), limit)
        output.write_fields(FIELDS, changes)
    if changes.count:
        click.get_current_context().exit(Exit.FINDINGS)


class _Counted:
    """Rows with their number, which ends at a limit."""

    def __init__(self, rows: Iterator[list[Any]], limit: int | None) -> None:
        self._rows = rows
        self._limit = limit
        self.count = 0

    def __iter__(self) -> Iterator[list[Any]]:
        for row in self._rows:
            self.count += 1
            if self._limit is not None and self.count > self._limit:
                return
            yield row


def _rows(
    old: Checkpoint, new: Checkpoint, batches: tuple[int, int], chosen: tuple[StoreInfo, ...]
) -> Iterator[list[Any]]:
    from cairn.cli.selection import KeyAndValue  # noqa: PLC0415 - they import pyarrow
    from cairn.reader.changes import CHANGE, Diff  # noqa: PLC0415

    for one in chosen:
        before = old.state(one.operator, one.name, batch=batches[0])
        after = new.state(one.operator, one.name, batch=batches[1])
        found = Diff(before, after)
        names = [name for name in found.schema.names if name != CHANGE]
        form = KeyAndValue(names, found.key_columns)
        with found.reader() as reader:
            for batch in reader:
                changes = batch.column(CHANGE).to_pylist()
                for change, row in zip(changes, form.rows(batch.select(names)), strict=True):
                    yield [one.operator, one.name, change, *row]
