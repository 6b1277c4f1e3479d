"""A checkpoint that was deleted and begun anew, while the stores of the former run are maintained.

Spark maintains the providers of a stopped query once more before it unloads them, up to
`maintenanceInterval` later, in the same JVM.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from harness.control import Control
from harness.differential import Rows, Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import CAIRN_CONF, CONTROL, STATE_STORE, SUBJECT, driver_jvm

pytestmark = pytest.mark.usefixtures("driver")

OPERATOR = BY_NAME["totals_complete"]
EVERY = 4
CONF = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    STATE_STORE + "minVersionsToDelete": "1",
    CAIRN_CONF + "orphanGraceMs": "0",
}


def loaded_providers() -> Any:  # noqa: ANN401 - a map of Scala's
    """Return Spark's providers of all stores that are loaded, by their ids."""
    jvm = driver_jvm()
    store = jvm.java.lang.Class.forName(
        "org.apache.spark.sql.execution.streaming.state.StateStore$"
    )
    loaded = store.getDeclaredField("loadedProviders")
    loaded.setAccessible(True)
    return loaded.get(store.getDeclaredField("MODULE$").get(None))


def as_list(providers: Any) -> list[Any]:  # noqa: ANN401
    """Return the providers of the map."""
    found, listed = providers.values().iterator(), []
    while found.hasNext():
        listed.append(found.next())
    return listed


@dataclass
class FormerRun(Run):
    """A run that has a snapshot of its fourth version, and will have the next one of its last.

    After its last batch its providers are taken from Spark, which would maintain and close them at
    a time that no test knows.
    """

    providers: list[Any] = field(default_factory=list)

    def read(self, frame: DataFrame) -> Rows:
        """Return the rows of a batch."""
        rows = super().read(frame)
        loaded = loaded_providers()
        if len(self.record.rows) == EVERY - 1:
            for provider in as_list(loaded):
                provider.doMaintenance()
        if len(self.record.rows) == 2 * EVERY - 1:
            self.providers = as_list(loaded)
            loaded.clear()
        return rows


@pytest.mark.parametrize("checkpoint_format", [1, 2], ids=["format1", "format2"])
def test_the_former_run_changes_nothing_in_the_new_checkpoint(
    tmp_path: Path, checkpoint_format: int
) -> None:
    """Its purge deleted the new changelogs by number, and the query did not start again."""
    checkpoint = tmp_path / "checkpoint"
    former_events = Events(tmp_path / "former")
    former_events.add_files(0, 2 * EVERY)
    conf = {**CONF, STATE_STORE + "minDeltasForSnapshot": str(EVERY)}
    former = FormerRun(OPERATOR, former_events, str(checkpoint), SUBJECT, checkpoint_format, conf)
    former.advance()
    shutil.rmtree(checkpoint)
    events = Events(tmp_path / "input", seed=8)
    events.add_files(0, 3)
    subject = Run(OPERATOR, events, str(checkpoint), SUBJECT, checkpoint_format, CONF)
    run = Run(OPERATOR, events, str(tmp_path / "control"), CONTROL, checkpoint_format)
    control = Control(f"former-run/format{checkpoint_format}", run)
    subject.advance()
    control.advance()

    for _ in range(3):
        for provider in former.providers:
            provider.doMaintenance()

    assert len(former.providers) == 2
    left = [path.name for path in (checkpoint / "state").rglob("snapshot/*.json")]
    assert max((int(name.split("_")[0]) for name in left), default=0) <= 3
    events.add_files(3, 2)
    subject.advance()
    control.advance()
    assert subject.record.rows == control.record.rows
    for provider in former.providers:
        provider.close()
