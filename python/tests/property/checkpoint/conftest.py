"""The kit of the checkpoint layer's unit tests serves the property tests too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "checkpoint"))
