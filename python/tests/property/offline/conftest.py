"""The writers of Spark's files, which the unit tests of the reader have, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "reader" / "kit"))
