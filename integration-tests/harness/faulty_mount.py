"""A real mount on which chosen system calls fail, as on file systems that cannot be had here.

A process of its own serves it over FUSE, by the kernel's protocol, from a plain folder. Mounting
needs root and /dev/fuse; a test is skipped where it is not possible.

    python faulty_mount.py FOLDER MOUNT '{"LINK": 95}'    ; names of FUSE's calls, numbers of errors
"""

# Each method makes the system call of its name.
# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH116, PTH118

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

CALLS = {
    1: "LOOKUP",
    2: "FORGET",
    3: "GETATTR",
    4: "SETATTR",
    9: "MKDIR",
    10: "UNLINK",
    11: "RMDIR",
    12: "RENAME",
    13: "LINK",
    14: "OPEN",
    15: "READ",
    16: "WRITE",
    17: "STATFS",
    18: "RELEASE",
    20: "FSYNC",
    25: "FLUSH",
    26: "INIT",
    27: "OPENDIR",
    28: "READDIR",
    29: "RELEASEDIR",
    30: "FSYNCDIR",
    35: "CREATE",
    42: "BATCH_FORGET",
    45: "RENAME2",
}
_UNANSWERED = ("FORGET", "BATCH_FORGET")
_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_MAX_WRITE_BYTES = 128 << 10
_DIRECT_IO = 1  # no page cache: what a call does arrives here


