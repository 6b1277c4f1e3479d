"""EngineConf: what an instance of the engine is told, checked as a whole.

Layer: config.  Spec: docs/configuration.md, which ``scripts/configuration_page.py`` makes of
``settings.json``, the one table of all settings; the shim reads the same file. Here are those of
side "engine", and what the shim derives from Spark's own settings and hands over with them.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from cairn.errors import ConfigError, InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of ``settings.json``; ``least`` and ``most`` bound numbers, ``values`` an enum."""

    name: str
    side: str
    type: str
    default: str | int | bool | None
    section: str
    help: str
    least: int | None = None
    most: int | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """All settings that users may type: ``prefix`` and then a name."""

    prefix: str
    settings: tuple[Setting, ...]


def read_settings() -> SettingsTable:
    """Return the table that the package carries."""
    table: dict[str, Any] = json.loads(
        resources.files("cairn").joinpath("settings.json").read_text("utf-8")
    )
    return SettingsTable(
        table["prefix"],
        tuple(
            Setting(
                name=row["name"],
                side=row["side"],
                type=row["type"],
                default=row["default"],
                section=row["section"],
                help=row["help"],
                least=row.get("min"),
                most=row.get("max"),
                values=tuple(row.get("values", ())),
            )
            for row in table["settings"]
        ),
    )


@dataclass(frozen=True, slots=True)
class EngineConf:
    """What an instance is told at ``open_instance``.

    Attributes:
        min_versions_to_retain: Spark's ``minBatchesToRetain``: so many newest versions load.
        min_deltas_for_snapshot: a snapshot is due after so many versions.
        orphan_grace_ms: age below which no SST is deleted, by the object store's clock.
        frame_timeout_ms: how long a commit waits for its last frame.
    """

    min_versions_to_retain: int = 100
    min_deltas_for_snapshot: int = 10
    orphan_grace_ms: int = 3_600_000
    frame_timeout_ms: int = 120_000

    @classmethod
    def from_mapping(cls, conf: Mapping[str, object]) -> EngineConf:
        """Return the settings that ``conf`` holds; absent ones have their default.

        Args:
            conf: by name, text or what JSON makes of it: the settings of side "engine", and
                ``minBatchesToRetain`` (or ``minVersionsToRetain``, Spark's name in the code),
                ``minDeltasForSnapshot``, ``requestTimeoutMs`` (or ``frameTimeoutMs``).

        Raises:
            ConfigError: names every fault at once; for an unknown name, the nearest known one.
        """
        known = _known()
        faults: list[str] = []
        fields: dict[str, int] = {}
        for name, value in conf.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0)[0]
                faults.append(f"{name} is not a setting; the nearest one is {near}")
                continue
            field, setting = known[name]
            try:
                fields[field] = parse_value(setting, value)
            except ValueError as error:
                faults.append(f"{name} is {str(value)[:80]!r} but must be {error}")
        if faults:
            raise ConfigError(
                "; ".join(faults), next_step="correct the settings and start the query again"
            )
        return cls(**fields)


def parse_value(setting: Setting, value: object) -> int:
    """Return the number that ``value`` spells.

    Raises:
        ValueError: it spells none that ``setting`` allows; the message says what it must be.
    """
    text = str(value).strip()
    if setting.type != "int":
        raise InternalError(f"the engine has no setting of type {setting.type}")
    least, most = setting.least or 0, setting.most or _INT_MAX
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if isinstance(value, (bool, float)) or not least <= number <= most:
        raise ValueError(f"a whole number from {least} to {most}")
    return number


def _known() -> dict[str, tuple[str, Setting]]:
    """Return field and rules by name; a setting of side "engine" without a field is a bug."""
    known = {
        "minBatchesToRetain": "min_versions_to_retain",
        "minVersionsToRetain": "min_versions_to_retain",
        "minDeltasForSnapshot": "min_deltas_for_snapshot",
        "requestTimeoutMs": "frame_timeout_ms",
        "frameTimeoutMs": "frame_timeout_ms",
    }
    fields = {
        name: (field, Setting(name, "shim", "int", None, "", "", least=1))
        for name, field in known.items()
    }
    for setting in read_settings().settings:
        if setting.side == "engine":
            field = "".join(f"_{c.lower()}" if c.isupper() else c for c in setting.name)
            if field not in EngineConf.__dataclass_fields__:
                raise InternalError(f"setting {setting.name} has no field in EngineConf")
            fields[setting.name] = (field, setting)
    return fields
