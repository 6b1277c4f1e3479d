"""The checkpoints of the reader's tests serve here too, and an engine in this process."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[2]
for folder in ("unit/reader/kit", "unit/offline/kit", "property/engine"):
    sys.path.insert(0, str(_TESTS / folder))
