"""A file system of a few MiB, which a test can fill. Mounting it needs root.

Where none can be mounted, processes can be kept from writing instead.
"""

from __future__ import annotations

import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

REFILL_SECONDS = 0.005


@dataclass(frozen=True)
class SmallDisk:
    """A folder on it; ``is_small``: it is a file system of its own."""

    path: Path
    is_small: bool

    def fill(self, *pids: int) -> None:
        """Leave no byte free; if it is not small, let no file of some processes grow.

        REQUIRES: it is small, or there are processes.
        """
        if not self.is_small:
            assert pids
            for pid in pids:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(b"\1" * size)
                except OSError:
                    continue

    @contextmanager
    def kept_full(self) -> Iterator[None]:
        """Leave no byte free until it ends, also of what a failed attempt of a task frees.

        REQUIRES: it is small.
        """
        assert self.is_small
        ended = threading.Event()

        def keep() -> None:
            while not ended.wait(REFILL_SECONDS):
                self.fill()

        self.fill()
        keeper = threading.Thread(target=keep, name="keep-disk-full")
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join()
            self.free()

    def free(self, *pids: int) -> None:
        """Undo ``fill``. Idempotent."""
        self._ballast.unlink(missing_ok=True)
        for pid in pids:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"


@contextmanager
def small_disk(path: Path, size_mib: int) -> Iterator[SmallDisk]:
    """Mount one on a new folder; where this user may not, it is a plain folder."""
    path.mkdir(mode=0o700)
    options = ["-t", "tmpfs", "-o", f"size={size_mib}m,mode=0700", "cairn-test", str(path)]
    is_small = os.geteuid() == 0 and not subprocess.run(["mount", *options], check=False).returncode
    try:
        yield SmallDisk(path, is_small)
    finally:
        if is_small:
            # Lazily: an engine may still have open files there.
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def mounted_disk(path: Path, size_mib: int) -> Iterator[SmallDisk]:
    """Mount one on a new folder; where this user may not, the test is skipped."""
    with small_disk(path, size_mib) as disk:
        if not disk.is_small:
            pytest.skip("mounting a small file system needs root, and tmpfs")
        yield disk
