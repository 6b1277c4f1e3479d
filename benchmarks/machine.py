"""Describes the machine of a benchmark: processor, memory, storage and versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path


def describe(folder: Path) -> dict[str, str]:
    """Return the facts of this machine; checkpoints are written below ``folder``."""
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": f"{int(_field('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "java": _java(),
        "python": platform.python_version(),
        "pyspark": _version("pyspark"),
        "rocksdict": _version("rocksdict"),
        "pyarrow": _version("pyarrow"),
        "storage": f"local files ({_file_system(folder)})",
        "commit": _commit(),
    }


def _commit() -> str:
    """Return the abbreviated id of the commit; with a mark if tracked files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    folder = Path(__file__).resolve().parent
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _java() -> str:
    lines = subprocess.run(["java", "-version"], check=True, capture_output=True, text=True).stderr
    return lines.splitlines()[0].replace('"', "")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _file_system(folder: Path) -> str:
    """Return the type of the file system of ``folder``, from its nearest mount point."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, file_system, *_ = line.split()
        if folder.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, file_system
    return kind
