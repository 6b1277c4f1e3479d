"""Generates docs/commands.md from the commands: their helps, options, and columns of output.

Usage: commands_page.py            writes the page
       commands_page.py --check    fails if the page is not up to date
"""

from __future__ import annotations

import contextlib
import inspect
import shlex
import sys
import textwrap
from collections.abc import Iterable
from importlib import import_module

import click
from click.testing import CliRunner

from cairn.cli.exit_codes import MEANINGS, Exit
from cairn.cli.main import COMMANDS, main, name_in_python
from cairn.cli.output import Fields
from generated_page import ROOT, write_or_compare

PAGE = ROOT / "docs" / "commands.md"
WIDTH = 120
SHARED = ("s3_endpoint", "s3_region", "hadoop_conf", "jars", "form")
"""Options of all commands with a location, which the page explains once."""

INTRODUCTION = """\
# The command `cairn`

<!-- Written by scripts/commands_page.py from the commands. Do not edit. -->

The commands with a LOCATION read the checkpoint of a query: one of Cairn's, or of Spark's
HDFS-backed or RocksDB provider. They need no Spark, and change nothing; exceptions are
those with `--apply`, and `doctor --write`. The same from Python:
[reader.md](reader.md).

The examples read `examples/sample-checkpoint`, which is in the repository: the state of a small
shop, whose query joins orders with payments (operator 1) and keeps totals per customer by
`transformWithState` (operator 0). `examples/sample/make.py` made it.
"""
SAMPLE = "examples/sample-checkpoint"
SHOWN = (
    ["show", SAMPLE, "--store", "total"],
    ["query", SAMPLE, "select product, sum(paid) from op0_by_product group by all order by all"],
    ["get", SAMPLE, "--key", '{"customer": "dora"}', "-o", "ndjson"],
    ["diff", SAMPLE, "0", "1", "--operator", "0", "--store", "total"],
)
COMPLETION = """
Completion of commands, options and folders in the shell: `eval "$(cairn completion bash)"`.

## Location and storage

"""
OUTPUT = """
## Output

Standard output has the rows and nothing else; messages, and on a terminal the progress, are on
standard error. `-o` selects the form:

"""
OF_FORMS = ("form", "what it is", "nothing found")
FORMS = (
    (
        "`table`",
        (
            "aligned columns; cells of at most 60 characters; control characters of cells and "
            "names as `\\xNN`"
        ),
        "the line of names",
    ),
    ("`json`", "one array of objects, an object per line", "`[]`"),
    ("`ndjson`", "an object per line", "nothing"),
    (
        "`csv`",
        "a line of names, then a line per row; null is empty; structs, lists and maps are JSON",
        "the line of names",
    ),
)
AFTER_FORMS = """
Rows are written as they are read, so memory does not grow with them; `get` and `verify` collect
theirs first. `--to FILE.parquet` of `show` and `query` writes a Parquet file instead, with the
Arrow types of the rows; it appears when it is whole. The names of the columns below, and their
types in JSON, stay as they are within a major version; new ones may come. Colours are shown on a
terminal only, and not if `NO_COLOR` is set.

### Values

"""
OF_VALUES = ("type", "in JSON")
VALUES = (
    ("numbers, booleans, null", "the same; infinities and NaN are text"),
    ("text", "the same; bytes that are not UTF-8 as `\\xNN`, in names of files as `\\udcNN`"),
    ("binary", "hexadecimal text"),
    ("decimals", 'text, such as `"342.05"`'),
    (
        "timestamps, dates, times",
        'text in ISO 8601, `"2026-03-01T09:00:00Z"`; no `Z` for timestamps without zone',
    ),
    ("intervals", 'text in ISO 8601, such as `"P1M2DT3H4M5.5S"`'),
    ("structs", "objects"),
    ("lists", "arrays"),
    ("maps", "objects if their keys are text, else arrays of `[key, value]`"),
)
AFTER_VALUES = """
`--key` takes the values of a key in the same notation, but for text that is not UTF-8. A number for
a float or double is the nearest one; a value that its column cannot have exactly is refused.

## Exit codes

"""

EXAMPLES = {
    "ls": f"cairn ls {SAMPLE} --count",
    "show": f"cairn show {SAMPLE} --operator 1 --store left --limit 5 -o csv",
    "get": f"""cairn get {SAMPLE} --key '{{"customer": "ann"}}'""",
    "history": f"""cairn history {SAMPLE} --store total --key '{{"customer": "ann"}}'""",
    "query": f"""cairn query {SAMPLE} "from op1_left where not matched" --to open.parquet""",
    "bisect": f"""cairn bisect {SAMPLE} "exists (from op0_total where paid > 300)\"""",
    "cost": f"cairn cost {SAMPLE} --advice -o json",
    "gc": "cairn gc s3://bucket/checkpoint --apply",
    "repair": "cairn repair s3://bucket/checkpoint --apply",
    "restore": "cairn restore s3://bucket/checkpoint --to-batch 1200 --apply",
    "savepoint create": "cairn savepoint create s3://bucket/checkpoint --name before-1.2 --apply",
    "savepoint delete": "cairn savepoint delete s3://bucket/checkpoint --name before-1.2 --apply",
    "doctor": "cairn doctor s3://bucket/checkpoint --write $(cairn conf workers=2)",
    "diff": "cairn diff s3://bucket/checkpoint 100 latest --s3-endpoint https://minio:9000",
    "report": f"cairn report {SAMPLE} --to report.html",
    "conf": "spark-submit $(cairn conf workers=2) job.py",
    "jar": 'spark-submit --jars "$(cairn jar)" job.py',
}


