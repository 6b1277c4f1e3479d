"""Entry point of the command `cairn`: collects the commands and prints an error as one line.

Layer: cli.
"""

from typing import Any

import click

from cairn import __version__
from cairn.cli.jar import jar
from cairn.cli.undo_repartition import undo_repartition
from cairn.errors import CairnError


class CairnGroup(click.Group):
    """A group whose commands fail with a message instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Run a command.

        Raises:
            ClickException: in place of every CairnError.
        """
        try:
            return super().invoke(ctx)
        except CairnError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=CairnGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cairn")
def main() -> None:
    """Cairn: a state store for Spark Structured Streaming."""


main.add_command(jar)
main.add_command(undo_repartition)
