"""`cairn jar`: prints the path of the shim's jar, for `spark-submit --jars $(cairn jar)`.

Layer: cli.
"""

import click

from cairn.jar import jar_path


@click.command()
def jar() -> None:
    """Print the path of the jar that Spark needs."""
    # No wrapping and no colour: a shell reads the output.
    click.echo(str(jar_path()))
