"""The property tests use the kit of the checkpoint layer's unit tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "checkpoint" / "kit"))
