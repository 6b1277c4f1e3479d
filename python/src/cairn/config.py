"""The table of all settings, and EngineConf: the settings that the shim sends to an instance.

Layer: config.  Spec: docs/configuration.md, which ``scripts/configuration_page.py`` generates from
``settings.json``. The shim reads the same file.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from cairn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_INT_MAX = 2**63 - 1
# Java's numbers have 19 digits at most.
_SIZE = re.compile(
    r"(?P<count>\d{1,19})(?:(?P<unit>b)|(?P<binary>[kmgtp])(?:i?b)?)?", re.IGNORECASE
)
_SIZE_UNITS = {unit: 1024**power for power, unit in enumerate("bkmgtp")}
# The shim sends the settings of side "engine", and derives the others from Spark's own settings.
_FIELDS = {
    "minBatchesToRetain": "min_versions_to_retain",
    "minDeltasForSnapshot": "min_deltas_for_snapshot",
    "maxLineage": "max_lineage",
    "orphanGraceMs": "orphan_grace_ms",
    "requestTimeoutMs": "frame_timeout_ms",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of ``settings.json``; ``least`` and ``most`` bound a number.

    ``type`` is ``string``, ``int``, ``bytes``, ``boolean`` or ``enum``, which has ``values``.
    """

    name: str
    side: str
    type: str
    default: str | int | bool | None
    least: int
    most: int
    values: tuple[str, ...] = ()

    def fault(self, text: str) -> str | None:
        """Say what the value must be; ``None``: the text is one. The shim has the same rules."""
        value = text.strip()
        number = None
        if self.type == "int":
            number = int(value) if re.fullmatch(r"-?\d{1,19}", value, re.ASCII) else None
        elif self.type == "bytes":
            number = size_bytes(value)
        if self.type in {"int", "bytes"}:
            what = "a whole number" if self.type == "int" else "a size, such as 512m or 2g,"
            is_one = number is not None and self.least <= number <= self.most
            return None if is_one else f"{what} {self._range}"
        if self.type == "boolean":
            return None if value.lower() in {"true", "false"} else "true or false"
        if self.type == "enum":
            return None if value in self.values else f"one of {', '.join(self.values)}"
        return None if value else "a text that is not empty"

    @property
    def _range(self) -> str:
        above = f"of at least {self.least}"
        return above if self.most == _INT_MAX else f"from {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """All settings that users may set, by name; the full name is ``prefix`` and the name."""

    prefix: str
    settings: Mapping[str, Setting]


@cache
def read_settings() -> SettingsTable:
    """Return the table that the package contains."""
    table: dict[str, Any] = json.loads(
        resources.files("cairn").joinpath("settings.json").read_text("utf-8")
    )
    settings = {
        row["name"]: Setting(
            name=row["name"],
            side=row["side"],
            type=row["type"],
            default=row["default"],
            least=row.get("min", 0),
            most=row.get("max", _INT_MAX),
            values=tuple(row.get("values", ())),
        )
        for row in table["settings"]
    }
    return SettingsTable(table["prefix"], settings)


def size_bytes(text: str, *, bare: int = 1) -> int | None:
    """Return a size in Spark's notation, such as ``512m``; ``None`` if the text is none.

    Args:
        text: the size.
        bare: the unit of a number without one.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        return None
    letter = match["unit"] or match["binary"]
    return int(match["count"]) * (_SIZE_UNITS[letter.lower()] if letter else bare)


def explain_unknown(name: str, known: Iterable[str]) -> str:
    """Say which setting to use instead of ``name``: the nearest of ``known``."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)[0]
    return f"{name} is not a setting; the nearest one is {nearest}"


@dataclass(frozen=True, slots=True)
class EngineConf:
    """The settings that the shim sends to an instance in the call ``open_instance``.

    Attributes:
        min_versions_to_retain: Spark's ``minBatchesToRetain``: number of newest versions that stay
            loadable.
        min_deltas_for_snapshot: a snapshot is due after this number of versions.
        orphan_grace_ms: age, by the object store's clock, below which no SST is deleted.
        frame_timeout_ms: how long a commit waits for its last frame; five times that for a
            snapshot that it needs.
        max_lineage: a commit that would have more changelogs since a snapshot waits for one.
    """

    min_versions_to_retain: int = 100
    min_deltas_for_snapshot: int = 10
    orphan_grace_ms: int = 3_600_000
    frame_timeout_ms: int = 120_000
    max_lineage: int = 1_000

    @classmethod
    def from_mapping(cls, conf: Mapping[str, object]) -> EngineConf:
        """Return the settings in ``conf``; a setting that is absent has its default.

        Args:
            conf: values by name, as text or as JSON values: ``minBatchesToRetain``,
                ``minDeltasForSnapshot``, ``requestTimeoutMs`` and the settings of side "engine".

        Raises:
            ConfigError: lists all faults; for an unknown name, the name to use instead.
        """
        faults: list[str] = []
        fields: dict[str, int] = {}
        for name, value in conf.items():
            field = _FIELDS.get(name)
            if field is None:
                faults.append(explain_unknown(name, _FIELDS))
                continue
            setting = read_settings().settings.get(name)
            least, most = (setting.least, setting.most) if setting else (1, _INT_MAX)
            try:
                fields[field] = _parse_int(value, least, most)
            except ValueError as error:
                faults.append(f"{name} is {str(value)[:80]!r} but must be {error}")
        if faults:
            raise ConfigError(
                "; ".join(faults), next_step="correct the settings and start the query again"
            )
        return cls(**fields)


def _parse_int(value: object, least: int, most: int) -> int:
    """Return the number in ``value``; the message of a ValueError says what it must be."""
    try:
        number = int(str(value).strip())
    except ValueError:
        number = least - 1
    if isinstance(value, (bool, float)) or not least <= number <= most:
        raise ValueError(f"a whole number from {least} to {most}")
    return number
