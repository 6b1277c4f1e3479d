"""`cairn undo-repartition`: takes back the entry that a refused repartition left in Spark's logs.

Layer: cli.
"""

import click

from cairn.checkpoint.spark_logs import (
    UnfinishedRepartition,
    find_unfinished_repartition,
    take_back,
)
from cairn.cli.location import open_location


@click.command()
@click.argument("checkpoint")
@click.option("--apply", "is_applied", is_flag=True, help="Delete them. Stop the query first.")
@click.option("--s3-endpoint", default="", help="Endpoint of the S3 service; default: AWS.")
@click.option("--s3-region", default="", help="Region of the S3 service; default: the AWS chain.")
@click.option("--hadoop-conf", multiple=True, metavar="NAME=VALUE", help="Setting of Hadoop.")
@click.option("--jar", "jars", multiple=True, help="Jar of a file system that Spark lacks.")
def undo_repartition(
    checkpoint: str,
    is_applied: bool,  # noqa: FBT001 - click passes options by name
    s3_endpoint: str,
    s3_region: str,
    hadoop_conf: tuple[str, ...],
    jars: tuple[str, ...],
) -> None:
    """Take back a refused offline repartition, so that the query starts again.

    CHECKPOINT is the query's checkpointLocation: a folder, a URL of S3 (s3a://bucket/path), whose
    credentials come from the AWS chain, or a URL of any file system of Hadoop's (hdfs://...), whose
    settings come from HADOOP_CONF_DIR; a JVM then runs meanwhile. Without --apply the command only
    says what it found and which objects it would delete.
    """
    settings = {"endpoint_url": s3_endpoint, "region": s3_region}
    with open_location(checkpoint, settings, hadoop_conf, jars) as store:
        found = find_unfinished_repartition(store)
        if found is None:
            click.echo(f"{checkpoint} has no unfinished repartition; nothing to take back.")
            return
        click.echo(_description(checkpoint, found))
        if not is_applied:
            click.echo("Nothing was deleted. Stop the query, and repeat the command with --apply.")
            return
        take_back(store, found)
        click.echo(f"Deleted: {', '.join(found.keys)}. The query can be started again.")


def _description(checkpoint: str, found: UnfinishedRepartition) -> str:
    entry, base = found.entry, found.base
    lines = [
        f"{checkpoint} has an unfinished repartition.",
        f"Partitions: {base.partitions} before, {entry.partitions} wanted.",
        f"Last batch with state: {base.batch}.",
    ]
    lines += [f"To delete: {key}" for key in found.keys]
    lines += [f"Content of {log.key}:\n{log.text.rstrip()}" for log in (*found.skipped, entry)]
    return "\n".join(lines)
