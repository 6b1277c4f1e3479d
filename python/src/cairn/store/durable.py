"""Durable: an instance's objects, as loading and committing ask for them.

Layer: store.
"""

from __future__ import annotations

import json
import struct
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cairn.checksum import crc32c
from cairn.errors import DamagedError
from cairn.store.standing import Standing, VersionRef
from cairn.store.writes import CHANGES_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.storage.base import ObjectStore


@dataclass(frozen=True)
class Changelog:
    standing: Standing
    batches: list[pa.RecordBatch]
    size_bytes: int


@dataclass(frozen=True)
class Written:
    checkpoint_id: str
    size_bytes: int
    encode_ms: float
    put_ms: float


class Durable:
    def __init__(self, objects: ObjectStore, store: dict[str, Any], checkpoint_format: int) -> None:
        self.objects = objects
        self.store = store
        self.checkpoint_format = checkpoint_format
        self.wait_s = 120.0
        self.max_lineage = 1000

    @property
    def store_label(self) -> str:
        return f"{self.store['operator']}/{self.store['partition']}/{self.store['name']}"

    def _key(self, version: int, cid: str | None) -> str:
        return f"changelog/{version}.arrow" if self.checkpoint_format == 1 else f"changelog/{version}_{cid}.arrow"

    def read(self, version: int, cid: str | None) -> Changelog:
        data = self.objects.get(self._key(version, cid)).data
        trailer = data[-32:]
        if trailer[:8] != b"CAIRNEND" or struct.unpack("<I", trailer[28:])[0] != crc32c(data[:-4]):
            raise DamagedError("cut", object_name=self.objects.object_url(self._key(version, cid)))
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            h = json.loads(reader.schema.metadata[b"cairn.header"])
            batches = [b for b in reader]
        base = h["base"]
        standing = Standing(
            VersionRef(h["version"], h["checkpoint_id"]),
            VersionRef(base["version"], base.get("checkpoint_id", "")),
            tuple(VersionRef(*x) for x in h["lineage"]),
            {int(k): v for k, v in h["counts"].items()},
            tuple(h["column_families"]), h["max_cf_id"])
        return Changelog(standing, batches, len(data))

    def write(self, draft: Standing, changes: list[pa.RecordBatch], attempt: dict[str, Any]) -> Written:
        t0 = time.perf_counter()
        cid = "u" + uuid.uuid4().hex
        ref = VersionRef(draft.ref.version, cid)
        lineage = (*draft.lineage, ref)
        base = {"version": draft.base.version, "empty": True} if draft.base.is_empty else {"version": draft.base.version, "checkpoint_id": draft.base.checkpoint_id}
        h = {"store": self.store, "version": ref.version, "checkpoint_id": cid, "attempt": attempt, "base": base, "lineage": [list(x) for x in lineage],
             "counts": {str(k): v for k, v in draft.counts.items()}, "column_families": list(draft.families), "max_cf_id": draft.max_cf_id, "written_at_ms": 0}
        schema = CHANGES_SCHEMA.with_metadata({"cairn.magic": "CAIRN-CHANGELOG", "cairn.format": "1", "cairn.header": json.dumps(h)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as w:
            for b in changes:
                w.write_batch(b)
        arrow = sink.getvalue().to_pybytes()
        body = arrow + struct.pack("<8sIQQ", b"CAIRNEND", 1, sum(b.num_rows for b in changes), len(arrow))
        data = body + struct.pack("<I", crc32c(body))
        t1 = time.perf_counter()
        self.objects.put(self._key(ref.version, cid), data)
        t2 = time.perf_counter()
        return Written(cid, len(data), (t1 - t0) * 1000, (t2 - t1) * 1000)

    def close(self) -> None:
        self.objects.close()
