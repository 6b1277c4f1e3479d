"""The targets of ``fuzz`` that read Spark's own files, as the state reader does."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from mutations import mutate_bytes, mutate_json
from target import Target, expect

from cairn.checksum import xxh32
from cairn.errors import CairnError, CorruptError, DataError, UnsupportedStateError
from cairn.reader.spark import logs
from cairn.reader.spark.compression import decompress
from cairn.reader.spark.operators import read_operators
from cairn.reader.spark.schema_files import parse_schema_file, read_families
from cairn.storage.memory import MemoryBucket, MemoryStore

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

_ROWS = b"".join(struct.pack(">i", 16) + bytes(16) + b"\xff\xff\xff\xff" for _ in range(200))
_ROW = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True}] * 2}
_ENCODERS = (
    {"keyStateEncoderType": "NoPrefixKeyStateEncoderSpec"},
    {"keyStateEncoderType": "PrefixKeyScanStateEncoderSpec", "numColsPrefixKey": 1},
    {"keyStateEncoderType": "RangeKeyScanStateEncoderSpec", "orderingOrdinals": [0]},
)


class SparkStreams(Target):
    """``decompress`` of a stream of each codec."""

    name, weight = "spark-streams", 5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        lz4 = pa.Codec("lz4_raw").compress(_ROWS, asbytes=True)
        check = xxh32(_ROWS, 0x9747B28C) & 0x0FFFFFFF
        header = struct.pack("<8sBIII", b"LZ4Block", 0x25, len(lz4), len(_ROWS), check)
        snappy = pa.Codec("snappy").compress(_ROWS, asbytes=True)
        lzf = b"\x02abc" + b"\xe0\xff\x02" * 40
        self.corpus = [
            header + lz4 + struct.pack("<8sBIII", b"LZ4Block", 0x15, 0, 0, 0),
            pa.Codec("zstd").compress(_ROWS, asbytes=True),
            b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(snappy)) + snappy,
            b"ZV\x01" + struct.pack(">HH", len(lzf), 3 + 40 * 264) + lzf,
            _ROWS,
        ]

    def run(self, random: Random) -> None:
        """See ``Target``."""
        data = mutate_bytes(random.choice(self.corpus), self.corpus, random)
        size = random.choice((len(data) or 1, 7, 100))
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        try:
            for _ in decompress(parts, object_name="o"):
                pass
        except CairnError as error:
            expect(error, CorruptError, UnsupportedStateError)


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _json(value: object) -> bytes:
    return b"\x00\x00\x00\x01" + _utf(json.dumps(value))


def _schema(version: str) -> bytes:
    if version != "v3":
        key = _utf(json.dumps(_ROW)) if version == "v1" else _json(_ROW)
        return _utf(version) + key * 2
    families = [
        _utf(f"f{number}") + b"\x00\x00" + _json(_ROW) + b"\x00\x01" + _json(_ROW) + _json(encoder)
        for number, encoder in enumerate(_ENCODERS)
    ]
    ends = [_json({}), _json(_ROW), _json({})]
    rows = (family + end for family, end in zip(families, ends, strict=True))
    return _utf("v3") + struct.pack(">i", len(families)) + b"".join(rows)


class SparkSchemas(Target):
    """``parse_schema_file`` of a file of each version."""

    name, weight = "spark-schemas", 4

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.corpus = [_schema(version) for version in ("v1", "v2", "v3")]

    def run(self, random: Random) -> None:
        """See ``Target``."""
        data = mutate_bytes(random.choice(self.corpus), self.corpus, random)
        try:
            parse_schema_file(data, random.choice((None, 0, 1, 5)))
        except CairnError as error:
            expect(error, DataError)


class SparkCheckpoints(Target):
    """The logs, operators and schemas of a checkpoint, one of whose objects is changed."""

    name, weight = "spark-checkpoints", 5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        variable = {"stateName": "v", "stateVariableType": "ValueState", "ttlEnabled": True}
        schema = "file:/ck/state/0/_stateSchema/default/0_a"
        store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}
        self.texts: dict[str, tuple[str, dict[str, Any]]] = {
            "offsets/0": ("v1", {"batchWatermarkMs": 5, "conf": {"spark.sql.shuffle.p": "2"}}),
            "commits/0": ("v2", {"nextBatchWatermarkMs": 5, "stateUniqueIds": {"0": [["u"]]}}),
            "state/0/_metadata/v2/0": (
                "v2",
                {
                    "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateExec"},
                    "stateStoreInfo": [{**store, "stateSchemaFilePaths": [schema]}],
                    "operatorPropertiesJson": json.dumps({"stateVariables": [variable]}),
                },
            ),
            "state/1/_metadata/metadata": (
                "v1",
                {
                    "operatorInfo": {"operatorId": 1, "operatorName": "dedupe"},
                    "stateStoreInfo": [store],
                },
            ),
        }
        self.schemas = {
            "state/0/_stateSchema/default/0_a": _schema("v3"),
            "state/1/0/_metadata/schema": _schema("v2"),
        }

        self.read(self.objects(None, None))

    def run(self, random: Random) -> None:
        """See ``Target``."""
        changed = random.choice([*self.texts, *self.schemas])
        try:
            self.read(self.objects(changed, random))
        except CairnError as error:
            expect(error, DataError)

    def objects(self, changed: str | None, random: Random | None) -> MemoryStore:
        """Return the checkpoint with one changed object."""
        objects = MemoryStore("memory://spark", MemoryBucket())
        for key, (version, value) in self.texts.items():
            fields = mutate_json(value, random) if random and key == changed else value
            text = json.dumps(fields)
            objects.put(key, f"{version}\n{text}".encode("utf-8", "replace"))
        for key, data in self.schemas.items():
            if random and key == changed:
                data = mutate_bytes(data, [data], random)  # noqa: PLW2901 - the changed one
            objects.put(key, data)
        return objects

    @staticmethod
    def read(objects: MemoryStore) -> None:
        """Read all of it."""
        conf = logs.read_conf(objects, logs.list_batches(objects).committed[0])
        logs.read_commit(objects, 0)
        _ = conf.provider, conf.encoding, conf.list_delimiter
        for operator in read_operators(objects, 0, conf.partitions):
            for store in operator.stores:
                read_families(objects, operator, store)
