"""Control calls and commits: their requests and answers. All but a commit's answer are JSON.

Layer: protocol.  Spec: docs/protocol.md#control-calls, docs/protocol.md#commit.

Fields have the names of the JSON object. One with a default may be absent.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Final, Self

from cairn.config import EngineConf
from cairn.errors import DataError, ProtocolError, ReleaseError
from cairn.format.fields import as_flag, as_int, as_list, as_object, as_text
from cairn.format.header import ColumnFamily, attempt_from_json, store_from_json
from cairn.ids import Attempt, StoreId, VersionRef
from cairn.protocol.frames import PROTOCOL
from cairn.protocol.session_id import SessionId
from cairn.release import RELEASE

Json = Mapping[str, Any]
_ANSWER_MARK: Final = "cairn-answer: "
_COMMIT_REPLY = struct.Struct("<QQQQQQIIIIII")
_MAX_U32 = 0xFFFFFFFF

_ONE_RELEASE = "install the shim jar and the Python package of one release on all machines"

# How a field's JSON value is read, by the field's annotation; readers take the field's name, too.
_READERS: dict[str, Callable[[Any, str], object]] = {
    "bool": as_flag,
    "int": as_int,
    "int | None": lambda number, name: None if number is None else as_int(number, name),
    "str": as_text,
    "str | None": lambda text, name: None if text is None else as_text(text, name),
    "Json": lambda settings, name: as_object(settings or {}, name),
    "Json | None": lambda settings, name: None if settings is None else as_object(settings, name),
    "Attempt": lambda attempt, _: attempt_from_json(attempt),
    "EngineConf": lambda conf, name: EngineConf.from_mapping(as_object(conf or {}, name)),
    "SessionId": lambda session, name: SessionId.unpack(as_int(session, name, most=2**64 - 1)),
    "StoreId": lambda store, _: store_from_json(store),
    "tuple[ColumnFamily, ...]": lambda families, name: tuple(
        map(ColumnFamily.from_json, as_list(families, name))
    ),
}


@cache
def _fields_of(request: type[Request]) -> list[tuple[str, Callable[[Any, str], object], bool]]:
    """Return name and reader of each field, and whether it must be present."""
    return [(one.name, _READERS[str(one.type)], one.default is MISSING) for one in fields(request)]


@dataclass(frozen=True)
class Request:
    """A request's fields."""

    @classmethod
    def from_json(cls, arguments: Json) -> Self:
        """Return the request; unknown fields are ignored.

        Raises:
            KeyError, TypeError: a field is absent, or the arguments are no object.
            ProtocolError: a value is of another type or out of its range.
            ConfigError: the engine's settings are wrong.
        """
        try:
            return cls(
                **{
                    name: read(arguments[name], name)
                    for name, read, is_required in _fields_of(cls)  # type: ignore[arg-type] # hashable
                    if is_required or name in arguments
                }
            )
        except DataError as error:
            raise ProtocolError(f"a request has a wrong argument: {error.message}") from None


@dataclass
class Answer:
    """An answer's fields; none for ``open_instance``, ``abort`` and ``close_instance``."""

    def to_json(self) -> Json:
        """Return the JSON object that the shim finds under ``"ok"``."""
        return vars(self)  # asdict would copy every value, at each commit


@dataclass(frozen=True)
class StartRequest(Request):
    """The line that starts a worker, with the bounds of its memory and disk."""

    protocol: int
    release: str
    token: str = field(repr=False)
    local_dir: str
    socket_dir: str
    memory_bytes: int
    local_disk_bytes: int
    keeps_cache: bool = False

    @classmethod
    def from_json(cls, arguments: Json) -> Self:
        """Return the request; compare release and protocol first: others have other fields.

        Another release may have another protocol too: the release is what a person can change.
        """
        if not isinstance(arguments, Mapping):
            raise TypeError(f"the start line is a {type(arguments).__name__}")
        release = arguments.get("release") or "unknown"
        if release != RELEASE:
            raise ReleaseError(
                f"the shim jar is of release {release}, this Python package of {RELEASE}",
                next_step=_ONE_RELEASE,
            )
        if arguments["protocol"] != PROTOCOL:
            raise ProtocolError(
                f"the shim uses protocol {arguments['protocol']}, this engine {PROTOCOL}",
                next_step=_ONE_RELEASE,
            )
        return super().from_json(arguments)


@dataclass
class StartAnswer(Answer):
    """Where the worker listens, and the versions of its libraries."""

    port: int
    socket: str
    pid: int
    versions: Mapping[str, str]


def start_answer(message: Json) -> bytes:
    """Return the line that answers a start, with an end for the line that was begun before it."""
    return f"\n{_ANSWER_MARK}{json.dumps(message)}\n".encode()


def answer_in(line: str) -> Json | None:
    """Return the answer to a start; ``None``: the line is what something else has printed."""
    if not line.startswith(_ANSWER_MARK):
        return None
    return as_object(json.loads(line.removeprefix(_ANSWER_MARK)), "answer")


@dataclass(frozen=True)
class OpenRequest(Request):
    """``open_instance``; ``storage`` may hold credentials."""

    instance: int
    store: StoreId
    url: str
    storage: Json = field(repr=False)
    conf: EngineConf
    run_id: str
    checkpoint_format: int


@dataclass(frozen=True)
class LoadRequest(Request):
    """``load``."""

    instance: int
    session: SessionId
    version: int
    checkpoint_id: str | None = None
    load_empty: bool = False

    def check_ids(self) -> None:
        """Raise a ``DataError`` if an id is not one of its version."""
        if self.checkpoint_id is not None:
            VersionRef.named(self.version, self.checkpoint_id)


