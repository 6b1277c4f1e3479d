"""Header: the facts about a version that its changelog stores beside the rows.

Layer: format.  Spec: docs/checkpoint-format.md#changelog (header JSON, column family).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from cairn.errors import CorruptError
from cairn.format.fields import (
    JsonObject,
    as_flag,
    as_int,
    as_list,
    as_object,
    as_text,
    dump_object,
    parse_object,
)
from cairn.ids import Attempt, CheckpointId, StoreId, Version, VersionRef

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMN_FAMILY_ID_MAX = 2**16 - 2
_FAMILY_ID = re.compile(r"[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ColumnFamily:
    """A column family: a logical namespace of a store. The family ``default`` has id 0.

    Attributes:
        id: not used again after the family is dropped.
        name: Spark's ``colFamilyName``.
        multi: the value of a key is a list.
        internal: Spark created it for itself.
        ordered: Spark may scan it by prefix or range.
        key_type: the type without names and nullability.
        value_type: the type without names and nullability.
        key_encoder: Spark's key encoder spec, as text.
    """

    id: int
    name: str
    multi: bool
    internal: bool
    ordered: bool
    key_type: str
    value_type: str
    key_encoder: str

    def to_json(self) -> dict[str, object]:
        """Return the family as a header contains it."""
        return _plain(self)

    @classmethod
    def from_json(cls, value: object) -> ColumnFamily:
        """Return the family that a header contains.

        Raises:
            CorruptError: a field is absent or of another type.
        """
        fields = as_object(value, "column family")
        return cls(
            id=as_int(fields.get("id"), "column family id", most=COLUMN_FAMILY_ID_MAX),
            name=as_text(fields.get("name"), "column family name"),
            multi=as_flag(fields.get("multi"), "column family multi"),
            internal=as_flag(fields.get("internal"), "column family internal"),
            ordered=as_flag(fields.get("ordered"), "column family ordered"),
            key_type=as_text(fields.get("key_type"), "column family key_type"),
            value_type=as_text(fields.get("value_type"), "column family value_type"),
            key_encoder=as_text(fields.get("key_encoder"), "column family key_encoder"),
        )


@dataclass(frozen=True, slots=True)
class Base:
    """The start of a lineage: a manifest, or the empty state if ``checkpoint_id`` is ``None``."""

    version: Version
    checkpoint_id: CheckpointId | None

    @property
    def ref(self) -> VersionRef | None:
        """The manifest's version, or ``None`` for the empty state."""
        if self.checkpoint_id is None:
            return None
        return VersionRef(self.version, self.checkpoint_id)

    def to_json(self) -> dict[str, object]:
        """Return the base as a header contains it."""
        if self.checkpoint_id is None:
            return {"version": self.version, "empty": True}
        return {"version": self.version, "checkpoint_id": str(self.checkpoint_id)}

    @classmethod
    def from_json(cls, value: object) -> Base:
        """Return the base that a header contains."""
        fields = as_object(value, "base")
        version = as_int(fields.get("version"), "base version")
        if fields.get("empty") is True:
            return cls(version, None)
        return cls(version, CheckpointId.parse(as_text(fields.get("checkpoint_id"), "base id")))


