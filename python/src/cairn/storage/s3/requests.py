"""S3Requests: single requests to one root of one bucket, counted and translated.

Layer: storage. botocore repeats a request that failed (``max_attempts``). This module adds what
botocore lacks: it repeats a request whose body breaks off, and verifies the checksum of an object.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from cairn.checksum import crc32c as checksum_of
from cairn.errors import (
    AccessError,
    CairnError,
    ConfigError,
    CorruptError,
    CredentialsExpiredError,
    UnavailableError,
)
from cairn.storage.base import too_large
from cairn.storage.files import check_size
from cairn.storage.s3.errors import translate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from botocore.response import StreamingBody

    from cairn.clock import Clock, Entropy
    from cairn.storage.s3.client import SharedClient

_METHODS = {
    "PutObject": "put_object",
    "GetObject": "get_object",
    "CopyObject": "copy_object",
    "HeadObject": "head_object",
    "DeleteObject": "delete_object",
    "DeleteObjects": "delete_objects",
    "ListObjectsV2": "list_objects_v2",
    "CreateMultipartUpload": "create_multipart_upload",
    "UploadPart": "upload_part",
    "UploadPartCopy": "upload_part_copy",
    "CompleteMultipartUpload": "complete_multipart_upload",
    "AbortMultipartUpload": "abort_multipart_upload",
}
# The last request of an upload in parts needs the key too: its checksums are encrypted.
_WITH_CUSTOMER_KEY = frozenset(
    {
        "PutObject",
        "GetObject",
        "HeadObject",
        "CopyObject",
        "CreateMultipartUpload",
        "UploadPart",
        "UploadPartCopy",
        "CompleteMultipartUpload",
    }
)
# What an answer of S3 always has. Otherwise it is the page of a proxy, perhaps well-formed XML.
_MEMBERS = {
    "PutObject": "ETag",
    "GetObject": "ETag",
    "HeadObject": "ETag",
    "ListObjectsV2": "IsTruncated",
    "CreateMultipartUpload": "UploadId",
    "UploadPart": "ETag",
    "CopyObject": "CopyObjectResult",
    "UploadPartCopy": "CopyPartResult",
    "CompleteMultipartUpload": "ETag",
}
_CHUNK_BYTES = 1 << 20
_PAUSE_FIRST_S = 0.1
_PAUSE_MAX_S = 2.0


def checksum_header(checksum: int) -> str:
    """Return a CRC32C as S3 writes it: base64 of its four bytes, most significant first."""
    return base64.b64encode(checksum.to_bytes(4, "big")).decode("ascii")


def object_size(answer: dict[str, Any]) -> int:
    """Return the length of the whole object of an answer to GetObject; 0 if it is not said."""
    total = str(answer.get("ContentRange", "")).rpartition("/")[2]
    return int(total) if total.isdigit() else int(answer.get("ContentLength", 0))


def split_url(url: str) -> tuple[str, str]:
    """Return bucket and key prefix of ``s3://bucket/root``; the prefix is empty or ends in ``/``.

    Raises:
        ConfigError: the URL has no bucket, or contains credentials.
    """
    malformed = ConfigError(
        "an S3 location is s3://bucket/path, without credentials",
        next_step="correct the checkpoint location",
    )
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket; its text may contain credentials
        raise malformed from None
    if not parts.hostname or "@" in parts.netloc:
        raise malformed
    root = url.partition("://")[2].partition("/")[2].strip("/")
    return parts.netloc, f"{root}/" if root else ""


def _check_members(api: str, answer: dict[str, Any]) -> None:
    if api in _MEMBERS and _MEMBERS[api] not in answer:
        if "Body" in answer:
            answer["Body"].close()
        raise ResponseParserError(f"the answer to {api} has no {_MEMBERS[api]}")


class S3Requests:
    """Requests below ``s3://bucket/root``. Thread-safe.

    Args:
        client: shared; the caller releases it.
        url: the root's URL, as the user wrote it.
        count: called with each request's name and how often it was sent.
        clock: makes pauses.
        entropy: spreads pauses.
        is_bulk: use the client for large transfers, which slows down when the server asks for it.
    """

    def __init__(
        self,
        client: SharedClient,
        url: str,
        *,
        count: Callable[[str, int], None],
        clock: Clock,
        entropy: Entropy,
        is_bulk: bool = False,
    ) -> None:
        self.bucket, self.root = split_url(url)
        self.max_attempts = client.settings.max_attempts
        self.encryption: dict[str, str] = {}
        if client.settings.sse:
            self.encryption["ServerSideEncryption"] = client.settings.sse
        if client.settings.sse_kms_key:
            self.encryption["SSEKMSKeyId"] = client.settings.sse_kms_key
        customer_key = client.settings.sse_customer_key
        self._customer: dict[str, object] = {}
        if customer_key:
            key = base64.b64decode(customer_key)
            self._customer = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}
        self._shared = client
        self._is_bulk = is_bulk
        self.target = client.settings.access_point or self.bucket
        self._endpoint = client.settings.endpoint_shown
        self._url = url
        self._count = count
        self._clock = clock
        self._entropy = entropy

    def object_url(self, key: str) -> str:
        """Return the object's name in errors."""
        return f"{self._url}/{key}" if key else self._url

    def call(self, api: str, key: str, **arguments: object) -> dict[str, Any]:
        """Send one request about ``key`` and return the answer.

        Raises:
            CairnError: translated by ``storage.s3.errors``.
        """
        return self.call_bucket(api, key, Key=self.root + key, **arguments)

    def call_bucket(self, api: str, shown: str, **arguments: object) -> dict[str, Any]:
        """Send one request about the bucket; errors name the key ``shown``."""
        sent = 1
        if api in _WITH_CUSTOMER_KEY:
            arguments |= self._customer
        client = self._shared.of(is_bulk=self._is_bulk)
        try:
            answer: dict[str, Any] = getattr(client, _METHODS[api])(Bucket=self.target, **arguments)
            sent += int(answer.get("ResponseMetadata", {}).get("RetryAttempts", 0))
            _check_members(api, answer)
        except (ClientError, BotoCoreError, ResponseParserError) as error:
            if isinstance(error, ClientError):
                sent += int(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0))
            translated = self.translated(error, shown)
            if isinstance(translated, AccessError | CredentialsExpiredError):
                self._shared.note_refusal(client)  # the keys may have been replaced
            raise translated from error
        finally:
            self._count(api, sent)
        return answer

    def translated(self, error: Exception, key: str) -> CairnError:
        """Return an error of botocore as one of Cairn's."""
        return translate(error, endpoint=self._endpoint, object_name=self.object_url(key))

    def copy_source(self, key: str) -> dict[str, object]:
        """Return the arguments of a copy that name the object to be copied."""
        customer = {f"CopySource{name}": value for name, value in self._customer.items()}
        return {"CopySource": {"Bucket": self.target, "Key": self.root + key}, **customer}

    def read(self, key: str, max_bytes: int) -> tuple[bytes, dict[str, Any]]:
        """Return the bytes of an object, and the rest of the answer.

        Repeats the request if the body breaks off or differs from its checksum.

        Raises:
            MissingError: there is no such object.
            CorruptError: it is larger than ``max_bytes``, or the checksum differed in every
                attempt.
        """

        def read(response: dict[str, Any]) -> bytes:
            # Without a length in the answer, no more than is needed to know.
            most = None if "ContentLength" in response else max_bytes + 1
            data: bytes = response["Body"].read(most)
            self._check_body(key, data, response)
            return data

        def check(present_bytes: int) -> None:
            if present_bytes > max_bytes:
                raise too_large(self.object_url(key), present_bytes, max_bytes)

        data, response = self._read(key, check, read)
        check(len(data))
        return data, response

    def read_range(
        self, key: str, offset: int, length: int, size_bytes: int | None = None
    ) -> tuple[bytes, dict[str, Any]]:
        """Return up to ``length`` bytes of an object, and the rest of the answer; not verified.

        Raises:
            MissingError: there is no such object.
            CorruptError: the whole object has not ``size_bytes``; nothing was read.
            ConfigError: the server ignores ranges, and the bytes are not the first ones.
        """

        def read(response: dict[str, Any]) -> bytes:
            if not response.get("ContentRange"):
                # It sends the whole object, of which no more is read.
                with response["Body"] as body:
                    if offset:
                        raise ConfigError(
                            f"the server ignores ranges of objects: {self._endpoint}",
                            object_name=self.object_url(key),
                            next_step="use a server that honours them",
                        )
                    start: bytes = body.read(length)
                return start
            data: bytes = response["Body"].read()
            return data

        def check(present_bytes: int) -> None:
            if size_bytes is not None:
                check_size(self.object_url(key), size_bytes, present_bytes)

        return self._read(key, check, read, Range=f"bytes={offset}-{offset + length - 1}")

    def _read(
        self,
        key: str,
        check: Callable[[int], None],
        read: Callable[[dict[str, Any]], bytes],
        **arguments: object,
    ) -> tuple[bytes, dict[str, Any]]:
        """Send a GetObject, ``check`` the object's size, and ``read`` the body."""
        for attempt in range(1, self.max_attempts + 1):
            response = self.call("GetObject", key, ChecksumMode="ENABLED", **arguments)
            try:
                check(object_size(response))
            except CorruptError:
                response["Body"].close()
                raise
            try:
                data = read(response)
            except (BotoCoreError, HTTPError) as error:
                failure = self.translated(error, key)
            except CorruptError as error:
                failure = error
            else:
                return data, response
            if attempt == self.max_attempts:
                raise failure
            self.pause(attempt)
        raise AssertionError  # max_attempts is at least 1

    def stream(self, key: str, size_bytes: int, consume: Callable[[Iterator[bytes]], None]) -> None:
        """Let ``consume`` read an object in pieces; start again if the body breaks off.

        Raises:
            MissingError: there is no such object.
            CorruptError: it has another size; nothing was read.
            UnavailableError: the body broke off in every attempt.
        """
        for attempt in range(1, self.max_attempts + 1):
            response = self.call("GetObject", key)
            try:
                if "ContentLength" in response:
                    check_size(self.object_url(key), size_bytes, object_size(response))
                return consume(self._chunks(key, response["Body"]))
            except UnavailableError:
                if attempt == self.max_attempts:
                    raise
            finally:
                response["Body"].close()
            self.pause(attempt)
        raise AssertionError  # max_attempts is at least 1

    def _chunks(self, key: str, body: StreamingBody) -> Iterator[bytes]:
        # Translated here: some of botocore's errors are OSErrors, which a consumer would take for
        # errors of the local disk.
        try:
            while chunk := body.read(_CHUNK_BYTES):
                yield chunk
        except (BotoCoreError, HTTPError) as error:
            raise self.translated(error, key) from error

    def _check_body(self, key: str, data: bytes, response: dict[str, Any]) -> None:
        named = response.get("ChecksumCRC32C", "")
        # A multipart object has a checksum of checksums, marked by its type or by a dash.
        is_composite = response.get("ChecksumType") == "COMPOSITE" or "-" in named
        if not named or is_composite:
            return
        if checksum_header(checksum_of(data)) != named:
            raise CorruptError(
                "the object's bytes differ from the checksum that the server has",
                object_name=self.object_url(key),
            )

    def pause(self, attempt: int) -> None:
        """Wait before the next attempt: 0.1 s, doubled up to 2 s; half of it is random."""
        longest = min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2 ** (attempt - 1))
        self._clock.sleep(longest * (0.5 + self._entropy.jitter() / 2))

    def unavailable(self, text: str, key: str) -> UnavailableError:
        """Return the error for a write whose outcome is unknown."""
        return UnavailableError(
            f"{text}: {self._endpoint}",
            object_name=self.object_url(key),
            next_step="try again; the object is whole, either the old one or the new one",
        )
