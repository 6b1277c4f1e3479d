"""How much memory this process can still get, of the machine or of its container; what it keeps.

Layer: memory (above errors only). Linux lets a process reserve more memory than there is and ends
it when it uses it, so Python's ``MemoryError`` comes too late. What is about to be read from
untrusted lengths is compared with ``available_bytes`` beforehand.
"""

from __future__ import annotations

import ctypes
import re
import resource
from contextlib import suppress
from pathlib import Path

_UNIT_BYTES = 1024  # of /proc/meminfo
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BYTES, _KEPT_BYTES = 1 << 20, 16 << 20


def resident_bytes() -> int:
    """Return the memory that this process uses now; 0 where it cannot be known."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    return 0


def give_back_buffers(large_bytes: int = _LARGE_BYTES, kept_bytes: int = _KEPT_BYTES) -> None:
    """Let the C library give large buffers back to the system when they are freed; of a process.

    glibc itself raises the size of a large buffer up to 32 MiB when such buffers are freed. Among
    small ones in use they then leave gaps that nothing fills: a process that moved 50 M rows grew
    from 250 to 960 MiB, of which half was free.

    Args:
        large_bytes: the least size of a large buffer; fixed from now on.
        kept_bytes: free memory that may stay at the end of the heap.
    """
    with suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, large_bytes)
        library.mallopt(_M_TRIM_THRESHOLD, kept_bytes)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can still use; ``None`` where it cannot be known.

    The least of the machine's memory that is free or easily freed, swap included, and what the
    limit of the process's control group leaves. Groups above that one are not looked at: a
    container sees its own group only.

    Args:
        root: the folder that holds ``proc`` and ``sys``.
    """
    found = [_of_machine(root), _of_group(root)]
    return min((one for one in found if one is not None), default=None)


def _of_machine(root: Path) -> int | None:
    fields = _fields(root / "proc/meminfo")
    if "MemAvailable" not in fields:
        return None
    return (fields["MemAvailable"] + fields.get("SwapFree", 0)) * _UNIT_BYTES


def _of_group(root: Path) -> int | None:
    """Return what the limit leaves, of either version; the lesser, if both have one."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    left = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not controllers:
            left.append(_left(root, "", name, ("memory.max", "memory.current", "")))
        elif "memory" in controllers.split(","):
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            left.append(_left(root, "memory", name, files))
    return min((one for one in left if one is not None), default=None)


def _left(root: Path, mount: str, name: str, files: tuple[str, str, str]) -> int | None:
    """Return limit less use of a group; pages of files are freed when they are needed.

    A container may see the group's files at the mount itself, not below the group's name.
    """
    limit_file, use_file, prefix = files
    mounted = root / "sys/fs/cgroup" / mount
    for folder in (mounted / name.lstrip("/"), mounted):
        try:
            limit, use = ((folder / one).read_text().strip() for one in (limit_file, use_file))
        except OSError:
            continue
        if not (limit.isdecimal() and use.isdecimal()):
            return None  # "max"
        counts = _fields(folder / "memory.stat")
        pages = sum(counts.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
        return max(0, int(limit) - int(use) + pages)
    return None


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file of lines ``name value`` or ``name: value kB``."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    return {name: int(value) for name, value in re.findall(r"^(\w+):?\s+(\d+)", text, re.MULTILINE)}
