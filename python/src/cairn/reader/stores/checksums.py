"""Row checksums of Spark's that lie in front of keys and values, without a length.

Layer: reader.stores. Little-endian. Which records have one depends on the provider.

    of a put     value := u32 crc  bytes     ; crc32c of key and bytes
    of a delete  key   := u32 crc  bytes     ; crc32c of the bytes
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cairn.checksum import crc32c
from cairn.errors import CorruptError
from cairn.format.ops import OP_DELETE

if TYPE_CHECKING:
    from cairn.reader.stores.columns import Flags
    from cairn.reader.stores.records import Records

CRC_BYTES = 4


def without_checksums(records: Records, has_checksum: Flags) -> Records:
    """Verify the checksums of some records, and leave them out.

    Raises:
        CorruptError: a row differs from its checksum.
    """
    is_delete = records.ops == OP_DELETE
    starts = np.where(is_delete, records.key_starts, records.value_starts)
    ends = np.where(is_delete, records.key_ends, records.value_ends)
    if (ends - starts < CRC_BYTES)[has_checksum].any():
        raise CorruptError("a record is too short for its row checksum")
    key_starts = records.key_starts + np.where(is_delete & has_checksum, CRC_BYTES, 0)
    value_starts = records.value_starts + np.where(~is_delete & has_checksum, CRC_BYTES, 0)
    data = memoryview(records.data)
    bounds = zip(
        starts[has_checksum].tolist(),
        key_starts[has_checksum].tolist(),
        records.key_ends[has_checksum].tolist(),
        value_starts[has_checksum].tolist(),
        records.value_ends[has_checksum].tolist(),
        strict=True,
    )
    for start, key_start, key_end, value_start, value_end in bounds:
        actual = crc32c(data[value_start:value_end], crc32c(data[key_start:key_end]))
        if actual != int.from_bytes(data[start : start + CRC_BYTES], "little"):
            raise CorruptError("a row differs from its checksum")
    return replace(records, key_starts=key_starts, value_starts=value_starts)