@dataclass(frozen=True)
class LoadSnapshotRequest(LoadRequest):
    """``load_snapshot``: load a version from this snapshot, whose id may be unknown."""

    snapshot_version: int = field(kw_only=True)
    snapshot_checkpoint_id: str | None = None

    def check_ids(self) -> None:
        """See ``LoadRequest``."""
        super().check_ids()
        if self.snapshot_checkpoint_id is not None:
            VersionRef.named(self.snapshot_version, self.snapshot_checkpoint_id)


@dataclass
class LoadAnswer(Answer):
    """The loaded version, and how it was reached; filled in during the load."""

    version: int = 0
    checkpoint_id: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    column_families: Sequence[Mapping[str, object]] = ()
    max_cf_id: int = 0
    data_bytes: int = 0
    applied_through: int = 0
    source: str = "local"
    changelogs_replayed: int = 0
    bytes_downloaded: int = 0
    load_ms: int = 0
    from_snapshot_ms: int = 0
    replay_ms: int = 0
    snapshot_version: int = 0
    repairs: int = 0


@dataclass(frozen=True)
class CommitRequest(Request):
    """COMMIT of a session that has sent ``frames`` with ``rows``, as ``version``.

    ``expected_rows``, ``expected_digest``: what the shim has counted, to be compared.
    """

    instance: int
    session: SessionId
    frames: int
    rows: int
    version: int
    column_families: tuple[ColumnFamily, ...]
    max_cf_id: int
    attempt: Attempt
    expected_rows: int
    base_checkpoint_id: str | None = None
    snapshot: bool = False
    track_counts: bool = True
    are_distinct: bool = False
    expected_digest: int | None = None


@dataclass
class CommitAnswer:
    """The durable version, what its commit cost, and the store's sizes after it.

    Its form is binary, docs/protocol.md#commit: the shim reads it while a task waits.

    Attributes:
        checkpoint_id: as text.
        counts: keys by the family's id.
        changelog_bytes: 0 for an empty commit.
        wait_ns: time until all frames had arrived.
        encode_ns: time to encode the changelog.
        put_ns: time of the PUT.
        snapshot_version: the newest known, 0 if none.
        estimated_keys: keys of the database and of rows that it does not have yet.
        memtable_bytes: memtables of the database.
        sst_bytes: files of the database.
        snapshot_bytes_left: what the running snapshot has still to upload.
        lineage_versions: versions that were committed since the last snapshot.
        memory_wait_ns: time until the worker had memory for the version's rows.
        snapshot_wait_ns: time that the commit waited for snapshots.
    """

    checkpoint_id: str
    counts: Mapping[int, int]
    changelog_bytes: int
    wait_ns: int
    encode_ns: int
    put_ns: int
    snapshot_version: int
    estimated_keys: int = 0
    memtable_bytes: int = 0
    sst_bytes: int = 0
    snapshot_bytes_left: int = 0
    lineage_versions: int = 0
    memory_wait_ns: int = 0
    snapshot_wait_ns: int = 0

    def to_bytes(self) -> bytes:
        """Return the payload of the reply, whose header has the number of counts as ``rows``."""
        waits = self.memory_wait_ns, self.snapshot_wait_ns
        times = (self.wait_ns, self.encode_ns, self.put_ns, *waits)
        fixed = _COMMIT_REPLY.pack(
            self.changelog_bytes,
            self.snapshot_version,
            self.estimated_keys,
            self.memtable_bytes,
            self.sst_bytes,
            self.snapshot_bytes_left,
            self.lineage_versions,
            *(min(ns // 1000, _MAX_U32) for ns in times),
        )
        counts = [part for pair in self.counts.items() for part in pair]
        packed = struct.pack("<" + "HQ" * len(self.counts), *counts)
        return fixed + packed + self.checkpoint_id.encode()


@dataclass(frozen=True)
class AbortRequest(Request):
    """``abort``."""

    instance: int
    session: SessionId


@dataclass(frozen=True)
class MaintainRequest(Request):
    """``maintain``: take a snapshot if one is due, purge (``cleanup``), or both.

    ``storage`` has the present credentials; ``None`` keeps the former ones. ``wait_ms``: how long
    the answer waits for a snapshot, which goes on after that; ``None``: the engine's choice.
    """

    instance: int
    snapshot: bool
    cleanup: bool
    storage: Json | None = field(default=None, repr=False)
    wait_ms: int | None = None


@dataclass
class MaintainAnswer(Answer):
    """What a snapshot and a purge did; ``snapshot_version`` is the newest one known, 0 if none.

    ``engine`` has the instance's metrics by name.
    """

    snapshot_version: int = 0
    uploaded_files: int = 0
    uploaded_bytes: int = 0
    reused_files: int = 0
    deleted_objects: int = 0
    snapshot_ms: int = 0
    engine: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ChangesRequest(Request):
    """``changes``: the versions of a change feed, both ends included."""

    instance: int
    start_version: int
    end_version: int
    end_checkpoint_id: str | None = None

    def __post_init__(self) -> None:
        if not self.end_version:
            raise ProtocolError("a request for the changes up to version 0, which is empty")


@dataclass
class ChangesAnswer(Answer):
    """Version and checkpoint id of each version, and what the last one has."""

    versions: list[tuple[int, str]]
    version: int
    checkpoint_id: str
    counts: Mapping[str, int]
    column_families: Sequence[Mapping[str, object]]
    max_cf_id: int


@dataclass(frozen=True)
class CloseRequest(Request):
    """``close_instance``; a running snapshot may go on for a while after the answer."""

    instance: int
    snapshot_wait_ms: int = 0


@dataclass(frozen=True)
class FinishRequest(Request):
    """``finish``: the worker will be ended."""

    snapshot_wait_ms: int


@dataclass
class FinishAnswer(Answer):
    """The stores whose snapshots still run."""

    left: Sequence[str] = ()
