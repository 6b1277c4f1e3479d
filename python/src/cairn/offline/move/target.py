"""What a moved store is written to: its place, its families, and the writer of its rows.

Layer: offline.move. A writer gets each key of a family once, in any order, in the form that the
family has at the target. Nothing leads to what it has written before ``finish``, and no file of
an earlier version is read or replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from cairn.errors import UnsupportedStateError
from cairn.reader.rows.stored import RowForm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.ids import StoreId
    from cairn.reader.families import Family
    from cairn.reader.rows.stored import StoredRows
    from cairn.reader.spark.logs import Provider, StateConf
    from cairn.reader.spark.schema_files import FamilySchema
    from cairn.storage.base import ObjectStore

_OF_VERSION = re.compile(r"(\d+)\.(?:delta|snapshot|changelog|zip)")
"""What Spark's providers name a file of a version, in checkpoint format 1."""


@dataclass(frozen=True, slots=True)
class TargetFamily:
    """A column family of the target.

    Attributes:
        name: Spark's name of it; ``default`` alone in a store without families.
        schema: the types of its rows.
        form: how its rows are given to the writer, and stored.
        is_internal: whether the operator has it for itself: Spark does not count its rows.
    """

    name: str
    schema: FamilySchema
    form: RowForm
    is_internal: bool


def target_family(family: Family, provider: Provider) -> TargetFamily:
    """Return a family as a provider has it.

    Raises:
        UnsupportedStateError: the types of its rows are not known.
    """
    if family.failure is not None:
        raise family.failure.with_traceback(None)
    if family.schema is None:
        raise UnsupportedStateError(
            "Spark has stored no schema of these rows: the query began before Spark 3.1",
            store=f"{family.operator.id}/{family.store.name}",
            next_step="run a batch with a newer Spark, which stores it",
        )
    form = RowForm(
        encoding=family.form.encoding,
        is_bare=provider == "hdfs",
        is_list=family.is_list,
        booleans_as_bytes=provider == "cairn",
    )
    return TargetFamily(family.family, family.schema, form, family.is_internal)


@dataclass(frozen=True, slots=True)
class TargetStore:
    """One store of an operator in one partition, at the version that is written.

    Attributes:
        provider: whose files are written.
        store: which one.
        version: of the state: the batch + 1.
        checkpoint_format: Spark's, 1 or 2.
        has_families: whether stored keys name their family.
        families: all of them, also those without rows; a store without families has one.
        conf: the settings that its readers will go by: codec, delimiter of lists, checksums.
    """

    provider: Provider
    store: StoreId
    version: int
    checkpoint_format: int
    has_families: bool
    families: tuple[TargetFamily, ...]
    conf: StateConf


@dataclass(frozen=True, slots=True)
class Written:
    """A version that was written.

    Attributes:
        checkpoint_id: its id for Spark's commit log; ``None`` in checkpoint format 1.
        keys: their number, by family.
        stored_bytes: size of the objects.
    """

    checkpoint_id: str | None
    keys: Mapping[str, int]
    stored_bytes: int


class StateWriter(Protocol):
    """Writes one store. Not thread-safe. It uses the local disk for what memory does not hold."""

    def add(self, family: str, rows: StoredRows) -> None:
        """Take some rows of a family.

        Raises:
            DiskFullError: the local disk is full.
        """
        ...

    def finish(self) -> Written:
        """Store the version; once.

        Raises:
            UnavailableError and other storage errors: the same work may be done again.
        """
        ...

    def close(self) -> None:
        """Delete what is on the local disk; idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def make_room(objects: ObjectStore, target: TargetStore, key: str) -> None:
    """Delete what an earlier attempt may have stored as ``key``, and what a restore has given up.

    That are the files of Spark's providers with the version's number or a later one. In checkpoint
    format 1 the query would take one for its own when it gets to that number, and lose the rows of
    the present attempt. With a file goes the checksum that Hadoop keeps beside it.
    """
    folder = f"{target.store.folder}/"
    names = {info.key: info.key.removeprefix(folder) for info in objects.list(folder)}
    found = {other: _OF_VERSION.fullmatch(name) for other, name in names.items()}
    given_up = {other for other, one in found.items() if one and int(one[1]) >= target.version}
    objects.delete([key, *sorted(given_up - {key})])
