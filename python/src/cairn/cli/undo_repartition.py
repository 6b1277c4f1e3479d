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


def _location(_: click.Context, __: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("it is empty; name the query's checkpointLocation.")
    return value


def _url(_: click.Context, __: click.Parameter, value: str) -> str:
    if value and not value.startswith(("http://", "https://")):
        raise click.BadParameter(f"{value!r} is not a URL; write it as https://host[:port].")
    return value


@click.command(short_help="Take back an offline repartition that was refused.")
@click.argument("checkpoint", callback=_location)
@click.option(
    "--apply",
    "is_applied",
    is_flag=True,
    help="Delete the listed entries of Spark's logs. Stop the query first.",
)
@click.option(
    "--s3-endpoint",
    default="",
    metavar="URL",
    callback=_url,
    help="URL of an S3 service other than AWS, e.g. https://minio:9000.",
)
@click.option(
    "--s3-region", default="", help="Region of the S3 service. Default: from the AWS chain."
)
@click.option(
    "--hadoop-conf",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of Hadoop's, not for S3 and local files; may be repeated.",
)
@click.option(
    "--jar",
    "jars",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Jar of a file system that Spark does not have, e.g. hadoop-azure; may be repeated.",
)
def undo_repartition(
    checkpoint: str,
    is_applied: bool,  # noqa: FBT001 - click passes options by name
    s3_endpoint: str,
    s3_region: str,
    hadoop_conf: tuple[str, ...],
    jars: tuple[str, ...],
) -> None:
    """Take back a refused offline repartition, so that the query starts again.

    CHECKPOINT is the query's checkpointLocation: a folder; s3a://bucket/path, with credentials from
    the AWS chain (AWS_PROFILE, AWS_ACCESS_KEY_ID, ...); or the URL of another file system that
    Hadoop reaches, such as hdfs://..., with settings from HADOOP_CONF_DIR. For the last one the
    command starts a JVM. A path without a scheme is a local folder: write the whole URL where the
    job leaves it to fs.defaultFS. Without --apply nothing is deleted: the command prints what it
    found and what it would delete.
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
    deleted = [*((commit.key, commit.text) for commit in found.skipped), (entry.key, entry.text)]
    lines += [f"Content of {key}:\n{text.rstrip()}" for key, text in deleted]
    return "\n".join(lines)
