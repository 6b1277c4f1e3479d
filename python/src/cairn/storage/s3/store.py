"""S3Store: objects in a bucket.

Layer: storage. ``s3a://``, ``s3n://`` and ``s3://bucket/root`` are the same.

The answer to a PUT can be lost after S3 has stored the object. botocore then repeats the PUT, and
the server may report a conflict with the object that the first PUT stored. So every PUT writes a
new id into the object's metadata (``cairn-put-id``). After a conflict or an unknown outcome, one
HEAD reads the id of the present object: the PUT's own id means success.

    outcome                 own id      another id                      no object
    create: conflict        success     AlreadyExistsError              retry, then UnavailableError
    create: unknown         success     AlreadyExistsError              UnavailableError
    replace: conflict       success     PreconditionFailedError (1)     PreconditionFailedError
    replace: unknown        success     PreconditionFailedError (2)     PreconditionFailedError
    put: unknown            success     UnavailableError                UnavailableError
    (1) repeated, if it is the object to replace: S3 answers 409 to one of two concurrent PUTs
    (2) UnavailableError, if it is the object to replace
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from cairn.checksum import crc32c as checksum_of
from cairn.checksum import crc32c_file
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy
from cairn.errors import (
    CairnError,
    ConditionalPutUnsupportedError,
    ConfigError,
    MissingError,
    PreconditionFailedError,
    RetryableError,
    UnavailableError,
)
from cairn.storage.base import (
    MAX_GET_BYTES,
    ObjectInfo,
    ObjectStart,
    ObjectStore,
    Payload,
    StoredObject,
    check_key,
    ignore,
    is_listed,
)
from cairn.storage.files import check_crc32c, translate_os_error, write_download
from cairn.storage.s3.client import acquire, release
from cairn.storage.s3.errors import translate_delete
from cairn.storage.s3.requests import S3Requests, checksum_header, object_size, split_url
from cairn.storage.s3.settings import S3Settings
from cairn.storage.s3.transfer import (
    COPIED_AT_ONCE_BYTES,
    PARTS_ABOVE_BYTES,
    copy_parts,
    download_ranges,
    upload_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

PUT_ID = "cairn-put-id"
"""Metadata key of a PUT's id. DO NOT RENAME: stored in objects."""
_CONFLICT_ATTEMPTS = 3
_PROBE_WRITERS = 4
_NO_ETAG = '"00000000000000000000000000000000"'
_DELETE_KEYS = 1_000
"""S3's limit per DeleteObjects request."""


class _Head(NamedTuple):
    """The answer to a HEAD."""

    put_id: str
    etag: str
    last_modified: datetime