def render() -> str:
    """Return the page."""
    commands = {name: _command(name) for name in sorted(COMMANDS)}
    some = commands["ls"]
    location = (some.help or "").rpartition("\n\n")[2]
    storage = [one for one in some.params if one.name in SHARED and one.name != "form"]
    codes = [(str(code.value), meaning) for code, meaning in MEANINGS.items()]
    parts = [
        *(INTRODUCTION, _examples(), COMPLETION),
        *(_filled(location), "\n", *map(_option, storage)),
        *(OUTPUT, _table(OF_FORMS, FORMS), AFTER_FORMS, _table(OF_VALUES, VALUES), AFTER_VALUES),
        _table(("code", "meaning"), codes),
    ]
    return "".join([*parts, *(_sections(name, one) for name, one in commands.items())])


def _examples() -> str:
    """Return commands with their output."""
    lines = []
    with contextlib.chdir(ROOT):
        for arguments in SHOWN:
            done = CliRunner().invoke(main, arguments)
            if done.exit_code not in (Exit.OK, Exit.FINDINGS):
                sys.exit(f"cairn {shlex.join(arguments)}: {done.output}")
            lines.append(f"$ cairn {shlex.join(arguments)}\n{done.stdout}")
    return f"\n```\n{''.join(lines)}```\n"


def _command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None  # noqa: S101 - it is one of the names
    return found


def _sections(name: str, command: click.Command) -> str:
    """Return the section of a command, and those of its subcommands."""
    if not isinstance(command, click.Group):
        return _section(name, command, _outputs(name, ""))
    parts = [
        _section(f"{name} {sub}", one, _outputs(name, f"{sub.upper()}_"), level="###")
        for sub, one in command.commands.items()
    ]
    return "".join([_section(name, command, []), *parts])


def _section(name: str, command: click.Command, outputs: list[str], level: str = "##") -> str:
    usage = " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    own = [one for one in paragraphs if not one.startswith("LOCATION is ")]
    text = "\n".join(_filled(one) for one in own)
    options = [one for one in command.params if isinstance(one, click.Option)]
    listed = "".join(_option(one) for one in options if not _is_shared(one))
    example = f"\n    {EXAMPLES[name]}\n" if name in EXAMPLES else ""
    parts = [f"\n{level} cairn {name}\n\n`cairn {name} {usage}`\n\n{text}", example]
    return "".join([*parts, f"\n{listed}" if listed else "", *outputs])


def _is_shared(option: click.Option) -> bool:
    return option.name in SHARED and not (
        option.name == "form"
        and isinstance(option.type, click.Choice)
        and "args" in option.type.choices
    )


def _outputs(name: str, prefix: str) -> list[str]:
    """Return the tables of columns; ``prefix``: of those of a subcommand."""
    module = import_module(f"cairn.cli.{name_in_python(name)}")
    tables = {
        key.removeprefix(prefix): value
        for key, value in vars(module).items()
        if key.endswith("FIELDS") and key.startswith(prefix)
    }
    return [f"\n{_TITLES[key]}\n\n{_columns(fields)}" for key, fields in tables.items()]


def _columns(fields: Fields) -> str:
    rows = [(f"`{one.name}`", one.type, one.meaning) for one in fields]
    return _table(("name", "in JSON", "what it is"), rows)


_TITLES = {
    "FIELDS": "Columns of the output:",
    "STORE_FIELDS": "Columns of the output, for stores:",
    "ALL_FIELDS": "With `--all` also:",
    "COUNT_FIELDS": "With `--count` also:",
    "BATCH_FIELDS": "Columns with `--batches`:",
    "FILE_FIELDS": "Columns with `--files`:",
    "PART_FIELDS": "Columns of the output:",
    "BASIS_FIELDS": "Columns with `--basis`:",
    "ADVICE_FIELDS": "Columns with `--advice`:",
    "SCHEMA_FIELDS": "Columns with `--schema`:",
    "TABLE_FIELDS": "Columns of the list of tables:",
    "PROBLEM_FIELDS": "Columns of the output, if files have problems:",
}


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    head = f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _option(option: click.Parameter) -> str:
    assert isinstance(option, click.Option)  # noqa: S101 - arguments are in the usage
    value = "" if option.is_flag else f" {option.metavar or _kind(option)}"
    names = ", ".join([*option.opts, *option.secondary_opts])
    return _filled(f"- `{names}{value}`: {option.help}", "  ")


def _kind(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.type.name.upper()


def _filled(text: str, indent: str = "") -> str:
    words = " ".join(text.split())
    return (
        textwrap.fill(
            words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        + "\n"
    )


if __name__ == "__main__":
    write_or_compare(PAGE, render())
