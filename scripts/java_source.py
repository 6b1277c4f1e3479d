"""The code of a Java file, without its comments, strings and character literals."""

from __future__ import annotations

import re

_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
    re.DOTALL,
)


def code_of(text: str) -> str:
    """Return ``text`` with blanks in place of all that is not code; every line keeps its number."""
    return _NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
