"""`cairn import`: rows of Parquet files become the rows of a store.

Layer: cli, over `cairn.import_state`.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import (
    CheckpointCommand,
    Place,
    Stores,
    with_apply,
    with_files,
    with_local_dir,
    with_place,
    with_processes,
    with_stores,
)
from cairn.cli.output import Field, Output, with_output
from cairn.cli.streams import show_move, show_partitions
from cairn.correcting import import_state

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = (
    Field("operator", "integer", "its operator's number"),
    Field("store", "string", "Spark's name of the store"),
    Field("family", "string", "Spark's name of the column family"),
    Field("partitions", "integer", "how many are written"),
    Field("keys", "integer", "with --apply those of the written stores, else those of the files"),
    Field("digest", "string or null", "of the rows that were written; null: nothing was"),
)
PROBLEM_FIELDS = (
    Field("file", "string", "the file", is_whole=True),
    Field("row", "integer or null", "its number in the file, from 0; null: all"),
    Field("column", "string or null", "its name; null: the file itself, or the key"),
    Field("problem", "string", "what is wrong", is_whole=True),
)


@click.command(name="import", cls=CheckpointCommand)
@with_place
@with_files("--from", "A folder or URL with Parquet files of one kind of rows, or a local file.")
@with_stores
@click.option("--replace", "mode", flag_value="replace", help="The store has these rows alone.")
@click.option("--merge", "mode", flag_value="merge", help="Rows with other keys stay.")
@with_apply("Write the rows. Stop the query first.")
@with_processes
@with_local_dir
@with_output
def import_(
    place: Place,
    output: Output,
    *,
    target: Place,
    stores: Stores,
    mode: str | None,
    is_applied: bool,
    processes: int | None,
    local_dir: Path | None,
) -> None:
    """Make rows of Parquet files the rows of a store; without --apply, verify the files.

    The files have the columns that `cairn export` writes; SQL may have made them. Each row is
    verified: types, nulls, the partition, keys that are there twice. Problems are printed with
    file, row and column, and nothing is changed. Otherwise LOCATION, a checkpoint of Cairn's, gets
    a batch without input, in which the store has the rows, and from which the query goes on.

    A command that was cut off is repeated. Exit code 3: there are problems, or nothing was imported
    yet.
    """
    if stores.operator is None:
        raise click.UsageError("name the operator by --operator.")
    if mode is None:
        raise click.UsageError("say --replace, or --merge.")
    with import_state(
        place.location,
        files=target.location,
        operator=stores.operator,
        mode=mode,
        store=stores.store,
        family=stores.family,
        storage_options=place.options,
        files_storage_options=target.options,
        local_dir=local_dir,
        progress=show_partitions,
    ) as plan:
        if plan.problems:
            rows = [[one.file, one.row, one.column, one.text] for one in plan.problems]
            output.write_fields(PROBLEM_FIELDS, rows)
            click.echo("Nothing was imported: the files have problems.", err=True)
            click.get_current_context().exit(Exit.FINDINGS)
        if plan.is_committed:
            click.echo(
                "A process that has ended since has imported these rows already: --apply only "
                "completes its record.",
                err=True,
            )
        if not is_applied:
            family = plan.family
            output.write_fields(
                FIELDS,
                [
                    [
                        family.operator.id,
                        family.store.name,
                        one.family,
                        len(plan.partitions),
                        plan.keys,
                        None,
                    ]
                    for one in (family, plan.counter)
                    if one is not None
                ],
            )
            if not plan.is_committed:
                click.echo(
                    f"Nothing was imported. Batch {plan.batch + 1} would have these rows. Stop the "
                    "query, and add --apply.",
                    err=True,
                )
            click.get_current_context().exit(Exit.FINDINGS)
        done = plan.apply(processes=processes, progress=show_move)
    output.write_fields(FIELDS, [list(astuple(one)) for one in done])