@dataclass(frozen=True, slots=True)
class ChangelogHeader:
    """All facts in a changelog except its rows.

    Attributes:
        store: the store of the version.
        ref: the version that the changelog makes durable.
        attempt: the attempt that wrote it.
        base: the newest manifest that was complete at the commit, or the empty state.
        lineage: the changelogs after ``base`` up to and including this one, ascending. A version
            that it leaves out was an empty commit.
        counts: keys per column family id after this version.
        column_families: the families after this version.
        max_cf_id: highest id ever used.
        written_at_ms: the writer's clock, for people.
    """

    store: StoreId
    ref: VersionRef
    attempt: Attempt
    base: Base
    lineage: tuple[VersionRef, ...]
    counts: Mapping[int, int]
    column_families: tuple[ColumnFamily, ...]
    max_cf_id: int
    written_at_ms: int

    def __post_init__(self) -> None:
        if not self.lineage or self.lineage[-1] != self.ref:
            raise CorruptError(f"lineage does not end at {self.ref}")
        versions = [self.base.version, *(ref.version for ref in self.lineage)]
        is_ascending = all(earlier < later for earlier, later in pairwise(versions))
        # The first version after an empty state always has an object.
        is_complete = self.base.ref is not None or versions[1] == versions[0] + 1
        if not (is_ascending and is_complete):
            raise CorruptError(
                f"lineage does not lead from base {self.base.version} to {self.ref.version}"
            )

    def to_json(self) -> str:
        """Return the header as JSON."""
        return dump_object(
            {
                "store": _plain(self.store),
                "version": self.ref.version,
                "checkpoint_id": self.ref.checkpoint_id,
                "attempt": _plain(self.attempt),
                "base": self.base.to_json(),
                "lineage": [[ref.version, ref.checkpoint_id] for ref in self.lineage],
                "counts": counts_to_json(self.counts),
                "column_families": [family.to_json() for family in self.column_families],
                "max_cf_id": self.max_cf_id,
                "written_at_ms": self.written_at_ms,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> ChangelogHeader:
        """Return the header in ``data``; unknown fields are ignored.

        Raises:
            CorruptError: a field is absent, of another type, or contradicts another.
            FormatVersionError: an id is of an unknown kind.
        """
        fields = parse_object(data, "header")
        return cls(
            store=store_from_json(fields.get("store")),
            ref=ref_from_json(fields),
            attempt=attempt_from_json(fields.get("attempt")),
            base=Base.from_json(fields.get("base")),
            lineage=tuple(map(_lineage_entry, as_list(fields.get("lineage"), "lineage"))),
            counts=counts_from_json(fields.get("counts")),
            column_families=families_from_json(fields.get("column_families")),
            max_cf_id=as_int(fields.get("max_cf_id"), "max_cf_id", most=COLUMN_FAMILY_ID_MAX),
            written_at_ms=as_int(fields.get("written_at_ms"), "written_at_ms"),
        )


def _plain(record: ColumnFamily | StoreId | Attempt) -> dict[str, object]:
    """Return the fields of a record of texts and numbers; ``asdict`` takes ten times as long."""
    return {name: getattr(record, name) for name in record.__slots__}


def store_from_json(value: object) -> StoreId:
    """Return the store that a header or manifest names."""
    fields = as_object(value, "store")
    return StoreId(
        as_int(fields.get("operator"), "operator", least=-(2**63)),  # Spark: any long
        as_int(fields.get("partition"), "partition"),
        as_text(fields.get("name"), "store name"),
    )


def ref_from_json(fields: JsonObject, *, least: int = 1) -> VersionRef:
    """Return the version that the fields ``version`` and ``checkpoint_id`` name."""
    return version_ref(fields.get("version"), fields.get("checkpoint_id"), least=least)


def version_ref(version: object, checkpoint_id: object, *, least: int = 1) -> VersionRef:
    """Return the version that two JSON values name; ``least``: 0 if it may be that of a seed."""
    text = as_text(checkpoint_id, "checkpoint_id")
    return VersionRef(as_int(version, "version", least=least), CheckpointId.parse(text))


def counts_to_json(counts: Mapping[int, int]) -> dict[str, int]:
    """Return counts by the family's id as text."""
    return {str(cf_id): count for cf_id, count in counts.items()}


def counts_from_json(value: object) -> dict[int, int]:
    """Return counts by the family's id."""
    counts: dict[int, int] = {}
    for text, count in as_object(value, "counts").items():
        if not _FAMILY_ID.fullmatch(text):
            raise CorruptError(f"counts contain {text[:20]!r}, which is not a family id")
        counts[as_int(int(text), "family id", most=COLUMN_FAMILY_ID_MAX)] = as_int(count, "count")
    return counts


def families_from_json(value: object) -> tuple[ColumnFamily, ...]:
    """Return the families that a header or manifest lists."""
    return tuple(ColumnFamily.from_json(item) for item in as_list(value, "column_families"))


def _lineage_entry(value: object) -> VersionRef:
    pair = as_list(value, "lineage")
    if len(pair) != 2:  # noqa: PLR2004 -- a pair
        raise CorruptError("the lineage has an entry that is not a pair")
    return version_ref(*pair)


def attempt_from_json(value: object) -> Attempt:
    """Return the attempt that a header or a commit names."""
    fields: JsonObject = as_object(value, "attempt")
    return Attempt(
        run_id=as_text(fields.get("run_id"), "run_id"),
        app_start_ms=as_int(fields.get("app_start_ms"), "app_start_ms"),
        stage_id=as_int(fields.get("stage_id"), "stage_id"),
        stage_attempt=as_int(fields.get("stage_attempt"), "stage_attempt"),
        task_attempt=as_int(fields.get("task_attempt"), "task_attempt"),
    )
