"""JSON fields, read strictly: a value of another type is corrupt, an unknown field is ignored.

Layer: format.  Spec: docs/checkpoint-format.md (header of a changelog, manifest).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from cairn.errors import CorruptError

JsonObject: TypeAlias = Mapping[str, object]


def parse_object(data: bytes | str, what: str) -> JsonObject:
    """Return ``data`` as a JSON object.

    Raises:
        CorruptError: ``data`` is not one.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{what} is not JSON") from error
    return as_object(value, what)


def dump_object(value: JsonObject) -> str:
    """Return the canonical text: keys sorted, no white space, non-ASCII characters not escaped."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def as_object(value: object, what: str) -> JsonObject:
    """Return ``value`` if it is a JSON object."""
    if not isinstance(value, dict):
        raise _corrupt(what, "an object")
    return value


def as_list(value: object, what: str) -> list[object]:
    """Return ``value`` if it is a JSON list."""
    if not isinstance(value, list):
        raise _corrupt(what, "a list")
    return value


def as_text(value: object, what: str) -> str:
    """Return ``value`` if it is a JSON string."""
    if not isinstance(value, str):
        raise _corrupt(what, "a string")
    return value


def as_flag(value: object, what: str) -> bool:
    """Return ``value`` if it is true or false."""
    if not isinstance(value, bool):
        raise _corrupt(what, "true or false")
    return value


def as_int(value: object, what: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """Return ``value`` if it is a whole number from ``least`` to ``most``."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _corrupt(what, f"a whole number from {least} to {most}")
    return value


def _corrupt(what: str, wanted: str) -> CorruptError:
    # Without the value: a call's arguments may be secret, and errors are logged.
    return CorruptError(f"{what} is not {wanted}")
