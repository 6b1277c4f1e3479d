"""The targets of ``fuzz``: what reads bytes from outside (``target`` says what they promise)."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from mutations import (
    mutate_bytes,
    mutate_header_of_changelog,
    mutate_json,
    with_changelog_checksum,
    with_manifest_checksum,
)
from rows_target import StateRows
from served import ATTEMPT, FAMILY, SESSION, RefusedError
from spark_targets import SparkCheckpoints, SparkSchemas, SparkStreams
from storage_targets import Files, FilesOfWorker
from tables_target import TableFiles, TableLists
from target import FaultError, Target, WorkerTarget, expect, vectors

from cairn.checkpoint.spark_logs import find_unfinished_repartition
from cairn.checksum import crc32c
from cairn.engine.control import ControlEntry
from cairn.errors import (
    CairnError,
    ConfigError,
    DataError,
    InvalidError,
    ProtocolError,
)
from cairn.format import changelog, manifest, savepoint
from cairn.format.header import Base, ChangelogHeader, ColumnFamily, attempt_from_json
from cairn.format.names import (
    ReaderPinName,
    SavepointPinName,
    UploadPinName,
    parse_name,
    reader_pin_name,
    savepoint_pin_name,
    upload_pin_name,
)
from cairn.ids import CheckpointId, StoreId, VersionRef
from cairn.protocol import frames
from cairn.protocol.calls import StartRequest
from cairn.storage.memory import MemoryStore
from cairn.storage.s3.settings import S3Settings

if TYPE_CHECKING:
    from random import Random


STORE = StoreId(0, 0)
ONE = VersionRef(1, CheckpointId("u" + "1" * 32))
_PING = 0xFFFF_0001
# Twice this fits into the bound of `fuzz`.
_LARGE_BYTES = 96 << 20


class Changelogs(Target):
    """``changelog.decode`` and ``peek_header``, and every value of the rows."""

    name, weight = "changelog", 35

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.corpus = [*vectors("changelog", ".arrow"), _changelog_of(300), _changelog_of(5)]

    def run(self, random: Random) -> None:
        """See ``Target``."""
        data = random.choice(self.corpus)
        if random.random() < 0.3:
            data = mutate_header_of_changelog(data, random)
        else:
            data = mutate_bytes(data, self.corpus, random)
        if random.random() < 0.9:
            data = with_changelog_checksum(data)
        changelog.peek_header(data[: random.choice((100, 1000, 1 << 16))])
        store = random.choice((None, STORE))
        try:
            found = changelog.decode(data, object_name="o", store=store)
        except CairnError as error:
            expect(error, DataError)
            return
        found.table.to_pylist()
        found.header.to_json().encode()
        changelog.encode(found.header, found.table.to_batches())


def _changelog_of(rows: int) -> bytes:
    ops = [1 + number % 3 for number in range(rows)]
    values = [None if op == 2 else b"value" * (op * 3) for op in ops]
    return _encoded(ops, values)


def _encoded(ops: list[int], values: list[bytes | None]) -> bytes:
    """Return the changelog of some writes, each to another key."""
    rows = len(ops)
    family = ColumnFamily.from_json(FAMILY)
    header = ChangelogHeader(
        STORE, ONE, attempt_from_json(ATTEMPT), Base(0, None), (ONE,), {0: rows}, (family,), 0, 5
    )
    keys = [struct.pack(">Q", number) for number in range(rows)]
    columns = [pa.array(ops, pa.uint8()), pa.array([0] * rows, pa.uint16())]
    columns += [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    batch = pa.record_batch(columns, schema=changelog.CHANGELOG_SCHEMA)
    return changelog.encode(header, [batch])


class LargeChangelogs(Target):
    """``changelog.decode`` of objects of a few KB whose rows have ``_LARGE_BYTES``, all zeros.

    Objects that compress so well are whole: their checksums hide nothing, and what they claim is
    true. A reader needs their rows once.
    """

    name, weight = "large-changelog", 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.corpus = [_changelog_of_zeros(rows) for rows in (1, 3, 8)]
        assert max(map(len, self.corpus)) < _LARGE_BYTES >> 10

    def run(self, random: Random) -> None:
        """See ``Target``."""
        data = random.choice(self.corpus)
        if random.random() < 0.3:
            data = with_changelog_checksum(mutate_header_of_changelog(data, random))
        try:
            changelog.decode(data, object_name="o", store=STORE)
        except CairnError as error:
            expect(error, DataError)


def _changelog_of_zeros(rows: int) -> bytes:
    return _encoded([1] * rows, [bytes(_LARGE_BYTES // rows)] * rows)


def mutate_checked_json(corpus: list[bytes], random: Random) -> bytes:
    """Return a changed JSON object, mostly with the checksum of its new content."""
    data = random.choice(corpus)
    if random.random() < 0.75:
        value = json.loads(data)
        for _ in range(random.choice((1, 1, 2, 4))):
            value = mutate_json(value, random)
        return with_manifest_checksum(value)
    return mutate_bytes(data, corpus, random)


class Manifests(Target):
    """``manifest.decode``; all small files and names of it."""

    name, weight = "manifest", 25

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.corpus = vectors("manifest", ".json")

    def run(self, random: Random) -> None:
        """See ``Target``."""
        data = mutate_checked_json(self.corpus, random)
        try:
            found = manifest.decode(data, object_name="o", store=random.choice((None, STORE)))
        except CairnError as error:
            expect(error, DataError)
            return
        names = [file.local_name for file in found.files]
        names += [file.local_name for file in found.small_files]
        assert all(Path(name).name == name for name in names)
        manifest.encode(found)


class Savepoints(Target):
    """``savepoint.parse``; its files and stores lead nowhere else."""

    name, weight = "savepoint", 5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.corpus = vectors("", "savepoint.json")

    def run(self, random: Random) -> None:
        """See ``Target``."""
        data = mutate_checked_json(self.corpus, random)
        try:
            found = savepoint.parse(data, object_name="o")
        except CairnError as error:
            expect(error, DataError)
            return
        again = savepoint.parse(savepoint.encode(found), object_name="o")
        assert savepoint.encode(again) == savepoint.encode(found)
        for key in (*(one.key for one in found.files), *(one.store.folder for one in found.stores)):
            assert ".." not in key.split("/")
            assert not key.startswith("/")


class Names(Target):
    """Names of objects, and Spark's ids of versions."""

    name, weight = "names", 5

    def run(self, random: Random) -> None:
        """See ``Target``."""
        digits = random.choice(("1", "17", str(2**63 - 1), "9" * 19, "007"))
        text = random.choice(
            (
                f"changelog/{digits}.arrow",
                f"changelog/{digits}_u{'a' * 32}.arrow",
                f"snapshot/{digits}_u{'b' * 32}.json",
                f"={random.choice(('7', digits))}@{digits}_u{'c' * 32}",
                f"sst/{'d' * 32}.sst",
                f"pin/upload-{'e' * 16}_{digits}.json",
                f"pin/reader-{'f' * 16}_{random.choice((0, 3, digits))}_{digits}_17.json",
                f"pin/savepoint-{'f' * 16}_{random.choice((0, 3, digits))}_{digits}.json",
            )
        )
        text = mutate_bytes(text.encode(), [b"=@/_.u019-"], random).decode(
            "utf-8", "surrogatepass" if False else "replace"
        )
        found = parse_name(text)
        if isinstance(found, UploadPinName):
            assert upload_pin_name(found.upload_id, found.renewal) == text
        if isinstance(found, ReaderPinName):
            pin = reader_pin_name(found.reader_id, found.base, found.version, found.renewal)
            assert pin == text
        if isinstance(found, SavepointPinName):
            pin = savepoint_pin_name(found.savepoint_id, found.base, found.version)
            assert pin == text
        for version in (random.randrange(50), 7):
            try:
                real = VersionRef.named(version, text)
            except CairnError as error:
                expect(error, DataError)
            else:
                assert real.id_at(version) == text


