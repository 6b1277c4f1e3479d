"""Transfer of very large objects to and from S3: in parts and ranges, one after the other.

Layer: storage. The thread that transfers an object transfers its parts: the callers' threads are
the only bound of what is in flight, and the memory for it is one part per thread.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cairn.checksum import crc32c as checksum_of
from cairn.checksum import crc32c_file
from cairn.errors import CairnError, CorruptError
from cairn.storage.files import PendingFile, check_crc32c, check_size, translate_os_error
from cairn.storage.s3.requests import checksum_header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cairn.storage.s3.requests import S3Requests

PARTS_ABOVE_BYTES = 64 << 20
"""Larger objects are transferred in parts. RocksDB's files have 16 MiB and some blocks; only files
of rows that were ingested together may be larger."""
_PART_BYTES = 8 << 20
_PART_COUNT_MAX = 9_000
"""S3 allows 10,000 parts."""


COPIED_AT_ONCE_BYTES = 256 << 20
"""A larger object is copied in parts of this size: S3 copies it well within the read timeout."""


def ranges_of(size_bytes: int, least_bytes: int = _PART_BYTES) -> list[tuple[int, int]]:
    """Return (offset, length) of the parts of an object of this size."""
    part_bytes = max(least_bytes, -(-size_bytes // _PART_COUNT_MAX))
    return [
        (offset, min(part_bytes, size_bytes - offset))
        for offset in range(0, size_bytes, part_bytes)
    ]


def upload_parts(
    requests: S3Requests,
    key: str,
    path: Path,
    size_bytes: int,
    metadata: dict[str, str],
    condition: dict[str, str],
    moved: Callable[[], None],
) -> dict[str, Any]:
    """Create an object from a file, in parts; return S3's answer to the last request.

    Args:
        requests: send them.
        key: the object's.
        path: the file.
        size_bytes: its size.
        metadata: the object's.
        condition: headers of the last request, under which S3 creates the object.
        moved: called after each part.

    Raises:
        CairnError: from ``S3Requests``. The upload was aborted; if the outcome of the last request
            is unknown, the object may exist.
    """
    started = requests.call(
        "CreateMultipartUpload",
        key,
        ChecksumAlgorithm="CRC32C",
        Metadata=metadata,
        **requests.encryption,
    )
    upload_id: str = started["UploadId"]

    def upload_part(number: int, offset: int, length: int) -> dict[str, Any]:
        data = os.pread(descriptor, length, offset)
        if len(data) != length:
            raise CorruptError(f"the local file {path} became shorter during its upload")
        checksum = checksum_header(checksum_of(data))
        part = requests.call(
            "UploadPart",
            key,
            UploadId=upload_id,
            PartNumber=number,
            Body=data,
            ChecksumCRC32C=checksum,
        )
        moved()
        return {"PartNumber": number, "ETag": part["ETag"], "ChecksumCRC32C": checksum}

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [
                upload_part(number, *part)
                for number, part in enumerate(ranges_of(size_bytes), start=1)
            ]
        finally:
            os.close(descriptor)
        return requests.call(
            "CompleteMultipartUpload",
            key,
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
            **condition,
        )
    except BaseException:
        # This aborts nothing if the upload was completed and the answer was lost.
        with suppress(CairnError):
            requests.call("AbortMultipartUpload", key, UploadId=upload_id)
        raise


def copy_parts(
    requests: S3Requests, key: str, copied: Mapping[str, object], size_bytes: int
) -> None:
    """Create an object from another one of the same service, in parts.

    Args:
        requests: send them.
        key: the new object's.
        copied: arguments that name the other one: ``S3Requests.copy_source``.
        size_bytes: its size.

    Raises:
        CairnError: from ``S3Requests``. The upload was aborted.
    """
    started = requests.call("CreateMultipartUpload", key, **requests.encryption)
    upload_id: str = started["UploadId"]
    try:
        parts = []
        for number, part in enumerate(ranges_of(size_bytes, COPIED_AT_ONCE_BYTES), start=1):
            answer = requests.call(
                "UploadPartCopy",
                key,
                UploadId=upload_id,
                PartNumber=number,
                CopySourceRange=f"bytes={part[0]}-{sum(part) - 1}",
                **copied,
            )
            parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
        requests.call(
            "CompleteMultipartUpload", key, UploadId=upload_id, MultipartUpload={"Parts": parts}
        )
    except BaseException:
        with suppress(CairnError):
            requests.call("AbortMultipartUpload", key, UploadId=upload_id)
        raise


def download_ranges(
    requests: S3Requests, key: str, path: Path, *, size_bytes: int, crc32c: int
) -> None:
    """Download an object in ranges, as ``ObjectStore.download`` promises."""
    object_name = requests.object_url(key)

    def fetch(offset: int, length: int) -> str:
        data, response = requests.read_range(key, offset, length, size_bytes)
        check_size(object_name, length, len(data))
        try:
            pending.write_at(data, offset)
        except OSError as error:
            raise translate_os_error(error, object_name) from error
        etag: str = response["ETag"]
        return etag

    try:
        with PendingFile(path) as pending:
            etags = {fetch(*part) for part in ranges_of(size_bytes)}
            if len(etags) != 1:
                raise CorruptError(
                    "the object changed during the download", object_name=object_name
                )
            check_crc32c(object_name, crc32c, crc32c_file(pending.temporary))
            pending.publish_unsynced()
    except OSError as error:
        raise translate_os_error(error, object_name) from error
