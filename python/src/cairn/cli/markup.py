"""Markup: elements of HTML whose texts are escaped unless they are elements themselves.

Layer: cli. The result is well-formed as HTML and as XML. Characters that a reader would not see, or
that would change the order of others, are written as escapes.
"""

from __future__ import annotations

import html
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID = frozenset({"meta", "br", "line", "rect", "path"})
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BYTE_MAX = 0xFF


class Markup(str):
    """Text that is markup already: only functions of this module and constants make it."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Return any value as text of an element or an attribute; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(visible(str(value))))


def visible(value: str) -> str:
    r"""Return the text with escapes, such as ``\x00``, for characters that are not seen."""
    if value.isascii() and value.isprintable():
        return value
    return "".join(_escaped(one) if unicodedata.category(one) in _HIDDEN else one for one in value)


def _escaped(one: str) -> str:
    number = ord(one)
    return f"\\x{number:02x}" if number <= _BYTE_MAX else f"\\u{{{number:x}}}"


def join(parts: Iterable[object]) -> Markup:
    """Return the parts one after the other."""
    return Markup("".join(map(text, parts)))


def element(name: str, /, *parts: object, **attributes: object) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        parts: its content: texts, which are escaped, and markup.
        attributes: by their names; ``_`` stands for ``-``, and is left out at the end. Those that
            are ``None`` or false are left out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text("" if value is True else value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID and not parts:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{join(parts)}</{name}>")
