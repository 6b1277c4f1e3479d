"""Entry point of the command `cairn`: finds the commands, and prints an error as one line.

Layer: cli. A command's module is imported when it runs, and libraries of data when it needs them:
`cairn --help` and completion answer at once.
"""

from __future__ import annotations

import errno
import sys
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import click

from cairn import __version__
from cairn.cli.exit_codes import Exit
from cairn.cli.streams import ClosedOutput
from cairn.errors import CairnError, NoSuchBucketError, NotThereError

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS = {
    "bisect": "Find the first batch at which an SQL condition is true.",
    "clone": "Make a new query from a batch of another one.",
    "completion": "Print the completion script of a shell.",
    "conf": "Print the settings of Cairn for spark-submit.",
    "cost": "Show what a checkpoint costs on S3.",
    "diff": "Show how the state differs between two batches.",
    "doctor": "Show what would stop a job here.",
    "erase": "Erase a key from the state and all its versions.",
    "export": "Write the state of a batch as Parquet files.",
    "gc": "Show what nothing in a checkpoint needs, or delete it.",
    "get": "Show one key in every store that has it.",
    "history": "Show the batches that changed a key.",
    "import": "Make rows of Parquet files the rows of a store.",
    "jar": "Print the path of the jar that Spark needs.",
    "ls": "List the stores, batches or files of a checkpoint.",
    "migrate": "Move the state to another state store provider.",
    "query": "Query the state by SQL.",
    "repair": "Show what would mend a checkpoint, or mend it.",
    "repartition": "Give the state another number of partitions.",
    "report": "Write a report about the state as HTML.",
    "restore": "Let a query go on from an earlier batch.",
    "savepoint": "Keep a batch of a query, list what is kept, or give it up.",
    "show": "Show the rows of a store.",
    "undo-repartition": "Take back an offline repartition that was refused.",
    "verify": "Show what is wrong with a checkpoint.",
}
"""The commands with their short helps: the module of each has the command under its own name."""


def name_in_python(command: str) -> str:
    """Return the name of a command's module, and of the command in it."""
    name = command.replace("-", "_")
    return f"{name}_" if iskeyword(name) else name


class NotThere(click.ClickException):
    """A failure that has an exit code of its own."""

    exit_code = Exit.NOT_THERE


class CairnGroup(click.Group):
    """A group that imports a command when it runs, and prints its failure without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return a command; ``None`` if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        name = name_in_python(cmd_name)
        command: click.Command = getattr(import_module(f"cairn.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def main(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - click's own signature
        """Run the command of this process."""
        if sys.stdout is None:
            sys.stdout = ClosedOutput()
        return super().main(*args, **settings)

    def make_context(self, *args: Any, **settings: Any) -> click.Context:  # noqa: ANN401
        """Read the options before the command's name: help and version are written then.

        Raises:
            ClickException: in place of a failure to write them.
        """
        with _explained():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Run a command.

        Raises:
            ClickException: in place of every CairnError, and of a failure to write the output.
        """
        with _explained():
            return super().invoke(ctx)


@contextmanager
def _explained() -> Iterator[None]:
    """Raise a failure of the block as one that click prints as a line."""
    try:
        yield
    except (NotThereError, NoSuchBucketError) as error:
        raise NotThere(str(error)) from error
    except CairnError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # click ends quietly: nobody reads the output any more
            raise
        raise click.ClickException(f"the output cannot be written: {error}") from error


@click.group(cls=CairnGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cairn")
def main() -> None:
    """Cairn: a state store for Spark Structured Streaming, and a reader of its state.

    The commands that take a LOCATION read the checkpoint of a query, of Cairn's or of Spark's own
    state store providers, without Spark. They change nothing, unless --apply is given; savepoint
    adds objects of its own, and deletes them.
    """
