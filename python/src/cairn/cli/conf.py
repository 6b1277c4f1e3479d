"""`cairn conf`: prints the settings that turn Cairn on, for `spark-submit $(cairn conf) job.py`.

Layer: cli, over `cairn.spark_conf`.
"""

from __future__ import annotations

import json
import re

import click

from cairn.spark_conf import spark_conf

_SPECIAL = re.compile(r"\\|^[=:]")
_NOT_ASCII = re.compile(r"[^ -~]")
_SAFE = re.compile(r"[\w./:=,@%+-]+", re.ASCII)


def _settings(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, sign, _value in pairs:
        if not name or not sign:
            raise click.BadParameter(f"{name!r} has no value; write it as name=value.")
    return {name: value for name, _, value in pairs}


def _in_properties(value: str) -> str:
    """Return a value as ``java.util.Properties`` reads it; what is not ASCII in units of UTF-16."""

    def units(found: re.Match[str]) -> str:
        digits = found[0].encode("utf-16-be", "surrogatepass").hex()
        return re.sub(r".{4}", r"\\u\g<0>", digits)

    return _NOT_ASCII.sub(units, _SPECIAL.sub(r"\\\g<0>", value))


@click.command()
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...", callback=_settings)
@click.option(
    "--conf",
    "job",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_settings,
    help="Setting of the job that counts for Cairn's: spark.master, spark.executor.memory, "
    "spark.jars, ...; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["args", "properties", "json"]),
    default="args",
    show_default=True,
    help="Arguments of spark-submit, lines of spark-defaults.conf, or one JSON object.",
)
def conf(settings: dict[str, str], job: dict[str, str], form: str) -> None:
    """Print the settings of Cairn for spark-submit.

    NAME=VALUE are settings of Cairn's by their short names, e.g. workers=2 cacheMemory=512m. The
    output includes spark.jars with Cairn's jar: use it as spark-submit $(cairn conf) job.py. On
    YARN and Kubernetes name the master by --conf spark.master=yarn, and the executors' size, so
    that the memory of the workers is added to spark.executor.memoryOverhead.
    """
    found = spark_conf(job, **settings)
    if form == "json":
        click.echo(json.dumps(found, indent=2))
    elif form == "properties":
        for name, value in found.items():
            click.echo(f"{name} {_in_properties(value)}")
    else:
        unsafe = [name for name, value in found.items() if not _SAFE.fullmatch(value)]
        if unsafe:
            raise click.UsageError(
                f"a shell would split or expand the value of {unsafe[0]} in $(cairn conf). "
                "Use -o properties with spark-submit --properties-file."
            )
        for name, value in found.items():
            click.echo(f"--conf {name}={value}")