class SparkLogs(Target):
    """Entries of Spark's own logs, which ``cairn undo-repartition`` reads."""

    name, weight = "spark-logs", 5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        provider = "io.cairn.spark.CairnStateStoreProvider"
        self.entries = [
            "v1\n"
            + json.dumps(
                {
                    "batchWatermarkMs": 0,
                    "conf": {
                        "spark.sql.shuffle.partitions": partitions,
                        "spark.sql.streaming.stateStore.providerClass": provider,
                    },
                }
            )
            + '\n{"logOffset":0}'
            for partitions in ("2", "2", "4")
        ]

    def run(self, random: Random) -> None:
        """See ``Target``."""
        objects = MemoryStore(f"memory://logs{random.getrandbits(64)}")
        at = random.randrange(3)
        for batch, text in enumerate(self.entries):
            data = text.encode()
            if batch == at:
                lines = text.split("\n")
                if random.random() < 0.6:
                    lines[1] = json.dumps(mutate_json(json.loads(lines[1]), random))
                    data = "\n".join(lines).encode("utf-8", "replace")
                else:
                    data = mutate_bytes(data, [b"\n\n{}v1"], random)
            objects.put(f"offsets/{batch}", data)
        objects.put("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
        objects.put("commits/1", b'v1\n{"nextBatchWatermarkMs":0}')
        try:
            find_unfinished_repartition(objects)
        except CairnError as error:
            expect(error, DataError, InvalidError)


class Settings(Target):
    """The start line of a worker, and the settings of S3."""

    name, weight = "settings", 5

    def run(self, random: Random) -> None:
        """See ``Target``."""
        start = {
            "protocol": 1,
            "release": "0",
            "token": "t",
            "local_dir": "/x",
            "socket_dir": "/y",
            "memory_bytes": 1 << 28,
            "local_disk_bytes": 1,
        }
        storage = {
            "endpoint_url": "http://127.0.0.1:9000",
            "access_key": "a",
            "secret_key": "b",
            "max_attempts": "3",
            "path_style": "true",
        }
        try:
            StartRequest.from_json(mutate_json(start, random))
        except (KeyError, TypeError, ValueError, OverflowError):
            pass  # the main program reports these as CAIRN_PROTOCOL
        except CairnError as error:
            expect(error, CairnError)
        texts = mutate_json(storage, random)
        if isinstance(texts, dict):
            try:
                S3Settings.from_mapping({str(name): str(text) for name, text in texts.items()})
            except CairnError as error:
                expect(error, ConfigError)


class Control(WorkerTarget):
    """Control calls, as text from Py4J."""

    name, weight = "control", 8

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.entry = ControlEntry(self.served.worker.call, self.served.worker.activity)
        self.jobs = 0
        load = {"instance": 1, "session": SESSION, "version": 0, "checkpoint_id": None}
        snapshot = {"snapshot_version": 1, "snapshot_checkpoint_id": "u" + "1" * 32}
        conf = {"minDeltasForSnapshot": 10, "requestTimeoutMs": 300}
        self.calls: list[tuple[str, dict[str, Any]]] = [
            ("open_instance", {"instance": 1, **self.served.opened, "conf": conf}),
            ("load", load),
            ("load_snapshot", load | snapshot),
            ("abort", {"instance": 1, "session": SESSION}),
            ("maintain", {"instance": 1, "snapshot": True, "cleanup": True, "storage": None}),
            ("changes", {"instance": 1, "start_version": 1, "end_version": 3}),
            ("close_instance", {"instance": 2}),
        ]

    def run(self, random: Random) -> None:
        """See ``Target``."""
        method, arguments = random.choice(self.calls)
        value = mutate_json(arguments, random)
        if random.random() < 0.3:
            value = mutate_json(value, random)
        # The location is a place on this machine: no other one is written to.
        if isinstance(value, dict) and "url" in value and value["url"] != arguments.get("url"):
            value["url"] = random.choice(
                (
                    "",
                    "hdfs://a/b",
                    "memory://m",
                    "s3://",
                    "s3://a:b@c/d",
                    "x" * 2000,
                    5,
                    None,
                    "://",
                )
            )
        if isinstance(value, dict):
            self.jobs += 1
            envelope = {"job": self.jobs, "answer_within_ms": 10_000}
            if random.random() < 0.1:
                envelope = mutate_json(envelope, random)
            value |= envelope if isinstance(envelope, dict) else {}
        text = json.dumps(value)
        if random.random() < 0.2:
            text = mutate_bytes(text.encode(), [text.encode()], random).decode("utf-8", "replace")
            if "url" in text:
                return
        name = method if random.random() < 0.95 else method[1:]
        answer = json.loads(self.entry.call(name, text))
        self.log.records.clear()  # a wrong argument is logged with its call
        if "error" in answer:
            error = answer["error"]
            if error["code"] in ("CAIRN_INTERNAL", "CAIRN_BUSY"):
                raise FaultError(f"{method} {text[:300]}: {error}")
        elif set(answer) not in ({"ok"}, {"running"}):
            raise FaultError(str(answer)[:300])


class Frames(WorkerTarget):
    """Frames on a connection that has sent the token."""

    name, weight = "frames", 15

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # SERVE_FILES makes its connection one on which the worker asks, and the frames after it are
        # the worker's own.
        self.corpus = [
            frame
            for frame in vectors("frames", ".frame")
            if frames.decode_header(frame).kind < frames.SERVE_FILES
        ]
        self.inputs = 0
        opened = {**self.served.opened, "conf": {"requestTimeoutMs": 200}}
        self.served.call("open_instance", **opened)

    def run(self, random: Random) -> None:
        """See ``Target``."""
        if self.inputs % 20 == 0:
            self.sessions += 1
            self.served.call("load", session=(1 << 32) + self.sessions, version=0)
        self.inputs += 1
        session = (1 << 32) + self.sessions
        frame = random.choice(self.corpus)
        payload = frame[frames.HEADER_BYTES :]
        header = frames.decode_header(frame)._replace(session=session, applied=0)
        is_wellformed = random.random() < 0.75
        if header.kind == frames.COMMIT and random.random() < 0.7:
            payload = json.dumps(mutate_json(json.loads(payload), random)).encode()
        else:
            payload = mutate_bytes(payload, self.corpus, random)
        if random.random() < 0.3:
            header = header._replace(rows=random.choice((0, 1, 64, 65, 2**32 - 1)))
        if random.random() < 0.2:
            header = header._replace(sequence=random.choice((0, 1, 2, 2**63, 2**64 - 1)))
        data = frames.encode_header(header._replace(payload_bytes=len(payload))) + payload
        if not is_wellformed:
            data = mutate_bytes(data[: frames.HEADER_BYTES], self.corpus, random) + payload
        self._exchange(data, session, is_wellformed=is_wellformed)
        self.log.check()

    def _exchange(self, data: bytes, session: int, *, is_wellformed: bool) -> None:
        """Send bytes and then a lookup; await its reply, or the end of the connection."""
        ping = struct.pack("<HI", 0, 1) + b"k"
        header = frames.Header(frames.LOOKUP, 0, session, _PING, 0, 1, len(ping))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(15)
            peer.connect(str(self.served.directories.socket_path))
            hello = frames.Header(frames.HELLO, 0, 0, 0, 0, 0, 5)
            peer.sendall(frames.encode_header(hello) + b"token")
            peer.sendall(data + frames.encode_header(header) + ping)
            if not is_wellformed:
                peer.shutdown(socket.SHUT_WR)
            for reply, payload in _replies(peer):
                if reply.kind == frames.ERROR:
                    error = json.loads(payload)
                    if error["code"] == "CAIRN_INTERNAL":
                        raise FaultError(str(error))
                if reply.sequence == _PING:
                    return
        if is_wellformed:
            raise FaultError("the connection was closed without a reply to the next request")


def _replies(peer: socket.socket) -> Any:  # noqa: ANN401 - a generator
    stream = peer.makefile("rb")
    while True:
        head = stream.read(frames.HEADER_BYTES)
        if len(head) < frames.HEADER_BYTES:
            return
        reply = frames.Header(*struct.unpack("<IBBHQQQII", head)[2:])
        yield reply, stream.read(reply.payload_bytes)


class Loads(WorkerTarget):
    """Whole loads of a store, one object of which is mutated, and a scan of what was loaded."""

    name, weight = "load", 2

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.instances = 10
        served = self.served
        conf = {"minDeltasForSnapshot": 2, "orphanGraceMs": 0}
        served.call("close_instance")
        served.call("open_instance", **{**served.opened, "conf": conf})
        self.newest = self.commit_versions()
        self.objects = sorted(
            path for path in Path(served.opened["url"]).rglob("*") if path.suffix[1:] in _KINDS
        )
        self.content = {path: path.read_bytes() for path in self.objects}
        assert {path.suffix for path in self.objects} == {".arrow", ".json", ".sst"}

    def run(self, random: Random) -> None:
        """See ``Target``."""
        path = random.choice(self.objects)
        original = self.content[path]
        touched = {path}
        if path.suffix == ".arrow":
            data = with_changelog_checksum(mutate_bytes(original, [original], random))
        elif path.suffix == ".json":
            data = with_manifest_checksum(_mutated_manifest(json.loads(original), random))
        else:
            data = mutate_bytes(original, [original], random)
            touched |= self._fit_manifests(path, data)
        path.write_bytes(data)
        self.instances += 1
        number = self.instances
        session = number << 32 | 1
        try:
            self.served.call("open_instance", instance=number, **self.served.opened)
            self.served.call(
                "load", instance=number, session=session, version=5, checkpoint_id=self.newest
            )
            self.scan(session)
        except CairnError as error:
            expect(error, DataError, ProtocolError)
        except RefusedError as error:
            if error.kind not in ("corrupt", "retry"):
                raise FaultError(str(error)) from error
        finally:
            self.served.call("close_instance", instance=number)
            for one in touched:
                one.write_bytes(self.content[one])
            for cached in (self.served.directories.cache_directory).glob("*.sst"):
                cached.unlink()
        self.log.check()

    def _fit_manifests(self, sst: Path, data: bytes) -> set[Path]:
        """Write the size and checksum of a changed SST into the manifests that name it."""
        changed = set()
        for path in self.objects:
            if path.suffix != ".json":
                continue
            value = json.loads(self.content[path])
            for file in value["files"]:
                if file["object"].endswith(sst.name):
                    file["size_bytes"], file["crc32c"] = len(data), crc32c(data)
                    changed.add(path)
            path.write_bytes(with_manifest_checksum(value))
        return changed


class Faulty(Target):
    """Does all that a target must not do: the test of ``fuzz`` itself."""

    name, weight = "faulty", 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.count = 0
        self.kept = b""

    def run(self, random: Random) -> None:  # noqa: ARG002 - the order is fixed
        """See ``Target``."""
        self.count += 1
        faults = {3: self._raise, 4: self._eat_and_free, 5: self._eat, 6: os.abort}
        faults.get(self.count, lambda: None)()

    def _raise(self) -> None:
        expect(ValueError("not promised"), DataError)

    def _eat_and_free(self) -> None:
        self._eat()
        self.kept = b""

    def _eat(self) -> None:
        self.kept = b"x" * (300 << 20)


class Hanging(Target):
    """Does not end: the test of ``fuzz`` itself."""

    name, weight = "hanging", 0

    def run(self, random: Random) -> None:
        """See ``Target``."""
        if random.random() < 0.5:
            time.sleep(1000)


_KINDS = ("arrow", "json", "sst")


def _mutated_manifest(value: dict[str, Any], random: Random) -> Any:  # noqa: ANN401 - JSON
    """Return a manifest with a changed field, or with a changed file of RocksDB inside."""
    if value["small_files"] and random.random() < 0.6:
        import base64  # noqa: PLC0415 - of one target

        file = random.choice(value["small_files"])
        content = base64.b64decode(file["base64"])
        content = mutate_bytes(content, [content], random)
        file["base64"], file["crc32c"] = base64.b64encode(content).decode(), crc32c(content)
        return value
    return mutate_json(value, random)


TARGETS: list[type[Target]] = [
    Changelogs,
    LargeChangelogs,
    Manifests,
    Savepoints,
    Names,
    SparkLogs,
    StateRows,
    SparkStreams,
    SparkSchemas,
    SparkCheckpoints,
    TableFiles,
    TableLists,
    Settings,
    Control,
    Frames,
    Loads,
    Files,
    FilesOfWorker,
    Faulty,
    Hanging,
]
