"""`cairn jar`: prints the path of the shim's jar, for `spark-submit --jars $(cairn jar)`.

Layer: cli.
"""

import click

from cairn.cli.streams import write_line
from cairn.jar import jar_path


@click.command()
@click.option(
    "--spark",
    metavar="VERSION",
    help="Version of Spark, e.g. 4.3. Default: that of the Spark in SPARK_HOME, else pyspark's.",
)
def jar(spark: str | None) -> None:
    """Print the path of the jar that Spark needs."""
    # No wrapping and no colour: a shell reads the output.
    write_line(str(jar_path(spark)))
