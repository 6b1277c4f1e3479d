"""Form of the result files: one run, provider, workload or sample per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(path: Path, content: dict[str, Any]) -> None:
    """Write ``content`` as JSON, with one line per item of its lists and of its nested objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = ",\n".join(f"{json.dumps(name)}: {_lines(value)}" for name, value in content.items())
    path.write_text(f"{{\n{fields}\n}}\n")


def _lines(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n]"
    if isinstance(value, dict) and value and all(isinstance(one, dict) for one in value.values()):
        items = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
        return "{\n  " + ",\n  ".join(items) + "\n}"
    return json.dumps(value)
