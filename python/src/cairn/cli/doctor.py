"""`cairn doctor`: what in this installation, machine, settings and location would stop a job.

Layer: cli, over `cairn.doctor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.cli.exit_codes import Exit
from cairn.cli.options import CheckpointCommand, Place, name_and_value, with_place_or_none
from cairn.cli.output import Field, Output, with_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.doctor.check import Check

FIELDS = (
    Field("check", "string", "what was looked at"),
    Field("status", "string", "ok, warning, or problem: it would stop a job"),
    Field("found", "string", "what is there", is_whole=True),
    Field("cure", "string", "what to do; empty if nothing is", is_whole=True),
)


@click.command(cls=CheckpointCommand)
@with_place_or_none
@click.option(
    "--conf",
    "job",
    multiple=True,
    metavar="NAME=VALUE",
    callback=name_and_value,
    help="Setting of the job, as for spark-submit; may be repeated. Without any, settings are not "
    "checked; spark-defaults.conf is not read.",
)
@click.option(
    "--write",
    "may_write",
    is_flag=True,
    help="Create and delete an object at LOCATION: does the storage honour conditional PUT?",
)
@with_output
def doctor(place: Place | None, job: dict[str, str], output: Output, *, may_write: bool) -> None:
    """Show what would stop a job here, each with the cure; exit 3 if anything would.

    Checked are this Python and its packages, Java, Spark and Cairn's jar for it, open files,
    temporary folders and their sockets, HADOOP_CONF_DIR, the settings of --conf, and LOCATION if it
    is given: list, get, clock. Run it where executors run, too: it checks one machine.
    """
    from cairn.doctor.examine import examine  # noqa: PLC0415 - it imports much

    if may_write and place is None:
        raise click.UsageError("--write needs a LOCATION.")
    location, options = (None, {}) if place is None else (place.location, place.options)
    problems = 0

    def rows() -> Iterator[list[str]]:
        nonlocal problems
        for check in examine(location, options, job, may_write=may_write):
            problems += check.status == "problem"
            yield _row(check)

    output.write_fields(FIELDS, rows())
    if problems:
        click.get_current_context().exit(Exit.FINDINGS)


def _row(check: Check) -> list[str]:
    return [check.name, check.status, check.found, check.cure]