@contextmanager
def faulty_mount(mount: Path, faults: Mapping[str, int]) -> Iterator[None]:
    """Mount a file system on a new folder; there the named calls of FUSE fail with these errors."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("a FUSE mount needs root and /dev/fuse")
    behind = mount.with_name(f"{mount.name}-behind")
    mount.mkdir()
    behind.mkdir()
    command = [sys.executable, __file__, str(behind), str(mount), json.dumps(faults)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            if server.stdout.readline() != b"mounted\n":
                pytest.skip("mounting over FUSE is not allowed here")
            yield
        finally:
            # Lazily: an engine may still have open files there.
            subprocess.run(["umount", "--lazy", str(mount)], check=False)
            server.terminate()


class _Server:
    """Answers the kernel's requests from the files of a folder. A node is a path in it."""

    def __init__(self, device: int, folder: str, faults: Mapping[str, int]) -> None:
        self._device = device
        self._faults = faults
        self._paths = {1: folder}
        self._nodes = {folder: 1}
        self._listed: dict[int, list[os.DirEntry[str]]] = {}

    def serve(self) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                request = os.read(self._device, _MAX_WRITE_BYTES + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            _, code, unique, node, *_ = _IN.unpack_from(request)
            name = CALLS.get(code, "")
            if name in _UNANSWERED:
                continue
            number, answer = self._answer(name, node, request[_IN.size :])
            os.write(self._device, _OUT.pack(_OUT.size + len(answer), -number, unique) + answer)

    def _answer(self, name: str, node: int, body: bytes) -> tuple[int, bytes]:
        method: Callable[[int, bytes], bytes] | None
        method = getattr(self, f"_{name.lower()}", None)
        if name in self._faults or method is None:
            return self._faults.get(name, errno.ENOSYS), b""
        try:
            return 0, method(node, body)
        except OSError as error:
            return error.errno or errno.EIO, b""

    def _child(self, node: int, name: bytes) -> str:
        return os.path.join(self._paths[node], os.fsdecode(name.split(b"\0")[0]))

    def _entry(self, path: str) -> bytes:
        attributes = _attributes(os.lstat(path))
        node = self._nodes.setdefault(path, len(self._paths) + 1)
        self._paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + attributes

    def _forget_names(self, path: str) -> None:
        """Give the names at and below a path new nodes when they are used again."""
        for known in [each for each in self._nodes if f"{each}/".startswith(f"{path}/")]:
            del self._nodes[known]

    def _init(self, _: int, body: bytes) -> bytes:
        read_ahead = struct.unpack_from("<III", body)[2]
        sizes = struct.pack("<IIIIHHIIHH", 7, 31, read_ahead, 0, 8, 8, _MAX_WRITE_BYTES, 1, 0, 0)
        return sizes.ljust(64, b"\0")

    def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(self._child(node, body))

    def _getattr(self, node: int, body: bytes) -> bytes:
        flags, _, handle = struct.unpack_from("<IIQ", body)
        status = os.fstat(handle) if flags & 1 else os.lstat(self._paths[node])
        return struct.pack("<QII", 0, 0, 0) + _attributes(status)

    def _setattr(self, node: int, body: bytes) -> bytes:
        valid, _, handle, size = struct.unpack_from("<IIQQ", body)
        mode, _, uid, gid = struct.unpack_from("<IIII", body, 68)
        target: int | str = handle if valid & 64 else self._paths[node]
        if valid & 1:
            os.chmod(target, mode & 0o7777)
        if valid & 6:
            os.chown(target, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(target, size)
        status = os.stat(target)
        return struct.pack("<QII", 0, 0, 0) + _attributes(status)

    def _mkdir(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body[8:])
        os.mkdir(path, struct.unpack_from("<I", body)[0])
        return self._entry(path)

    def _unlink(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        os.unlink(path)
        self._forget_names(path)
        return b""

    def _rmdir(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        os.rmdir(path)
        self._forget_names(path)
        return b""

    def _rename(self, node: int, body: bytes) -> bytes:
        return self._move(node, struct.unpack_from("<Q", body)[0], body[8:])

    def _rename2(self, node: int, body: bytes) -> bytes:
        target, flags = struct.unpack_from("<QI", body)
        if flags:
            raise OSError(errno.EINVAL, "flags of a rename")
        return self._move(node, target, body[16:])

    def _move(self, node: int, target: int, names: bytes) -> bytes:
        old, new = (
            self._child(parent, name)
            for parent, name in zip((node, target), names.split(b"\0"), strict=False)
        )
        os.rename(old, new)
        self._forget_names(new)
        moved = [each for each in self._nodes if f"{each}/".startswith(f"{old}/")]
        for known in moved:
            number = self._nodes.pop(known)
            path = new + known[len(old) :]
            self._nodes[path], self._paths[number] = number, path
        return b""

    def _link(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body[8:])
        os.link(self._paths[struct.unpack_from("<Q", body)[0]], path)
        return self._entry(path)

    def _open(self, node: int, body: bytes) -> bytes:
        flags = struct.unpack_from("<I", body)[0] & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        return struct.pack("<QII", os.open(self._paths[node], flags), _DIRECT_IO, 0)

    def _create(self, node: int, body: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", body)
        path = self._child(node, body[16:])
        handle = os.open(path, (flags | os.O_CREAT) & ~os.O_NOFOLLOW, mode)
        return self._entry(path) + struct.pack("<QII", handle, _DIRECT_IO, 0)

    def _read(self, _: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def _write(self, _: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def _flush(self, _: int, __: bytes) -> bytes:
        return b""

    def _release(self, _: int, body: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def _fsync(self, _: int, body: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", body)[0])
        return b""

    def _opendir(self, node: int, _: bytes) -> bytes:
        handle = os.open(self._paths[node], os.O_RDONLY | os.O_DIRECTORY)
        with os.scandir(self._paths[node]) as entries:
            self._listed[handle] = list(entries)
        return struct.pack("<QII", handle, 0, 0)

    def _readdir(self, _: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        found = b""
        for index, entry in enumerate(self._listed[handle][offset:], offset + 1):
            name = os.fsencode(entry.name)
            kind = 4 if entry.is_dir(follow_symlinks=False) else 8
            row = struct.pack("<QQII", entry.inode(), index, len(name), kind) + name
            row = row.ljust(-(-len(row) // 8) * 8, b"\0")
            if len(found) + len(row) > size:
                break
            found += row
        return found

    def _releasedir(self, node: int, body: bytes) -> bytes:
        self._listed.pop(struct.unpack_from("<Q", body)[0], None)
        return self._release(node, body)

    def _fsyncdir(self, node: int, body: bytes) -> bytes:
        return self._fsync(node, body)

    def _statfs(self, node: int, _: bytes) -> bytes:
        disk = os.statvfs(self._paths[node])
        counts = (disk.f_blocks, disk.f_bfree, disk.f_bavail, disk.f_files, disk.f_ffree)
        sizes = (disk.f_bsize, disk.f_namemax, disk.f_frsize)
        return struct.pack("<QQQQQIII", *counts, *sizes).ljust(80, b"\0")


def _attributes(status: os.stat_result) -> bytes:
    times_ns = (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)
    return _ATTRIBUTES.pack(
        status.st_ino,
        status.st_size,
        status.st_blocks,
        *(time_ns // 10**9 for time_ns in times_ns),
        *(time_ns % 10**9 for time_ns in times_ns),
        status.st_mode,
        status.st_nlink,
        status.st_uid,
        status.st_gid,
        0,
        status.st_blksize,
        0,
    )


def main(folder: str, mount: str, faults: str) -> None:
    """Mount, say so on the standard output, and serve."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    call = ctypes.CDLL(None, use_errno=True).mount
    arguments = (b"cairn-test", os.fsencode(mount), b"fuse", ctypes.c_ulong(0), options.encode())
    if call(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), mount)
    sys.stdout.write("mounted\n")
    sys.stdout.flush()
    _Server(device, folder, json.loads(faults)).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
