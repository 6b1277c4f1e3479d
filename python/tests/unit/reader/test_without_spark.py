"""The reader in a Python that has neither Spark nor a way to a JVM."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from small_checkpoint import SmallCheckpoint

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import importlib, pkgutil, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
import cairn

print(cairn.open_checkpoint(sys.argv[1]).state().to_table().num_rows)
import cairn.reader
for module in pkgutil.walk_packages(cairn.reader.__path__, "cairn.reader."):
    importlib.import_module(module.name)
"""


def test_a_checkpoint_is_read_without_pyspark_and_py4j(tmp_path: Path) -> None:
    """`pip install cairn-state` alone is enough to look into a checkpoint, also with no Java."""
    written = SmallCheckpoint(tmp_path / "ck")
    written.commit({1: (1, 2), 2: (3, 4)})

    result = subprocess.run(  # noqa: S603 - this file's own program
        [sys.executable, "-c", PROGRAM, str(written.folder)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.stdout, result.stderr, result.returncode) == ("2\n", "", 0)
