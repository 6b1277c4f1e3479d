"""The batches of a query, and the settings that its state was written with.

Layer: reader.spark.  Spec: docs/spark-formats.md#logs-of-the-query. ``checkpoint.spark_logs`` reads
the entries; this file says what they mean for state. State version = batch + 1.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from cairn.checkpoint import spark_logs
from cairn.errors import CorruptError, MissingError, NotThereError, UnsupportedStateError
from cairn.format.spark_log import (
    COMMITS_PREFIX,
    OFFSETS_PREFIX,
    OWN_PROVIDER,
    PARTITIONS,
    PROVIDER,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cairn.format.spark_log import CommitEntry, OffsetEntry
    from cairn.storage.base import ObjectStore

Provider: TypeAlias = Literal["cairn", "rocksdb", "hdfs"]
Encoding: TypeAlias = Literal["unsaferow", "avro"]

_SPARKS = "org.apache.spark.sql.execution.streaming.state."
_PROVIDERS: Final[dict[str, Provider]] = {
    OWN_PROVIDER: "cairn",
    _SPARKS + "RocksDBStateStoreProvider": "rocksdb",
    _SPARKS + "HDFSBackedStateStoreProvider": "hdfs",
}

_STREAMING = "spark.sql.streaming."
CODEC: Final = _STREAMING + "stateStore.compression.codec"
ENCODING: Final = _STREAMING + "stateStore.encodingFormat"
ROW_CHECKSUM: Final = _STREAMING + "stateStore.rowChecksum.enabled"
MERGE_OPERATOR: Final = _STREAMING + "stateStore.rocksdb.mergeOperatorVersion"
TABLE_FORMAT: Final = _STREAMING + "stateStore.rocksdb.formatVersion"
JOIN_FORMAT: Final = _STREAMING + "join.stateFormatVersion"
AGGREGATION_FORMAT: Final = _STREAMING + "aggregation.stateFormatVersion"
GROUPS_FORMAT: Final = _STREAMING + "flatMapGroupsWithState.stateFormatVersion"
STRICT_DISTRIBUTION: Final = _STREAMING + "statefulOperator.useStrictDistribution"

_DELIMITERS: Final = {"1": b",", "2": b""}
_ENCODINGS: Final[dict[str, Encoding]] = {"unsaferow": "unsaferow", "avro": "avro"}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)

LEGACY_DEFAULTS: Final[Mapping[str, str]] = {
    PROVIDER: _SPARKS + "HDFSBackedStateStoreProvider",
    CODEC: "lz4",
    ENCODING: "unsaferow",
    ROW_CHECKSUM: "false",
    MERGE_OPERATOR: "1",
    TABLE_FORMAT: "5",
    JOIN_FORMAT: "1",
    AGGREGATION_FORMAT: "1",
    GROUPS_FORMAT: "1",
    STRICT_DISTRIBUTION: "false",
}
"""What a Spark that does not store a setting does; its default in a newer Spark may be another."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches that the logs have, ascending.

    Attributes:
        planned: those with an entry in the offset log; the last one may not be complete.
        committed: those with an entry in the commit log as well: only these have state.
        all_commits: those with an entry in the commit log.
    """

    planned: tuple[int, ...]
    committed: tuple[int, ...]
    all_commits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateConf:
    """The settings of one batch that say how its state is stored.

    Attributes:
        entry: of the offset log.
        object_name: of the entry, for errors.
    """

    entry: OffsetEntry
    object_name: str

    def get(self, name: str) -> str:
        """Return a setting of ``LEGACY_DEFAULTS``."""
        return self.entry.conf.get(name, LEGACY_DEFAULTS[name])

    def number(self, name: str) -> int:
        """Return a setting that is a whole number.

        Raises:
            CorruptError: it is not one.
        """
        text = self.get(name)
        if not _NUMBER.fullmatch(text):
            raise self._corrupt(name)
        return int(text)

    def flag(self, name: str) -> bool:
        """Return a setting that is true or false.

        Raises:
            CorruptError: it is neither.
        """
        text = self.get(name).lower()
        if text not in {"true", "false"}:
            raise self._corrupt(name)
        return text == "true"

    @property
    def partitions(self) -> int | None:
        """The partitions of each store; ``None`` if the entry does not say it (before Spark 2.2).

        It is right also after a repartition, unlike the metadata of an operator.
        """
        text = self.entry.conf.get(PARTITIONS)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text) or int(text) == 0:
            raise self._corrupt(PARTITIONS)
        return int(text)

    @property
    def provider(self) -> Provider:
        """Whose files the state is in.

        Raises:
            UnsupportedStateError: another provider's.
        """
        name = self.get(PROVIDER)
        if name not in _PROVIDERS:
            raise UnsupportedStateError(
                f"the state belongs to {name}, which the reader does not know",
                object_name=self.object_name,
                next_step="read it with that provider, through Spark's statestore source",
            )
        return _PROVIDERS[name]

    @property
    def list_delimiter(self) -> bytes:
        """What is between two elements of a list in Spark's RocksDB.

        Raises:
            UnsupportedStateError: the setting has a value of a newer Spark.
        """
        version = self.get(MERGE_OPERATOR)
        if version not in _DELIMITERS:
            raise self._newer(MERGE_OPERATOR, version)
        return _DELIMITERS[version]

    @property
    def encoding(self) -> Encoding:
        """How ``transformWithState`` encodes rows; all other operators have UnsafeRows.

        Raises:
            UnsupportedStateError: the setting has a value of a newer Spark.
        """
        name = self.get(ENCODING)
        if name not in _ENCODINGS:
            raise self._newer(ENCODING, name)
        return _ENCODINGS[name]

    def _newer(self, name: str, value: str) -> UnsupportedStateError:
        return UnsupportedStateError(
            f"{name} is {value[:80]!r}, which the reader does not know",
            object_name=self.object_name,
            next_step="read it with Spark's statestore source, or a newer release of Cairn",
        )

    def _corrupt(self, name: str) -> CorruptError:
        return CorruptError(f"{name} has a value that Spark refuses", object_name=self.object_name)


def class_of(provider: Provider) -> str:
    """Return the class of a provider, as the offset log names it."""
    return next(name for name, one in _PROVIDERS.items() if one == provider)


def list_batches(checkpoint: ObjectStore) -> Batches:
    """Return the batches of a query; two LISTs.

    Args:
        checkpoint: at the query's checkpoint location.

    Raises:
        NotThereError: there is no checkpoint of a query here.
    """
    # In this order: a batch is planned before it is committed, and old entries go from both.
    committed = spark_logs.batches(checkpoint, COMMITS_PREFIX)
    planned = spark_logs.batches(checkpoint, OFFSETS_PREFIX)
    if not planned:
        raise NotThereError(
            "there is no offset log here, or the folder does not exist",
            object_name=checkpoint.object_url(OFFSETS_PREFIX),
            next_step="name the query's checkpointLocation, the folder that has 'offsets'",
        )
    known = set(planned)
    both = tuple(batch for batch in committed if batch in known)
    return Batches(tuple(planned), both, tuple(committed))


def read_conf(checkpoint: ObjectStore, batch: int) -> StateConf:
    """Return the settings of a batch; one GET.

    Raises:
        MissingError: the offset log has no entry of the batch.
        CorruptError: the entry is not readable.
        FormatVersionError: the entry is of a newer version than 2.
    """
    with _choosing():
        planned = spark_logs.read_planned(checkpoint, batch)
    return StateConf(planned.entry, checkpoint.object_url(planned.key))


def read_commit(checkpoint: ObjectStore, batch: int) -> CommitEntry:
    """Return what the commit log says of a batch; one GET. Raises as ``read_conf``.

    The query has checkpoint format 2 exactly if the entry has ids.
    """
    with _choosing():
        return spark_logs.read_committed(checkpoint, batch).entry


@contextmanager
def _choosing() -> Iterator[None]:
    try:
        yield
    except MissingError as error:
        raise error.with_context(next_step="choose a batch that the checkpoint retains") from None
