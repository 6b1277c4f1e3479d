"""The memory that is left: of the machine, and of a control group of either version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cairn.memory import available_bytes

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = "MemTotal:       1000 kB\nMemAvailable:    600 kB\nSwapFree:         40 kB\n"
MACHINE_BYTES = 640 * 1024


def write(root: Path, files: dict[str, str]) -> None:
    """Write files below ``root``."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_this_machine_has_memory_left() -> None:
    """The real files are read."""
    left = available_bytes()

    assert left is not None
    assert left > 1 << 20


def test_without_a_group_the_machine_decides(tmp_path: Path) -> None:
    """Swap counts: Linux ends no process while there is some."""
    write(tmp_path, {"proc/meminfo": MACHINE})

    assert available_bytes(tmp_path) == MACHINE_BYTES


def test_nothing_is_known_where_no_file_tells(tmp_path: Path) -> None:
    """On macOS nothing is refused for memory."""
    assert available_bytes(tmp_path) is None


@pytest.mark.parametrize("folder", ["", "pod/one/"], ids=["namespace", "host"])
def test_the_limit_of_a_group_of_version_2(tmp_path: Path, folder: str) -> None:
    """A container sees its group at the mount, a service of the host below its name."""
    write(
        tmp_path,
        {
            "proc/meminfo": MACHINE,
            "proc/self/cgroup": "0::/pod/one\n",
            f"sys/fs/cgroup/{folder}memory.max": "100000\n",
            f"sys/fs/cgroup/{folder}memory.current": "90000\n",
            f"sys/fs/cgroup/{folder}memory.stat": "anon 9\ninactive_file 5000\nactive_file 300\n",
        },
    )

    assert available_bytes(tmp_path) == 100_000 - 90_000 + 5_300


def test_the_limit_of_a_group_of_version_1(tmp_path: Path) -> None:
    """Its counts with ``total_`` include those of the groups below."""
    group = "sys/fs/cgroup/memory/docker/x"
    write(
        tmp_path,
        {
            "proc/meminfo": MACHINE,
            "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/x\n0::/\n",
            f"{group}/memory.limit_in_bytes": "50000\n",
            f"{group}/memory.usage_in_bytes": "52000\n",
            f"{group}/memory.stat": "active_file 1\ntotal_active_file 2500\n",
        },
    )

    assert available_bytes(tmp_path) == 500


def test_a_group_without_a_limit_leaves_it_to_the_machine(tmp_path: Path) -> None:
    """Version 2 writes "max", version 1 a number larger than any machine."""
    write(
        tmp_path,
        {
            "proc/meminfo": MACHINE,
            "proc/self/cgroup": "4:memory:/\n0::/\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/memory.current": "9\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "9\n",
        },
    )

    assert available_bytes(tmp_path) == MACHINE_BYTES
