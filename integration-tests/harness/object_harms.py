"""What can happen to an object of a checkpoint: it is lost, cut, changed, or another one's.

A harm takes the object's bytes and returns those that are left; ``None``: the object is deleted.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from cairn.checksum import crc32c

Harm: TypeAlias = Callable[[bytes], bytes | None]

TRAILER_BYTES = 32
FORMAT_OFFSET = 8
NEWER_FORMAT = 2


def too_new(changelog: bytes) -> bytes:
    """Return a changelog of a later format version with right checksums."""
    body = bytearray(changelog)
    struct.pack_into("<I", body, len(body) - TRAILER_BYTES + FORMAT_OFFSET, NEWER_FORMAT)
    struct.pack_into("<I", body, len(body) - 4, crc32c(bytes(body[:-4])))
    return bytes(body)


def flipped_at(share: float) -> Harm:
    """Flip one bit; 0 is in the first byte, 1 in the last one."""

    def flip(data: bytes) -> bytes:
        at = int((len(data) - 1) * share)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


flipped = flipped_at(0.5)


def cut_at(kept: int) -> Harm:
    """Keep the first bytes; a negative number counts from the end."""
    return lambda data: data[:kept]


def deleted(_: bytes) -> None:
    """Delete the object."""


def edited(**fields: object) -> Harm:
    """Change fields of a manifest and correct its checksum."""

    def edit(data: bytes) -> bytes:
        manifest = {**json.loads(data), **fields}
        del manifest["crc32c"]
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return json.dumps({**manifest, "crc32c": crc32c(text.encode())}).encode()

    return edit


CHANGELOG_HARMS: Mapping[str, Harm] = {
    "missing": deleted,
    "empty": cut_at(0),
    "cut-near-begin": cut_at(10),
    "cut-before-trailer": cut_at(-TRAILER_BYTES),
    "cut-by-one-byte": cut_at(-1),
    "flipped-bit": flipped,
    "foreign": lambda _: b"PK\x03\x04 a zip of another program, long enough for a trailer",
    "too-new": too_new,
}
MANIFEST_HARMS: Mapping[str, Harm] = {
    "missing": deleted,
    "cut": cut_at(-20),
    "flipped-bit": flipped,
    "foreign": lambda _: b'{"metadata": "of another program"}',
}
SST_HARMS: Mapping[str, Harm] = {
    "missing": deleted,
    "cut": cut_at(-1),
    "flipped-bit": flipped,
}


def harm(path: Path, how: Harm) -> None:
    """Harm an object that is a file."""
    left = how(path.read_bytes())
    path.unlink()
    if left is not None:
        path.write_bytes(left)
