"""`cairn jar`: where the shim's jar is, for `spark-submit --jars $(cairn jar)`.

Layer: cli.
"""

import click

from cairn.jar import jar_path


@click.command()
def jar() -> None:
    """Print the path of the jar that Spark needs."""
    # Without wrapping or colour: the output is for a command line.
    click.echo(str(jar_path()))
