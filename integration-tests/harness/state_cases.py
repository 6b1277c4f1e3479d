"""Finished queries whose state is read: an operator under a provider, and its checkpoint.

A form is a provider and how it stores state. `Case` has the families of the query's state as the
reader and as Spark's `statestore` source show them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import cairn
from cairn.reader.checkpoint import Checkpoint
from cairn.reader.families import Family
from cairn.reader.state import State
from harness.differential import Run
from harness.events import Events
from harness.operators import Operator
from harness.spark import CAIRN, HDFS, ROCKSDB, STATE_STORE
from harness.state_rows import (
    DEFAULT,
    PARTITION,
    TIMERS,
    Rows,
    changes_of_reader,
    changes_of_source,
    rows_of_families,
    rows_of_reader,
    rows_of_source,
    source_options,
)


@dataclass(frozen=True)
class Form:
    """A provider, and how it stores state."""

    name: str
    provider: str
    checkpoint_format: int = 1
    conf: dict[str, str] = field(default_factory=dict)


_ZIPS = {STATE_STORE + "rocksdb.changelogCheckpointing.enabled": "false"}
SIDES = ("left", "right")
EVENT_TIME = "__event_time"
FORMS = {
    form.name: form
    for form in (
        Form("cairn-1", CAIRN, 1),
        Form("cairn-2", CAIRN, 2),
        Form("rocksdb-1", ROCKSDB, 1),
        Form("rocksdb-2", ROCKSDB, 2),
        Form("rocksdb-zips-1", ROCKSDB, 1, _ZIPS),
        Form("rocksdb-zips-2", ROCKSDB, 2, _ZIPS),
        Form("hdfs", HDFS),
    )
}


def runs(operator: Operator, form: Form) -> bool:
    """Return whether an operator runs in a form, and differs there from another operator."""
    if form.provider == HDFS:
        # Spark refuses the first, and runs a join of state format 3 or 4 as one of format 2.
        return not operator.name.startswith("transform") and not any(
            part in operator.name for part in ("_v3", "_v4")
        )
    # Spark's RocksDB provider fails: it upgrades the read store of the other operator.
    return form.provider != ROCKSDB or operator.name != "windows_then_distinct"


@dataclass
class Case:
    """The finished run of an operator."""

    run: Run

    @classmethod
    def of(cls, operator: Operator, form: Form, events: Events, checkpoint: Path) -> Case:
        """Run an operator to the end of its input."""
        run = Run(
            operator, events, str(checkpoint), form.provider, form.checkpoint_format, form.conf
        )
        run.advance()
        return cls(run)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, as the reader opens it."""
        return cairn.open_checkpoint(self.run.checkpoint)

    def compared(self, batch: int) -> Iterator[Compared]:
        """See `compared`."""
        return compared(self.run.session(), self.checkpoint, batch)

    def compared_changes(self) -> Iterator[Compared]:
        """See `compared_changes`; nothing without changelogs, where Spark has no feed."""
        if not _ZIPS.items() <= self.run.conf.items():
            yield from compared_changes(self.run.session(), self.checkpoint)


def families_of(checkpoint: Checkpoint, batch: int | None = None) -> Iterator[Family]:
    """Yield the families of all operators; of the newest batch if it is `None`."""
    view = checkpoint.view(batch)
    for operator in view.operators:
        yield from view.families(operator)


def compared_changes(spark: SparkSession, checkpoint: Checkpoint) -> Iterator[Compared]:
    """Yield the change feeds that both show: Spark has none of families of joins, and of timers."""
    last = checkpoint.batches[-1]
    for family in families_of(checkpoint):
        options = source_options(family)
        if (
            options is None
            or family.family in TIMERS
            or (family.family != DEFAULT and not family.operator.variables)
        ):
            continue
        feed = checkpoint.changes(
            (0, last),
            operator=family.operator.id,
            store=family.store.name,
            family=family.family,
        )
        keys = state_of(checkpoint, family).key_columns
        expected = changes_of_source(spark, checkpoint.location, options, last)
        yield f"changes of {family.name}", changes_of_reader(feed.to_table(), keys), expected


def state_of(checkpoint: Checkpoint, family: Family, batch: int | None = None) -> State:
    """Return the state of a family."""
    return checkpoint.state(family.operator.id, family.store.name, family.family, batch)


def rows_of(checkpoint: Checkpoint, family: Family, batch: int | None = None) -> Rows:
    """Return the rows of a family, as the reader returns them."""
    state = state_of(checkpoint, family, batch)
    return rows_of_reader(state.to_table(), state.key_columns)


Compared = tuple[str, Rows, Rows]
"""What is compared: a name, the rows of the reader, and those of Spark's source."""


def compared(spark: SparkSession, checkpoint: Checkpoint, batch: int) -> Iterator[Compared]:
    """Yield all that both readers show of a batch."""
    location = checkpoint.location
    families = list(families_of(checkpoint, batch))
    for family in families:
        options, found = source_options(family), rows_of(checkpoint, family, batch)
        name = f"operator {family.operator.id}, {family.name}"
        if options is not None:
            yield name, found, rows_of_source(spark, location, options, batch)
        if family.name in SIDES and family.schema is not None:
            # The reader also shows where a row is, and whether it was matched. Of state format 4
            # the source shows other bytes than those of the event time.
            side = {"operatorId": str(family.operator.id), "joinSide": family.name}
            expected = rows_of_source(spark, location, side, batch).without(EVENT_TIME)
            yield f"{name}, joinSide", found.without("index", "matched", EVENT_TIME), expected
    if checkpoint.view(batch).provider == "rocksdb":
        for number in {family.operator.id for family in families if family.operator.variables}:
            of_operator = [family for family in families if family.operator.id == number]
            for name, expected in rows_of_families(spark, location, of_operator, batch).items():
                (family,) = (one for one in of_operator if one.family == name)
                found = rows_of(checkpoint, family, batch).without(PARTITION)
                yield f"operator {number}, {name}, as bytes", found, expected


def rows_by_key(state: State) -> list[tuple[dict[str, Any], Rows]]:
    """Return all keys of a state, each with its rows."""
    table, places = state.to_table(), dict[str, list[int]]()
    keys = table.select(list(state.key_columns)).to_pylist()
    for place, key in enumerate(keys):
        places.setdefault(repr(key), []).append(place)
    return [(keys[some[0]], rows_of_reader(table.take(some))) for some in places.values()]


def copy_of_partition(checkpoint: Path, partition: int, folder: Path) -> Checkpoint:
    """Return a copy of a checkpoint that has the rows of one partition alone.

    It is moved, too: the absolute paths in its metadata lead nowhere.
    """
    copy = folder / f"partition-{partition}"

    def others(place: str, names: list[str]) -> set[str]:
        parts = Path(place).relative_to(checkpoint).parts
        is_other = parts[:1] == ("state",) and len(parts) > 2 and parts[2].isdecimal()
        if not is_other or parts[2] == str(partition) or "_metadata" in parts:
            return {name for name in names if name.endswith((".tmp", ".tmp.crc"))}
        return {name for name in names if name != "_metadata" and not Path(place, name).is_dir()}

    shutil.copytree(checkpoint, copy, ignore=others)
    for path in copy.glob("state/*/_metadata/v2/[0-9]*"):
        path.write_text(path.read_text().replace(str(checkpoint), "/nowhere"))
    return cairn.open_checkpoint(str(copy))