class S3Store(ObjectStore):
    """Objects in a bucket.

    Args:
        url: ``s3://bucket[/root]``, or with ``s3a``, ``s3n``.
        settings: the client's settings.
        clock: makes pauses between attempts.
        entropy: generates the ids of PUTs.
        page_keys: number of keys per listing request, 1..1000.
    """

    def __init__(
        self,
        url: str,
        settings: S3Settings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        page_keys: int = 1_000,
    ) -> None:
        super().__init__(url)
        bucket, _ = split_url(self.url)  # refuse a malformed URL before the client is acquired
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._page_keys = page_keys
        self._client_lock = threading.Lock()  # of what `renew` and `close` change
        self._client = acquire(settings.for_bucket(bucket))
        self._requests, self._bulk = self._new_requests()

    def _new_requests(self) -> tuple[S3Requests, S3Requests]:
        """Return the requests of the present client, and those for large transfers."""
        requests, bulk = (
            S3Requests(
                self._client,
                self.url,
                count=self._count,
                clock=self._clock,
                entropy=self._entropy,
                is_bulk=is_bulk,
            )
            for is_bulk in (False, True)
        )
        return requests, bulk

    @property
    def origin(self) -> str:
        """Endpoint, bucket and root; buckets of two services may have the same name."""
        return (
            f"{self._client.settings.endpoint_shown}/{self._requests.bucket}/{self._requests.root}"
        )

    def at(self, url: str) -> S3Store:
        """Return the objects under another root; they share the client."""
        return self._inherit(
            S3Store(url, self._settings, entropy=self._entropy, page_keys=self._page_keys)
        )

    def put(self, key: str, data: Payload) -> None:
        """Create or replace an object."""
        put_id, arguments = self._begin_put(key, data)
        try:
            self._requests.call("PutObject", key, **arguments)
        except UnavailableError as error:
            head = self._head(key, error)
            if head is None or head.put_id != put_id:
                raise

    def put_if_absent(self, key: str, data: Payload) -> None:
        """Create an object."""
        put_id, arguments = self._begin_put(key, data)
        for attempt in range(1, _CONFLICT_ATTEMPTS + 1):
            try:
                self._requests.call("PutObject", key, IfNoneMatch="*", **arguments)
            except (PreconditionFailedError, UnavailableError) as error:
                if self._resolve_create(key, put_id, error) is None:
                    self._requests.pause(attempt)
                    continue
            return
        raise self._requests.unavailable("other writers kept creating and deleting the object", key)

    def put_if_match(self, key: str, data: Payload, etag: str) -> None:
        """Replace the object that has ``etag``."""
        put_id, arguments = self._begin_put(key, data)
        for attempt in range(1, _CONFLICT_ATTEMPTS + 1):
            try:
                self._requests.call("PutObject", key, IfMatch=etag, **arguments)
            except MissingError as error:
                raise self._precondition_failed(key, is_missing=True) from error
            except (PreconditionFailedError, UnavailableError) as error:
                head = self._head(key, error)
                if head is not None and head.put_id == put_id:
                    return
                if head is None or head.etag != etag:
                    raise self._precondition_failed(key, is_missing=head is None) from error
                if isinstance(error, UnavailableError):
                    raise
                self._requests.pause(attempt)
                continue
            return
        raise self._requests.unavailable("other writers kept replacing the object", key)

    def upload(
        self, key: str, path: Path, *, crc32c: int, moved: Callable[[], None] = ignore
    ) -> datetime:
        """Create an object from a local file: one PutObject, above 64 MiB a multipart upload."""
        self._check_open()
        check_key(key)
        put_id = self._entropy.token(16)
        try:
            size_bytes = path.stat().st_size
            check_crc32c(f"{path} for {self.object_url(key)}", crc32c, crc32c_file(path))
            ignored = self._client.probed_buckets.get(self._bulk.bucket)
            condition = {} if ignored else {"IfNoneMatch": "*"}
            if size_bytes > PARTS_ABOVE_BYTES:
                metadata = {PUT_ID: put_id}
                answer = upload_parts(self._bulk, key, path, size_bytes, metadata, condition, moved)
            else:
                # Read from the file, not from memory: several such uploads run at once.
                with path.open("rb") as body:
                    arguments = {**self._put_arguments(put_id, crc32c), **condition}
                    answer = self._bulk.call("PutObject", key, Body=body, **arguments)
        except OSError as error:
            raise translate_os_error(error, str(path)) from error
        except (PreconditionFailedError, UnavailableError) as error:
            head = self._resolve_create(key, put_id, error)
            if head is None:
                raise self._requests.unavailable("the upload was refused", key) from error
            return head.last_modified
        return _date_of(answer)

    def copy_within(
        self, source: ObjectStore, source_key: str, key: str, *, size_bytes: int
    ) -> bool:
        """Copy an object of a bucket with the same settings: one CopyObject, or in parts."""
        self._check_open()
        check_key(key)
        if not isinstance(source, S3Store) or source._settings != self._settings:  # noqa: SLF001
            return False
        copied = source._bulk.copy_source(check_key(source_key))  # noqa: SLF001 - of the same class
        if size_bytes > COPIED_AT_ONCE_BYTES:
            copy_parts(self._bulk, key, copied, size_bytes)
        else:
            self._bulk.call("CopyObject", key, **self._requests.encryption, **copied)
        return True

    def get(self, key: str, *, max_bytes: int = MAX_GET_BYTES) -> StoredObject:
        """Return a whole object."""
        self._check_open()
        data, response = self._requests.read(check_key(key), max_bytes)
        return StoredObject(data, str(response["ETag"]))

    def get_start(self, key: str, length: int) -> ObjectStart:
        """Return the first bytes of an object: one GetObject with a range."""
        self._check_open()
        data, response = self._requests.read_range(check_key(key), 0, length)
        return ObjectStart(data, object_size(response))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return a range of an object: one GetObject."""
        self._check_open()
        return self._requests.read_range(check_key(key), offset, length)[0]

    def download(self, key: str, path: Path, *, size_bytes: int, crc32c: int) -> None:
        """Download an object: one GetObject, above 64 MiB one per 8 MiB."""
        self._check_open()
        check_key(key)
        if size_bytes > PARTS_ABOVE_BYTES:
            download_ranges(self._bulk, key, path, size_bytes=size_bytes, crc32c=crc32c)
            return
        self._bulk.stream(
            key,
            size_bytes,
            lambda chunks: write_download(
                chunks,
                path,
                size_bytes=size_bytes,
                crc32c=crc32c,
                object_name=self.object_url(key),
            ),
        )

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects under ``prefix``; a thousand keys per request."""
        self._check_open()
        root = self._requests.root
        arguments: dict[str, Any] = {"Prefix": root + prefix, "MaxKeys": self._page_keys}
        while True:
            page = self._requests.call_bucket("ListObjectsV2", prefix, **arguments)
            for item in page.get("Contents", ()):
                if not item["Key"].startswith(root + prefix):
                    raise self._bad_listing("has a key that was not asked for", prefix)
                key = item["Key"].removeprefix(root)
                if is_listed(key, prefix):
                    modified = item["LastModified"].astimezone(UTC)
                    yield ObjectInfo(key, int(item["Size"]), modified)
            if not page.get("IsTruncated"):
                return
            if not page.get("NextContinuationToken"):
                raise self._bad_listing("is cut, and does not say how it continues", prefix)
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def server_time(self) -> datetime | None:
        """Return the time of an answer: one ListObjectsV2."""
        self._check_open()
        return _date_of(self._requests.call_bucket("ListObjectsV2", "", MaxKeys=1))

    def _bad_listing(self, text: str, prefix: str) -> UnavailableError:
        return UnavailableError(
            f"the answer to ListObjectsV2 {text}: {self._client.settings.endpoint_shown}",
            object_name=self.object_url(prefix),
            next_step="use a server, or a proxy, that lists the bucket as S3 does",
        )

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, a thousand per request; singly where the server refuses that."""
        self._check_open()
        names = [check_key(key) for key in keys]
        for start in range(0, len(names), _DELETE_KEYS):
            chunk = names[start : start + _DELETE_KEYS]
            if self._bulk.bucket in self._client.deletes_singly or not self._delete_chunk(chunk):
                for key in chunk:
                    with suppress(MissingError):
                        self._bulk.call("DeleteObject", key)

    def _delete_chunk(self, keys: Sequence[str]) -> bool:
        """Delete objects by one request; return ``False`` if the server refuses such requests."""
        root = self._bulk.root
        objects = [{"Key": root + key} for key in keys]
        try:
            answer = self._bulk.call_bucket(
                "DeleteObjects", keys[0], Delete={"Objects": objects, "Quiet": True}
            )
        except (ConfigError, ConditionalPutUnsupportedError):
            # 400: some servers want a Content-MD5, others a checksum of another kind. 501: none.
            self._client.deletes_singly.add(self._bulk.bucket)
            return False
        for failure in answer.get("Errors", ()):
            key = str(failure.get("Key", "")).removeprefix(root)
            error = translate_delete(failure)
            if not isinstance(error, MissingError):
                raise error.with_context(object_name=self.object_url(key))
        return True

    def probe_conditional_put(self) -> None:
        """Create an object several times at once and once more, then replace an absent one.

        One of the first requests succeeds, and S3 refuses all others. They have the headers of all
        PUTs: a bucket may refuse those without encryption.
        """
        self._check_open()
        bucket = self._requests.bucket
        if bucket not in self._client.probed_buckets:
            self._client.probed_buckets[bucket] = self._probe()
        ignored = self._client.probed_buckets[bucket]
        if ignored:
            raise ConditionalPutUnsupportedError(
                f"the server ignores {ignored}: two attempts could overwrite each other",
                object_name=self.url,
                next_step="use a server that honours it, or checkpoint format 2 "
                "(cairn.spark_conf()), which does not need it",
            )

    def _probe(self) -> str:
        """Return the headers that the server ignores; empty: none."""
        key = f".cairn-probe-{self._entropy.token(8)}"
        create, replace = {"IfNoneMatch": "*"}, {"IfMatch": _NO_ETAG}
        try:
            with ThreadPoolExecutor(_PROBE_WRITERS, "cairn-probe") as writers:
                refused = list(
                    writers.map(self._is_refused, [key] * _PROBE_WRITERS, [create] * _PROBE_WRITERS)
                )
            # No winner: botocore repeats a request whose answer was lost, and meets its own object.
            is_atomic = refused.count(False) <= 1
            ignored = [
                header
                for header, condition in (("If-None-Match", create), ("If-Match", replace))
                if not self._is_refused(key, condition)
            ]
        finally:
            self._delete_probe(key)
        if not is_atomic and not ignored:
            return "If-None-Match of concurrent requests"
        return " and ".join(ignored)

    def renew(self, settings: Mapping[str, str]) -> None:
        """Use the client of other settings."""
        renewed = S3Settings.from_mapping(settings)
        with self._client_lock:
            self._check_open()
            if renewed == self._settings:
                return
            former, self._client = self._client, acquire(renewed.for_bucket(self._requests.bucket))
            self._settings = renewed
            self._requests, self._bulk = self._new_requests()
            release(former)

    def prepare(self) -> None:
        """Open the connections of the shared client, in the background."""
        super().prepare()
        self._client.prepare(self._requests.target)

    def close(self) -> None:
        """Release the shared client."""
        with self._client_lock:
            if not self._is_closed:
                super().close()
                release(self._client)

    def _begin_put(self, key: str, data: Payload) -> tuple[str, dict[str, Any]]:
        self._check_open()
        check_key(key)
        body = data if isinstance(data, bytes) else bytes(data)
        put_id = self._entropy.token(16)
        return put_id, {"Body": body, **self._put_arguments(put_id, checksum_of(body))}

    def _put_arguments(self, put_id: str, checksum: int) -> dict[str, Any]:
        return {
            "ChecksumCRC32C": checksum_header(checksum),
            "Metadata": {PUT_ID: put_id},
            **self._requests.encryption,
        }

    def _resolve_create(self, key: str, put_id: str, error: CairnError) -> _Head | None:
        """Return the object that this PUT created, or ``None`` if the PUT may be repeated.

        Raises:
            AlreadyExistsError: the key has the object of another PUT.
            UnavailableError: the outcome is unknown, and there is no object.
        """
        head = self._head(key, error)
        if head is None and isinstance(error, UnavailableError):
            raise error
        if head is not None and head.put_id != put_id:
            raise self._already_exists(key) from error
        return head

    def _head(self, key: str, error: CairnError) -> _Head | None:
        """Return the description of the present object, after ``error``; ``None``: no object.

        Raises:
            UnavailableError: the HEAD failed.
        """
        try:
            answer = self._requests.call("HeadObject", key)
        except MissingError:
            return None
        except CairnError as failure:
            if isinstance(error, RetryableError):
                raise error from failure
            raise self._requests.unavailable("the outcome of a put is unknown", key) from failure
        # Some servers and proxies capitalise the names of headers.
        metadata = {name.lower(): value for name, value in answer.get("Metadata", {}).items()}
        put_id = str(metadata.get(PUT_ID, ""))
        return _Head(put_id, str(answer["ETag"]), answer["LastModified"].astimezone(UTC))

    def _is_refused(self, key: str, condition: dict[str, str]) -> bool:
        arguments = self._put_arguments(self._entropy.token(16), checksum_of(b""))
        try:
            self._requests.call("PutObject", key, Body=b"", **condition, **arguments)
        except (PreconditionFailedError, MissingError):
            return True  # a replacement of nothing is refused by 412 or 404
        except ConditionalPutUnsupportedError:
            return False  # 501: the server knows no such header
        return False

    def _delete_probe(self, key: str) -> None:
        try:
            self._requests.call("DeleteObject", key)
        except CairnError:
            # Without the permission to delete, an empty object remains that listings hide.
            return


def _date_of(answer: dict[str, Any]) -> datetime:
    """Return the time of an answer, by the server's clock."""
    text = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return parsedate_to_datetime(text).astimezone(UTC) if text else SYSTEM_CLOCK.now()
