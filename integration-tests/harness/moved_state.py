"""Copies of checkpoints whose newest state was written anew, by the writers of moves.

A copy has no other state than that of its newest batch. Where it needs another provider, other
settings or other checkpoint ids, the entries of that batch in Spark's logs are edited: a move
appends a batch instead.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cairn.ids import StoreId
from cairn.offline.move.forms import converter
from cairn.offline.move.hdfs_writer import HdfsWriter
from cairn.offline.move.rocksdb_writer import RocksDbWriter
from cairn.offline.move.target import StateWriter, TargetFamily, TargetStore
from cairn.reader.batch import BatchView
from cairn.reader.families import Family
from cairn.reader.spark.logs import StateConf, list_batches
from cairn.reader.spark.operators import Operator, OperatorStore
from cairn.reader.stores.base import ReadLimits
from cairn.storage.local import LocalStore
from harness.differential import Run
from harness.spark import PROVIDER_CLASS
from harness.state_cases import Form

Json = dict[str, Any]


def rewritten(run: Run, form: Form, conf: Mapping[str, str], copy: Path) -> Run:
    """Return a run on a copy of a checkpoint; `file://` only.

    Args:
        run: one that has ended.
        form: of the copy's state.
        conf: settings that the copy has instead of those of the run.
        copy: its folder.
    """
    checkpoint = LocalStore(run.checkpoint)
    source = BatchView(checkpoint, list_batches(checkpoint).committed[-1])
    _copy_without_state(Path(run.checkpoint), copy)
    _edit(
        copy / "offsets" / str(source.batch),
        lambda entry: entry["conf"].update({**conf, PROVIDER_CLASS: form.provider}),
    )
    target = BatchView(LocalStore(str(copy)), source.batch)
    ids = {str(one.id): _write_operator(source, target, one, form) for one in source.operators}
    commit = copy / "commits" / str(source.batch)
    if form.checkpoint_format == 2:
        _edit(commit, lambda entry: entry.update(stateUniqueIds=ids), "v2")
    else:
        _edit(commit, lambda entry: entry.pop("stateUniqueIds", None), "v1")
    return Run(run.operator, run.events, str(copy), form.provider, form.checkpoint_format, run.conf)


def _copy_without_state(checkpoint: Path, copy: Path) -> None:
    def unwanted(place: str, names: list[str]) -> set[str]:
        parts = Path(place).relative_to(checkpoint).parts
        is_store = parts[:1] == ("state",) and len(parts) > 2 and parts[2].isdecimal()
        if not is_store or "_metadata" in parts:
            return {name for name in names if name.endswith((".tmp", ".tmp.crc"))}
        # The other stores of a join have folders there.
        stores = {name for name in names if name.startswith(("left-", "right-"))}
        return set(names) - stores - {"_metadata"}

    shutil.copytree(checkpoint, copy, ignore=unwanted)
    for path in copy.glob("state/*/_metadata/v2/[0-9]*"):
        _replace(path, path.read_text().replace(str(checkpoint), str(copy)))


def _replace(path: Path, text: str) -> None:
    path.write_text(text)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _edit(path: Path, change: Callable[[Json], object], version: str | None = None) -> None:
    """Change an entry of Spark's logs: the JSON of its second line, and its version."""
    lines = path.read_text().split("\n")
    entry: Json = json.loads(lines[1])
    change(entry)
    _replace(path, "\n".join([version or lines[0], json.dumps(entry), *lines[2:]]))


def _write_operator(
    source: BatchView, target: BatchView, operator: Operator, form: Form
) -> list[list[str | None]]:
    """Write all stores of an operator; return their ids by partition, as in the commit log."""
    stores = [
        _Store(source, target, operator, store, form)
        for store in sorted(operator.stores, key=lambda store: store.name)
    ]
    # A limit has rows in its first partition alone, and files nowhere else.
    partitions = source.families(operator)[0].partitions
    return [[store.write(partition) for store in stores] for partition in range(partitions)]


class _Store:
    """One store of an operator, in all its partitions."""

    def __init__(
        self,
        source: BatchView,
        target: BatchView,
        operator: Operator,
        store: OperatorStore,
        form: Form,
    ) -> None:
        self._form = form
        self._objects = target.objects
        self._conf: StateConf = target.conf
        self._place = source.place(operator, store)
        self._families = [one for one in source.families(operator) if one.store == store]
        self._has_families = operator.has_families

    def write(self, partition: int) -> str | None:
        """Write a partition; return its id."""
        lists = self._families[0].list_families
        folder = Path(self._objects.url, "moving")
        families = {family.family: self._target_of(family) for family in self._families}
        with (
            self._place.open(partition, lists, ReadLimits()) as rows,
            self._writer(partition, tuple(families.values()), folder) as writer,
        ):
            for family in self._families:
                if family.family not in rows.families:
                    continue
                assert family.schema is not None
                target = families[family.family]
                convert = converter(family.form, target.form, family.schema)
                for some in rows.rows(family.family):
                    writer.add(family.family, convert(some))
            return writer.finish().checkpoint_id

    def _target_of(self, family: Family) -> TargetFamily:
        assert family.schema is not None
        form = replace(
            family.form,
            is_bare=self._conf.provider == "hdfs",
            booleans_as_bytes=self._conf.provider == "cairn",
        )
        return TargetFamily(family.family, family.schema, form, family.is_internal)

    def _writer(
        self, partition: int, families: tuple[TargetFamily, ...], folder: Path
    ) -> StateWriter:
        target = TargetStore(
            self._conf.provider,
            StoreId(self._place.operator, partition, self._place.store),
            self._place.version,
            self._form.checkpoint_format,
            self._has_families,
            families,
            self._conf,
        )
        if target.provider == "hdfs":
            return HdfsWriter(self._objects, target, folder)
        return RocksDbWriter(self._objects, target, folder)
