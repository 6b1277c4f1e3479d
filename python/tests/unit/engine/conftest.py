"""Fixture: a worker in this process; its module is beside the similar rig."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "property" / "engine"))

from served import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    sockets = Path(tempfile.mkdtemp(prefix="cairn-t-"))
    served = Served(tmp_path, sockets)
    yield served
    served.close()
    shutil.rmtree(sockets, ignore_errors=True)
