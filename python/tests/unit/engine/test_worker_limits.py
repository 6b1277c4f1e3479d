"""How a worker's memory is divided."""

from __future__ import annotations

import pytest

from cairn.engine.resources import WorkerLimits

_MIB = 1 << 20


@pytest.mark.parametrize("memory_mib", [64, 128, 256, 4096])
def test_a_commit_fits_beside_the_shares(memory_mib: int) -> None:
    """Long-lived memory must not fill the bound: a commit needs some copies of its rows."""
    limits = WorkerLimits(memory_mib * _MIB, 1 << 30)

    held = limits.cache_bytes + limits.memtable_bytes + limits.pending_bytes

    assert held + 3 * limits.run_bytes <= limits.memory_bytes - 16 * _MIB
    assert limits.pending_bytes > 0
