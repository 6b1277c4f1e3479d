"""A file system of a few MiB, which a test can fill. Mounting it needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SmallDisk:
    """A folder on it; ``is_small``: it is a file system of its own."""

    path: Path
    is_small: bool

    def fill(self) -> None:
        """Leave no byte free. REQUIRES: it is small."""
        assert self.is_small
        with self._ballast.open("wb", buffering=0) as ballast:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(b"\1" * size)
                except OSError:
                    continue

    def free(self) -> None:
        """Undo ``fill``. Idempotent."""
        self._ballast.unlink(missing_ok=True)

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
