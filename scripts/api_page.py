"""Generates docs/api.md from the docstrings of the package's public names.

Usage: api_page.py            writes the page
       api_page.py --check    fails if the page is not up to date
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import TYPE_CHECKING

import cairn
from generated_page import ROOT, write_or_compare

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = ROOT / "docs" / "api.md"
WIDTH = 120

INTRODUCTION = """\
# API

<!-- Written by scripts/api_page.py from the docstrings of the package cairn. Do not edit. -->

The names below are all that is public; every other module of the package may change in any release.
The errors are below `cairn.errors.CairnError`, and have a `kind`, a `code` and a `next_step`:
[troubleshooting](troubleshooting.md) has each code. The settings are in
[configuration](configuration.md).

## Python: `import cairn`
"""
COMMAND = """
## The command `cairn`

It has a [page of its own](commands.md).
"""

_SECTION = re.compile(r"^(Args|Returns|Raises):\n((?:    .*\n|\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_TITLES = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises"}


def render() -> str:
    """Return the page."""
    functions = [name for name in cairn.__all__ if callable(getattr(cairn, name))]
    parts = [_name(name, getattr(cairn, name)) for name in sorted(functions, key=_order)]
    version = "\n### `cairn.__version__`\n\nThe release, as a string.\n"
    return "".join([INTRODUCTION, *parts, version, COMMAND])


def _order(name: str) -> tuple[bool, str]:
    """Sort functions before classes, those that most jobs call first."""
    return isinstance(getattr(cairn, name), type), "" if name == "spark_conf" else name


def _name(name: str, target: Callable[..., object]) -> str:
    signature = inspect.signature(target)
    plain = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    shown = signature.replace(parameters=plain, return_annotation=signature.empty)
    heading = f"### `cairn.{name}{shown}`"
    if len(heading) > WIDTH:
        # A heading is one line: the arguments follow it.
        arguments = _filled(f"cairn.{name}{shown}", " " * len(f"cairn.{name}("))
        heading = f"### `cairn.{name}`\n\n```python\n{arguments}```"
    return f"\n{heading}\n\n{_text(inspect.getdoc(target) or '')}"


def _text(docstring: str) -> str:
    """Return a docstring of Google's style as Markdown."""
    text = docstring.replace("``", "`") + "\n"

    def section(match: re.Match[str]) -> str:
        entries = "".join(
            _filled(f"- `{name}`: {' '.join(words.split())}", "  ")
            for name, words in _ENTRY.findall(match[2])
        )
        return f"{_TITLES[match[1]]}:\n\n{entries}\n"

    head, *_ = re.split(r"^(?:Args|Returns|Raises):$", text, maxsplit=1, flags=re.MULTILINE)
    sections = "\n".join(section(match).rstrip() + "\n" for match in _SECTION.finditer(text + "\n"))
    paragraphs = [_filled(" ".join(one.split())) for one in head.strip().split("\n\n")]
    return "\n".join([*paragraphs, *([sections] if sections else [])])


def _filled(text: str, indent: str = "") -> str:
    return (
        textwrap.fill(
            text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        + "\n"
    )


if __name__ == "__main__":
    write_or_compare(PAGE, render())
