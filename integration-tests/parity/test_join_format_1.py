"""Joins with state format 1: Spark 4.3 starts none, with any provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME, JOIN_STATE_FORMAT
from harness.spark import CONTROL, SUBJECT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("driver")


def test_state_format_1_ends_in_the_error_of_sparks_provider(tmp_path: Path) -> None:
    """If Spark opened it again, its rows would have to be compared as those of formats 2 to 4."""
    events = Events(tmp_path / "input")
    events.add_files(0, 1)
    messages = []
    for provider in (SUBJECT, CONTROL):
        conf = {JOIN_STATE_FORMAT: "1"}
        checkpoint = str(tmp_path / provider)
        run = Run(BY_NAME["join_inner_v2"], events, checkpoint, provider, conf=conf)
        with pytest.raises(StreamingQueryException) as raised:
            run.advance()
        messages.append(str(raised.value))

    assert all("Unsupported schema writer version: 1" in message for message in messages), messages
