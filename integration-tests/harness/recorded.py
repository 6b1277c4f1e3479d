"""The date and the commit that committed results name."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def today() -> str:
    """Return the date, in UTC."""
    return datetime.now(UTC).date().isoformat()


def head_commit(repository: Path) -> str:
    """Return the short hash of the commit that is checked out; local changes do not show in it."""
    command = ["git", "-C", str(repository), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
