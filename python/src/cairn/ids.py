"""Values that name a store, a version or an attempt.

Layer: ids (above errors only). Frozen, parsed once where they enter, compared by value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

from cairn.errors import CorruptError, FormatVersionError, InternalError, MissingError

if TYPE_CHECKING:
    from cairn.clock import Entropy

Version: TypeAlias = int
"""Spark's state version: 0 is empty, the commit of batch n makes version n + 1."""

VERSION_MAX = 2**63 - 1
DEFAULT_STORE = "default"
"""The name of an operator's only store, which its root leaves out."""

_CHECKPOINT_ID = re.compile(r"u[0-9a-f]{32}")
_CHECKPOINT_ID_BYTES = 16
_SAME_AS = re.compile(r"=([1-9][0-9]{0,18})@([1-9][0-9]{0,18})_(.*)", re.DOTALL)


_MEND_LOG = "restore the entries of the query's commit log, the folder commits of its checkpoint"


@dataclass(frozen=True, slots=True, order=True)
class StoreId:
    """One store of a query: Spark's ``StateStoreId`` without its checkpoint location."""

    operator: int
    partition: int
    name: str = DEFAULT_STORE

    @property
    def folder(self) -> str:
        """Its root, relative to the checkpoint's location."""
        name = "" if self.name == DEFAULT_STORE else f"/{self.name}"
        return f"state/{self.operator}/{self.partition}{name}"

    def __str__(self) -> str:
        """Return ``operator/partition/name``, as errors show it."""
        return f"{self.operator}/{self.partition}/{self.name}"


class CheckpointId(str):
    """The id of one attempt that wrote a version as an object of its own; opaque to Spark.

    own_id := "u" hex32          ; kind "=" is parsed by ``VersionRef.named``

    ``CheckpointId(text)`` checks nothing: use ``parse`` for text from outside this process.
    """

    __slots__ = ()

    @classmethod
    def new(cls, entropy: Entropy) -> Self:
        """Return a new id that no other attempt has."""
        return cls("u" + entropy.token(_CHECKPOINT_ID_BYTES))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return ``text`` as an id.

        Raises:
            FormatVersionError: the text has no kind, or a kind that this release does not know.
        """
        if not _CHECKPOINT_ID.fullmatch(text):
            raise FormatVersionError(
                f"checkpoint id {text[:80]!r} is of an unknown kind",
                next_step="use a release of Cairn that is as new as the one that wrote it",
            )
        return cls(text)


@dataclass(frozen=True, slots=True, order=True)
class VersionRef:
    """One attempt's version, which has an object of its own; a lineage is a list of these."""

    version: Version
    checkpoint_id: CheckpointId

    def __post_init__(self) -> None:
        if not 0 <= self.version <= VERSION_MAX:
            raise InternalError(f"version {self.version} is out of range")

    def __str__(self) -> str:
        return f"{self.version}_{self.checkpoint_id}"

    @classmethod
    def named(cls, version: Version, text: str) -> Self:
        """Return the real version that Spark's id of ``version`` names.

        checkpoint_id := own_id | same_id
        same_id       := "=" version "@" real "_" own_id     ; `real` is earlier: the same content

        Spec: docs/checkpoint-format.md#checkpoint-ids.

        Raises:
            FormatVersionError: the id is of an unknown kind.
            MissingError: it was issued for another version.
            CorruptError: it names a version that is not earlier, or ``version`` is 0.
        """
        if version == 0:
            raise CorruptError("version 0 has no checkpoint id", next_step=_MEND_LOG)
        same = _SAME_AS.fullmatch(text)
        if same is None:
            return cls(version, CheckpointId.parse(text))
        issued_for, real = int(same[1]), int(same[2])
        if issued_for != version:
            repeat = (
                f"; or delete the entries above {issued_for} of the folder offsets beside it: the "
                "query then repeats its batches from there"
            )
            raise MissingError(
                f"the checkpoint id of version {version} was issued for version {issued_for}",
                next_step=_MEND_LOG + (repeat if issued_for < version else ""),
            )
        if real >= version:
            raise CorruptError(
                f"the checkpoint id of version {version} names version {real}", next_step=_MEND_LOG
            )
        return cls(real, CheckpointId.parse(same[3]))

    def id_at(self, version: Version) -> str:
        """Return Spark's id of ``version``, which is this one or a later one of the same content.

        ``VersionRef.named`` is the reverse.
        """
        return str(self.checkpoint_id) if version == self.version else f"={version}@{self}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt of a task that writes a version.

    Attributes:
        run_id: id of the query's run.
        app_start_ms: when the Spark application started, by its driver's clock.
        stage_id: the task's stage.
        stage_attempt: Spark's number of the stage's attempt.
        task_attempt: Spark's number of the attempt, ascending within an application.
    """

    run_id: str
    app_start_ms: int
    stage_id: int
    stage_attempt: int
    task_attempt: int

    def is_newer_than(self, other: Attempt) -> bool:
        """Tell whether this attempt started after ``other``, by ``(app_start_ms, task_attempt)``.

        An attempt is not newer than itself.
        """
        mine = (self.app_start_ms, self.task_attempt)
        return mine > (other.app_start_ms, other.task_attempt)
