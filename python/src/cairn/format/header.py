"""Header: what a changelog says of the version that it makes durable.

Layer: format.  Spec: docs/checkpoint-format.md#changelog (header JSON, column family).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
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

COLUMN_FAMILY_ID_MAX = 2**16 - 1


@dataclass(frozen=True, slots=True)
class ColumnFamily:
    """A logical namespace of a store; the family ``default`` has id 0.

    Attributes:
        id: never used again after the family was dropped.
        name: Spark's ``colFamilyName``.
        multi: a key holds a list.
        internal: made by Spark for itself.
        ordered: scans by prefix or range are asked of it.
        key_type: without names and nullability.
        value_type: as ``key_type``.
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
        """Return the family as the header has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> ColumnFamily:
        """Return the family that the header has.

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
    """What a lineage starts from: a manifest, or emptiness (``checkpoint_id`` is ``None``)."""

    version: Version
    checkpoint_id: CheckpointId | None

    @property
    def ref(self) -> VersionRef | None:
        """The manifest's version, or ``None`` for emptiness."""
        if self.checkpoint_id is None:
            return None
        return VersionRef(self.version, self.checkpoint_id)

    def to_json(self) -> dict[str, object]:
        """Return the base as the header has it."""
        if self.checkpoint_id is None:
            return {"version": self.version, "empty": True}
        return {"version": self.version, "checkpoint_id": str(self.checkpoint_id)}

    @classmethod
    def from_json(cls, value: object) -> Base:
        """Return the base that the header has."""
        fields = as_object(value, "base")
        version = as_int(fields.get("version"), "base version")
        if fields.get("empty") is True:
            return cls(version, None)
        return cls(version, CheckpointId.parse(as_text(fields.get("checkpoint_id"), "base id")))


@dataclass(frozen=True, slots=True)
class ChangelogHeader:
    """All that a changelog says besides its rows.

    Attributes:
        store: whose version this is.
        ref: what this object makes durable.
        attempt: who wrote it.
        base: the manifest that was complete when the commit was made, or emptiness.
        lineage: the changelogs after ``base`` up to and including this one.
        counts: keys per column family id after this version.
        column_families: after this version.
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
        expected = range(self.base.version + 1, self.ref.version + 1)
        if [ref.version for ref in self.lineage] != list(expected):
            raise CorruptError(
                f"lineage does not lead from base {self.base.version} to {self.ref.version}"
            )
        if self.lineage[-1] != self.ref:
            raise CorruptError(f"lineage does not end at {self.ref}")

    def to_json(self) -> str:
        """Return the header JSON."""
        return dump_object(
            {
                "store": store_to_json(self.store),
                "version": self.ref.version,
                "checkpoint_id": self.ref.checkpoint_id,
                "attempt": asdict(self.attempt),
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
        """Return the header that ``data`` spells; unknown fields are ignored.

        Raises:
            CorruptError: a field is absent, of another type, or contradicts another.
            FormatVersionError: an id is of an unknown kind.
        """
        fields = parse_object(data, "header")
        return cls(
            store=store_from_json(fields.get("store")),
            ref=VersionRef(
                as_int(fields.get("version"), "version", least=1),
                CheckpointId.parse(as_text(fields.get("checkpoint_id"), "checkpoint_id")),
            ),
            attempt=_attempt_from_json(fields.get("attempt")),
            base=Base.from_json(fields.get("base")),
            lineage=tuple(
                ref_from_json(pair, "lineage") for pair in as_list(fields.get("lineage"), "lineage")
            ),
            counts=counts_from_json(fields.get("counts")),
            column_families=families_from_json(fields.get("column_families")),
            max_cf_id=as_int(fields.get("max_cf_id"), "max_cf_id", most=COLUMN_FAMILY_ID_MAX),
            written_at_ms=as_int(fields.get("written_at_ms"), "written_at_ms"),
        )


def store_to_json(store: StoreId) -> dict[str, object]:
    """Return a store as headers and manifests have it."""
    return {"operator": store.operator, "partition": store.partition, "name": store.name}


def store_from_json(value: object) -> StoreId:
    """Return the store that a header or manifest has."""
    fields = as_object(value, "store")
    return StoreId(
        as_int(fields.get("operator"), "operator"),
        as_int(fields.get("partition"), "partition"),
        as_text(fields.get("name"), "store name"),
    )


def ref_from_json(value: object, what: str) -> VersionRef:
    """Return the pair ``[version, checkpoint_id]``."""
    pair = as_list(value, what)
    if len(pair) != 2:  # noqa: PLR2004 -- a pair
        raise CorruptError(f"{what} has an entry that is no pair")
    return VersionRef(
        as_int(pair[0], f"version in {what}", least=1),
        CheckpointId.parse(as_text(pair[1], f"id in {what}")),
    )


def counts_to_json(counts: Mapping[int, int]) -> dict[str, int]:
    """Return counts by the text of the family's id."""
    return {str(cf_id): count for cf_id, count in counts.items()}


def counts_from_json(value: object) -> dict[int, int]:
    """Return counts by family id."""
    counts: dict[int, int] = {}
    for text, count in as_object(value, "counts").items():
        if not text.isascii() or not text.isdigit():
            raise CorruptError(f"counts name a family {text[:20]!r}")
        counts[int(text)] = as_int(count, "count")
    return counts


def families_from_json(value: object) -> tuple[ColumnFamily, ...]:
    """Return the list of families."""
    return tuple(ColumnFamily.from_json(item) for item in as_list(value, "column_families"))


def _attempt_from_json(value: object) -> Attempt:
    fields: JsonObject = as_object(value, "attempt")
    return Attempt(
        run_id=as_text(fields.get("run_id"), "run_id"),
        app_start_ms=as_int(fields.get("app_start_ms"), "app_start_ms"),
        stage_id=as_int(fields.get("stage_id"), "stage_id"),
        stage_attempt=as_int(fields.get("stage_attempt"), "stage_attempt"),
        task_attempt=as_int(fields.get("task_attempt"), "task_attempt"),
    )
