"""The targets of ``fuzz`` that read files of RocksDB, as the state reader does.

The checksums are right, or there are none: a hostile file has passed them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mutations import mutate_bytes
from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options, Rdict, WriteBatch
from target import Target, expect

from cairn.checksum import masked_crc32c
from cairn.errors import CairnError, CorruptError, UnsupportedStateError
from cairn.reader.stores.tables import Tables
from cairn.rocks.version_edits import LiveFile, sorted_runs

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

_HEADER = struct.Struct("<IHB")
_WHOLE = 1


@dataclass(frozen=True)
class _Bytes:
    data: bytes
    name: str = "000009.sst"

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def _database(folder: Path, table_format: int, *, compressed: bool) -> tuple[bytes, bytes]:
    """Return the MANIFEST of a small database, and its only SST file, without checksums."""
    table = BlockBasedOptions()
    table.set_format_version(table_format)
    table.set_checksum_type(ChecksumType.no_checksum())
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(
        DBCompressionType.lz4() if compressed else DBCompressionType.none()
    )
    db = Rdict(str(folder), options)
    batch = WriteBatch(raw_mode=True)
    for number in range(700):
        batch.put(b"key%04d" % number + b"x" * (number % 3), b"value" * (number % 4))
    batch.delete_range(b"key0100", b"key0120")
    db.write(batch)
    db.flush()
    db.close()
    manifest = folder / (folder / "CURRENT").read_text().strip()
    ((file,),) = sorted_runs(manifest.read_bytes(), "MANIFEST")
    return manifest.read_bytes(), (folder / file.name).read_bytes()


class TableFiles(Target):
    """``Tables`` over a mutated SST file: a scan of all, and of one key."""

    name, weight = "table-files", 5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.corpus = [
            _database(folder / f"{table_format}{compressed}", table_format, compressed=compressed)[
                1
            ]
            for table_format in (5, 6)
            for compressed in (False, True)
        ]

    def run(self, random: Random) -> None:
        """See ``Target``."""
        data = mutate_bytes(random.choice(self.corpus), self.corpus, random)
        file = LiveFile(0, 9, len(data), b"key", b"key9", True, (1, 1, 1, 9))  # noqa: FBT003
        tables = Tables([[file]], lambda _: _Bytes(data))
        try:
            for batch in tables.scan():
                batch.validate(full=True)
            tables.get(b"key%04d" % random.randrange(700))
        except CairnError as error:
            expect(error, CorruptError, UnsupportedStateError)


class TableLists(Target):
    """``sorted_runs`` of a MANIFEST with mutated edits, whose records have the right checksums."""

    name, weight = "table-lists", 2

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        manifest, _ = _database(folder / "db", 6, compressed=True)
        self.corpus: list[bytes] = []
        at = 0
        while at + _HEADER.size <= len(manifest):
            _, size, kind = _HEADER.unpack_from(manifest, at)
            if not kind:
                break
            self.corpus.append(manifest[at + _HEADER.size : at + _HEADER.size + size])
            at += _HEADER.size + size

    def run(self, random: Random) -> None:
        """See ``Target``."""
        edits = list(self.corpus)
        place = random.randrange(len(edits))
        edits[place] = mutate_bytes(edits[place], self.corpus, random)[: 1 << 14]
        if random.random() < 0.2:
            random.shuffle(edits)
        manifest = b""
        for edit in edits:
            body = bytes([_WHOLE]) + edit
            manifest += struct.pack("<IH", masked_crc32c(body), len(edit)) + body
        try:
            sorted_runs(manifest, "MANIFEST")
        except CairnError as error:
            expect(error, CorruptError, UnsupportedStateError)
