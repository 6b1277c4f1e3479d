"""Finding: what ``verify`` has found, and the rules with their meanings and cures.

Layer: reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that a checkpoint must keep.

    Attributes:
        severity: ``error``: rows are lost, wrong or cannot be read, or the query cannot start;
            ``warning``: that may come; ``note``: it costs space or time.
        meaning: what it means if the rule is broken.
        cure: what to do.
    """

    severity: Severity
    meaning: str
    cure: str


_RESTORE = "restore the object from the bucket's versions or a backup"

RULES: Final[dict[str, Rule]] = {
    "query-id": Rule(
        "error",
        "The file metadata has the id of the query. Without it Spark makes a new one, and sinks "
        "that know the query by its id take its batches for those of another.",
        _RESTORE,
    ),
    "log-entry": Rule(
        "error",
        "Spark cannot read the entry of a batch, so the query does not start.",
        _RESTORE + "; or let `cairn repair` remove it, if it is that of a newest batch",
    ),
    "held": Rule(
        "warning",
        "A command changes the checkpoint, or was killed while it did; the query does not start.",
        "wait for its end; if it does not run any more, run it again on the same machine; if that "
        "does not help, delete the entry, and run it again",
    ),
    "log-hole": Rule(
        "error",
        "A log lacks the entry of a batch between two others. Spark refuses to start the query if "
        "it needs that entry.",
        _RESTORE + "; someone, or a rule of the bucket, has deleted it",
    ),
    "commit-without-plan": Rule(
        "error",
        "A batch is committed, but the offset log does not have it: nobody knows what it read.",
        _RESTORE + "; or let `cairn repair` go back to the batch before, if it is the newest",
    ),
    "planned-ahead": Rule(
        "error",
        "Several batches are planned after the last committed one. Spark plans one batch ahead.",
        "compare the two logs; if commits were deleted, restore them, else let `cairn repair` "
        "remove the entries of offsets that are more than one ahead: the query then repeats its "
        "batches from there",
    ),
    "operator-metadata": Rule(
        "error",
        "Spark's description of an operator, or the types of its rows, cannot be read.",
        _RESTORE,
    ),
    "schema-elsewhere": Rule(
        "warning",
        "The operator's metadata name a schema file in another place than this checkpoint: it was "
        "moved or copied. Spark reads the file at the old place, and the query fails once that is "
        "gone.",
        "keep the old place, or correct the path in the operator's metadata",
    ),
    "state-unreadable": Rule(
        "error",
        "The state of the newest committed batch cannot be read: the query cannot go on from it.",
        "restore the object that the finding names; or, with Cairn's provider, let `cairn repair` "
        "go back to the last batch that is whole",
    ),
    "state-unsupported": Rule(
        "error",
        "The state has a value or a form that the reader does not know. That alone is no damage, "
        "and does not stop the query; but rows of the partition were not checked.",
        "read the state through Spark's statestore source; nothing is to be mended",
    ),
    "query-went-on": Rule(
        "note",
        "The query has committed newer batches while its state was read, and an object of the "
        "older one is gone: retention has deleted it, unless the newest batch has this finding, "
        "too.",
        "verify again, or while the query is stopped",
    ),
    "batch-unreadable": Rule(
        "warning",
        "The state of a batch that the stores still should have cannot be read. The query goes on, "
        "but nobody can go back to that batch.",
        "restore the object that the finding names, if that batch matters",
    ),
    "row-count": Rule(
        "error",
        "The store has another number of rows than it says of itself: rows are missing, or are "
        "there twice.",
        "report it with the checkpoint; restart the query from a batch without the finding",
    ),
    "wrong-partition": Rule(
        "error",
        "Keys are not in the partition in which Spark looks for them: their state is not found, "
        "and new state is begun beside it. Queries that began before Spark 3.3 may have such keys.",
        "start the query with a new checkpoint, or keep its number of partitions and its grouping",
    ),
    "object-missing": Rule(
        "error",
        "An object that others name does not exist.",
        _RESTORE + "; or, with Cairn's provider, let `cairn repair` take a snapshot around it. "
        "Someone, or a rule of the bucket, has deleted it",
    ),
    "object-damaged": Rule(
        "error",
        "An object contradicts its checksum, its length or its grammar.",
        _RESTORE + "; or, with Cairn's provider, let `cairn repair` take a snapshot around it",
    ),
    "savepoint-broken": Rule(
        "error",
        "A savepoint, its pin or an object that it keeps is missing or damaged: the state that it "
        "names cannot be read, or will be deleted.",
        _RESTORE + "; or delete the savepoint",
    ),
    "snapshot-lags": Rule(
        "warning",
        "The newest snapshot is many versions behind: a load replays all changelogs since then.",
        "look for errors of snapshots in the executors' logs",
    ),
    "orphan": Rule(
        "note",
        "No other object names this one: an attempt that failed has left it.",
        "the query's own clean-up deletes it, at most a day later, while the query runs; or "
        "`cairn gc`",
    ),
    "unknown-object": Rule(
        "note",
        "The object has a name that neither Spark nor Cairn gives.",
        "move it away; only Cairn and Spark may write into a checkpoint",
    ),
}
"""By their names, which are stable: scripts may look for them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the state a finding is.

    Attributes:
        operator: the operator's number.
        partition: ``None``: all.
        store: Spark's name of the store; ``None``: all.
    """

    operator: int
    partition: int | None = None
    store: str | None = None

    def __str__(self) -> str:
        parts = [self.operator, self.partition, self.store]
        return "/".join(str(part) for part in parts if part is not None)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a checkpoint breaks.

    Attributes:
        rule: its name in ``RULES``.
        message: what was found.
        object_name: the object, if it is one.
        place: the store; ``None``: the logs.
        batch: the batch; ``None``: none in particular.
    """

    rule: str
    message: str
    object_name: str | None = None
    place: Place | None = None
    batch: int | None = None

    @property
    def severity(self) -> Severity:
        """``error``, ``warning`` or ``note``."""
        return RULES[self.rule].severity

    @property
    def meaning(self) -> str:
        """What it means."""
        return RULES[self.rule].meaning

    @property
    def cure(self) -> str:
        """What to do."""
        return RULES[self.rule].cure

    def __str__(self) -> str:
        where = f" in {self.place}" if self.place else ""
        batch = f" at batch {self.batch}" if self.batch is not None else ""
        name = f" ({self.object_name})" if self.object_name else ""
        return f"{self.severity} {self.rule}{where}{batch}: {self.message}{name}"
