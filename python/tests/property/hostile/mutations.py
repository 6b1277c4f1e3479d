"""Mutations of real bytes: what a damaged disk, a foreign program or an attacker may have written.

Everything follows from a ``random.Random``, so that a seed repeats an input.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from cairn.checksum import crc32c
from cairn.format.fields import dump_object

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_EDGES = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
_EDGES_64 = (*_EDGES, -(2**63), 2**62, 2**40)
_TEXTS = (
    "",
    "../../../tmp/x",
    "/etc/passwd",
    "\x00",
    "\ud800",
    "ä" * 300,
    "9" * 5000,
    "1e999",
    "u" + "0" * 32,
    "=2@1_u" + "0" * 32,
    "sst/" + "0" * 32 + ".sst",
    "CURRENT",
    "000001.sst",
)


def _hostile_value(random: Random) -> Any:  # noqa: ANN401 - JSON
    makers: list[Callable[[], Any]] = [
        lambda: random.choice(_EDGES_64) + random.randrange(-1, 2),
        lambda: random.choice(_TEXTS),
        lambda: random.choice((None, True, False, [], {}, 0.5, -0.0, 1e308)),
        lambda: [random.choice(_TEXTS)] * random.randrange(1, 4),
        lambda: {random.choice(_TEXTS): random.choice(_EDGES)},
        lambda: 10 ** random.randrange(1, 400),
        lambda: [[[]]] * random.randrange(200),
        lambda: "x" * random.randrange(1 << 12),
    ]
    return random.choice(makers)()


def mutate_json(value: Any, random: Random) -> Any:  # noqa: ANN401 - JSON
    """Return a JSON value with one place changed, removed or repeated."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        return _mutate_object(value, random)
    if isinstance(value, list) and value and random.random() < 0.9:
        return _mutate_list(value, random)
    if isinstance(value, int) and not isinstance(value, bool) and random.random() < 0.5:
        return value + random.choice((-2, -1, 1, 2, 1 << 20, 1 << 40))
    if isinstance(value, str) and value and random.random() < 0.5:
        at = random.randrange(len(value))
        return value[:at] + random.choice(("", "x", "0", "/", "\x00", "é")) + value[at + 1 :]
    return _hostile_value(random)


def _mutate_object(value: dict[str, Any], random: Random) -> dict[str, Any]:
    name, changed = random.choice(sorted(value)), dict(value)
    what = random.randrange(10)
    if what == 0:
        del changed[name]
    elif what == 1:
        changed[str(random.choice(_TEXTS))] = changed[name]
    elif what == 2:
        changed[name] = value[random.choice(sorted(value))]
    else:
        changed[name] = mutate_json(value[name], random)
    return changed


def _mutate_list(value: list[Any], random: Random) -> list[Any]:
    at, changed = random.randrange(len(value)), list(value)
    what = random.randrange(8)
    if what == 0:
        del changed[at]
    elif what == 1:
        changed.insert(at, value[at])
    elif what == 2:
        changed *= random.choice((2, 3, 50))
    else:
        changed[at] = mutate_json(value[at], random)
    return changed


def mutate_bytes(data: bytes, others: list[bytes], random: Random) -> bytes:
    """Return ``data`` with one to eight places changed; ``others`` lend their parts."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        at = random.randrange(len(changed) + 1)
        length = min(random.choice((1, 2, 4, 8, 16, 64, 1024)), len(changed) - at)
        what = random.randrange(8)
        if what == 0 and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif what == 1:
            changed[at : at + length] = random.randbytes(length)
        elif what == 2:
            form, edges = random.choice((("<i", _EDGES), ("<q", _EDGES_64), ("<h", _EDGES)))
            size = struct.calcsize(form)
            edge = random.choice(edges) % (1 << 8 * size)
            at -= at % size if random.random() < 0.8 else 0
            changed[at : at + size] = edge.to_bytes(size, "little")
        elif what == 3:
            del changed[at : at + length]
        elif what == 4:
            changed[at:at] = changed[at : at + length] * random.choice((1, 2, 100))
        elif what == 5:
            other = random.choice(others)
            start = random.randrange(len(other) + 1)
            changed[at : at + length] = other[start : start + length]
        elif what == 6:
            del changed[at:]
        else:
            changed[at : at + length] = bytes([random.choice((0, 0xFF))]) * length
    return bytes(changed)


def with_changelog_checksum(data: bytes) -> bytes:
    """Return a changelog whose trailer fits its bytes, so that the checksum hides nothing."""
    if len(data) < 32:
        return data
    split = len(data) - 32
    _, version, rows, _ = struct.unpack_from("<8sIQQ", data, split)
    trailer = struct.pack("<8sIQQ", b"CAIRNEND", version, rows, split)
    body = data[:split] + trailer
    return body + struct.pack("<I", crc32c(body))


def mutate_header_of_changelog(data: bytes, random: Random) -> bytes:
    """Return a changelog with one place of its JSON header changed, of the same length if it fits.

    The header is in the schema's metadata, whose length other bytes state.
    """
    start = data.find(b'{"attempt"')
    end = data.find(b"}", data.rfind(b'"version":', start, start + (1 << 14))) + 1
    try:
        text = dump_object(mutate_json(json.loads(data[start:end]), random)).encode()
    except (ValueError, RecursionError):
        return data
    length = end - start
    text = text + b" " * (length - len(text)) if len(text) <= length else text[:length]
    return data[:start] + text + data[end:]


def with_manifest_checksum(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a manifest with the checksum of its fields, if it has any."""
    if isinstance(value, dict):
        value.pop("crc32c", None)
        try:
            value["crc32c"] = crc32c(dump_object(value).encode())
        except (ValueError, RecursionError):
            value["crc32c"] = 0
    return json.dumps(value).encode()
