"""Whether a load could have gone around a damaged snapshot: read without Cairn's code.

docs/semantics.md#damaged-objects promises the detour as long as an earlier snapshot, or the empty
store, leads to the damaged one's version by changelogs that are kept and whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Read = Callable[[str], bytes]
Version = tuple[int, str]

_STORE = re.compile(r"(.+)/((?:changelog|snapshot|sst)/[^/]+)")
_CHANGELOG = re.compile(r"(changelog/\d+)(?:_u[0-9a-f]{32})?\.arrow")
_MANIFEST = re.compile(r"snapshot/(\d+)_(u[0-9a-f]{32})\.json")


def split_key(key: str) -> tuple[str, str]:
    """Return the root of a store and the name of one of its objects."""
    match = _STORE.fullmatch(key)
    assert match, key
    return match[1], match[2]


def is_changelog(key: str) -> bool:
    """Return whether a key is that of a changelog."""
    return split_key(key)[1].startswith("changelog/")


def is_named(key: str, text: str) -> bool:
    """Return whether an error names an object.

    A load in format 1 looks for an attempt under the plain name and under its own one, and names
    the plain one if both are absent.
    """
    root, name = split_key(key)
    match = _CHANGELOG.fullmatch(name)
    return key in text or (match is not None and f"{root}/{match[1]}.arrow" in text)


def header_of(changelog: bytes) -> dict[str, Any]:
    """Return the header of a changelog."""
    with pa.ipc.open_stream(changelog) as stream:
        header: dict[str, Any] = json.loads(stream.schema.metadata[b"cairn.header"])
    return header


def base_of(header: dict[str, Any]) -> Version:
    """Return the base of a changelog; the id is empty for the empty state."""
    return header["base"]["version"], header["base"].get("checkpoint_id", "")


def copy_key(key: str, changelog: bytes) -> str | None:
    """Return the key of the copy that keeps a replaced changelog of format 1; ``None``: no such."""
    plain, _, suffix = key.rpartition(".")
    if not is_changelog(key) or "_" in plain.rpartition("/")[2]:
        return None
    return f"{plain}_{header_of(changelog)['checkpoint_id']}.{suffix}"


def manifest_name(ref: Version) -> str:
    """Return the name of a manifest."""
    return f"snapshot/{ref[0]}_{ref[1]}.json"


def is_avoidable(name: str, present: set[str], damaged: set[str], read: Read) -> bool:
    """Return whether loads of all versions go on without a manifest or an SST.

    Args:
        name: the object's name, relative to the store's root, as all others.
        present: the objects of the store.
        damaged: objects that were damaged when the load failed, perhaps no more.
        read: returns an object; called for objects that are present and not damaged.
    """
    whole = present - damaged - {name}
    if match := _MANIFEST.fullmatch(name):
        return _is_version_reached((int(match[1]), match[2]), whole, read)
    matches = [match for one in present if (match := _MANIFEST.fullmatch(one))]
    if not {match[0] for match in matches} <= whole:
        return False  # another manifest, which may name it, was damaged, too
    refs = [(int(one[1]), one[2]) for one in matches if name in _ssts_of(read(one[0]))]
    # Which of them the load began with is not known.
    return bool(refs) and all(_is_version_reached(ref, whole, read) for ref in refs)


def _is_version_reached(ref: Version, whole: set[str], read: Read) -> bool:
    """Return whether a version can be loaded by another snapshot than its own."""
    header = _header(ref, whole, read)
    while header is not None:
        if any(_header(one, whole, read) is None for one in map(tuple, header["lineage"])):
            return False
        base = base_of(header)
        if not base[1]:
            return True
        if manifest_name(base) in whole and _ssts_of(read(manifest_name(base))) <= whole:
            return True
        header = _header(base, whole, read)
    return False


def _header(ref: Version, whole: set[str], read: Read) -> dict[str, Any] | None:
    """Return the header of an attempt's changelog under either name, if that is whole."""
    version, own = ref
    for name in (f"changelog/{version}_{own}.arrow", f"changelog/{version}.arrow"):
        if name in whole:
            header = header_of(read(name))
            if header["checkpoint_id"] == own:
                return header
    return None


def _ssts_of(manifest: bytes) -> set[str]:
    return {file["object"] for file in json.loads(manifest)["files"]}
