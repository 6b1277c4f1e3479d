"""The release of this package: the content of the file VERSION, which the shim's jar has too.

Layer: release (imports nothing of Cairn).
"""

from pathlib import Path
from typing import Final

RELEASE: Final = (Path(__file__).parent / "VERSION").read_text("ascii").strip()
