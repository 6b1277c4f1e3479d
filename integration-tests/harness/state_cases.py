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

import pyarrow as pa

import cairn
from cairn.reader.checkpoint import Checkpoint
from cairn.reader.families import Family
from cairn.reader.state import State
from harness.differential import Run
from harness.events import Events
from harness.operators import Operator
from harness.spark import CAIRN, HDFS, ROCKSDB, STATE_STORE
from harness.state_rows import (
    PARTITION,
    Rows,
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
    form: Form

    @classmethod
    def of(cls, operator: Operator, form: Form, events: Events, checkpoint: Path) -> Case:
        """Run an operator to the end of its input."""
        run = Run(
            operator, events, str(checkpoint), form.provider, form.checkpoint_format, form.conf
        )
        run.advance()
        return cls(run, form)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, as the reader opens it."""
        return cairn.open_checkpoint(self.run.checkpoint)

    def families(self, batch: int | None = None) -> Iterator[Family]:
        """Yield the families of all operators."""
        view = self.checkpoint.view(batch)
        for operator in view.operators:
            yield from view.families(operator)

    def state(self, family: Family, batch: int | None = None) -> State:
        """Return the state of a family."""
        return state_of(self.checkpoint, family, batch)

    def read(self, family: Family, batch: int | None = None) -> Rows:
        """Return the rows of a family that the reader returns."""
        return rows_of_reader(self.state(family, batch).to_table(), keys_of(family))

    def of_source(self, options: dict[str, str], batch: int) -> Rows:
        """Return the rows that Spark's source returns."""
        return rows_of_source(self.run.session(), self.run.checkpoint, options, batch)

    def compared(self, batch: int) -> Iterator[tuple[str, Rows, Rows]]:
        """Yield all that both show: a name, the rows of the reader, those of Spark's source."""
        hidden: dict[int, list[Family]] = {}
        for family in self.families(batch):
            options = source_options(family)
            name = f"operator {family.operator.id}, {family.name}"
            if options is not None:
                yield name, self.read(family, batch), self.of_source(options, batch)
            if family.operator.variables and self.form.provider == ROCKSDB:
                hidden.setdefault(family.operator.id, []).append(family)
            if family.name in ("left", "right"):
                yield self._compared_side(family, batch)
        for families in hidden.values():
            spark, location = self.run.session(), self.run.checkpoint
            expected = rows_of_families(spark, location, families, batch)
            for family in families:
                found = self.read(family, batch).without(PARTITION)
                yield f"{family.name}, as bytes", found, expected[family.family]

    def _compared_side(self, family: Family, batch: int) -> tuple[str, Rows, Rows]:
        """Return the rows of a side of a join, by Spark's `joinSide`.

        The reader also shows where a row is, and whether it was matched. Of state format 4 Spark
        shows other bytes than those of the event time.
        """
        options = {"operatorId": str(family.operator.id), "joinSide": family.name}
        found = self.read(family, batch).without("index", "matched", "__event_time")
        expected = self.of_source(options, batch).without("__event_time")
        return f"operator {family.operator.id}, joinSide {family.name}", found, expected


def state_of(checkpoint: Checkpoint, family: Family, batch: int | None = None) -> State:
    """Return the state of a family in a checkpoint."""
    return checkpoint.state(family.operator.id, family.store.name, family.family, batch)


def keys_of(family: Family) -> list[str]:
    """Return the names of the columns of a family's key."""
    return [column.name for column in family.columns if column.is_key]


def rows_by_key(table: pa.Table, keys: list[str]) -> list[tuple[dict[str, Any], Rows]]:
    """Return the keys of a table, each with its rows."""
    places: dict[str, list[int]] = {}
    values = table.select(keys).to_pylist()
    for place, key in enumerate(values):
        places.setdefault(repr(key), []).append(place)
    return [(values[some[0]], rows_of_reader(table.take(some))) for some in places.values()]


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
