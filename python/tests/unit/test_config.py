"""EngineConf: right, or every fault at once."""

from __future__ import annotations

import pytest

from cairn.config import EngineConf, read_settings
from cairn.errors import ConfigError


def test_absent_settings_have_their_defaults() -> None:
    """The defaults are those of the table."""
    table = {setting.name: setting.default for setting in read_settings().settings}

    assert EngineConf.from_mapping({}).orphan_grace_ms == table["orphanGraceMs"]


def test_settings_are_text_or_json() -> None:
    """The shim sends numbers, tests and people send text."""
    conf = EngineConf.from_mapping(
        {
            "minBatchesToRetain": 7,
            "minDeltasForSnapshot": "3",
            "orphanGraceMs": "0",
            "requestTimeoutMs": 1000,
        }
    )

    assert conf == EngineConf(7, 3, 0, 1000)


def test_all_faults_are_reported_at_once() -> None:
    """Nobody wants to start a job once per fault."""
    with pytest.raises(ConfigError) as raised:
        EngineConf.from_mapping(
            {"orphanGracMs": "1", "requestTimeoutMs": "maybe", "minDeltasForSnapshot": "-1"}
        )

    text = str(raised.value)
    assert "nearest one is orphanGraceMs" in text
    assert "requestTimeoutMs is 'maybe' but must be a whole number from 1" in text
    assert "minDeltasForSnapshot is '-1' but must be a whole number from 1" in text


@pytest.mark.parametrize("value", ["", "1.5", "1e3", 1.0, True, "٣x", None])
def test_only_whole_numbers_are_numbers(value: object) -> None:
    """A value that means something else elsewhere is refused, not rounded."""
    with pytest.raises(ConfigError):
        EngineConf.from_mapping({"minBatchesToRetain": value})
