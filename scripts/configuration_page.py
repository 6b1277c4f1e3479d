"""Generates docs/configuration.md from the table of settings that shim and engine read.

Usage: configuration_page.py            writes the page
       configuration_page.py --check    fails if the page is not up to date
"""

import json
import textwrap
from typing import Any

from generated_page import ROOT, write_or_compare

TABLE = ROOT / "python" / "src" / "cairn" / "settings.json"
PAGE = ROOT / "docs" / "configuration.md"

INTRODUCTION = """\
# Configuration

<!-- Written by scripts/configuration_page.py from python/src/cairn/settings.json. Do not edit. -->

One setting turns Cairn on; `cairn.spark_conf()` returns it with the other settings that it needs:

    spark.sql.streaming.stateStore.providerClass   io.cairn.spark.CairnStateStoreProvider

It also sets the class that writes Spark's own files, unless the job has another one; it differs
from Spark's for checkpoints on S3 ([operations.md](operations.md#sparks-own-files-on-s3)):

    spark.sql.streaming.checkpointFileManagerClass io.cairn.spark.CairnCheckpointFileManager

The settings below are optional. Each is a session setting under `{prefix}`;
`cairn.spark_conf()` takes them by the names of the tables. An unknown name is an error that names
the nearest known one. Settings are read when a query starts. A size without a unit is in bytes;
`k`, `m` and `g` are powers of 1024.

Some of Spark's settings of state stores are honoured, others have no effect: see
[Spark's settings](#sparks-settings). S3's endpoint, region, credentials and path style are those of
the job's `fs.s3a.*` settings, unless a setting below overrides them.
"""

_MIB = 1 << 20
_TYPES = {
    "string": "text",
    "int": "whole number",
    "bytes": "size (`512m`, `4g`)",
    "boolean": "`true` or `false`",
}


def render(table: dict[str, Any]) -> str:
    """Return the page."""
    sections: dict[str, list[dict[str, Any]]] = {}
    for setting in table["settings"]:
        sections.setdefault(setting["section"], []).append(setting)
    parts = [INTRODUCTION.format(prefix=table["prefix"])]
    for title, settings in sections.items():
        parts.append(
            f"\n## {title}\n\n| name | value | default | what it does |\n|---|---|---|---|\n"
        )
        parts.extend(_row(setting) for setting in settings)
    parts.append(_of_spark(table["spark"]))
    return "".join(parts)


def _of_spark(spark: dict[str, Any]) -> str:
    honoured = "".join(f"| `{row['name']}` | {row['how']} |\n" for row in spark["honoured"])
    unused = "".join(
        f"| `{row['name']}` | {_values(row['quiet'])} | {row['instead']} |\n"
        for row in spark["unused"]
    )
    own = ", ".join(f"`{name}`" for name in spark["of_spark"])
    own = textwrap.fill(f"Spark itself uses these, with any provider: {own}.", 100)
    return f"""
## Spark's settings

Names without `spark.` are under `{spark["prefix"]}`. These are honoured:

| name | what it does |
|---|---|
{honoured}
{own}

These have no effect. Cairn names them in one warning of the log of each executor, with what holds
instead, unless their value is one of the second column: then Cairn does what they ask for, or it is
Spark's default. Any other name under the prefix is named too.

| name | values without a warning | what holds instead |
|---|---|---|
{unused}"""


def _values(values: list[str]) -> str:
    return ", ".join(f"`{value}`" for value in values) or "none"


def _row(setting: dict[str, Any]) -> str:
    default = setting.get("default_words") or f"`{setting['default']}`"
    return f"| `{setting['name']}` | {_value(setting)} | {default} | {setting['help']} |\n"


def _value(setting: dict[str, Any]) -> str:
    if setting["type"] == "enum":
        return " or ".join(f"`{value}`" for value in setting["values"])
    text = _TYPES[setting["type"]]
    low, high = setting.get("min"), setting.get("max")
    if setting["type"] == "bytes":
        return f"{text}, at least {setting['min'] // _MIB} MiB"
    if low is not None and high is not None:
        text += f", {low:,} to {high:,}"
    elif low is not None:
        text += f", at least {low:,}"
    return text


if __name__ == "__main__":
    write_or_compare(PAGE, render(json.loads(TABLE.read_text("utf-8"))))
