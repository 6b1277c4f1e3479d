"""Stores the classes that a driver loads in `CLASS_ARCHIVE`: `make test` runs this program.

Java maps the archive into memory where it loaded and verified the classes, which is half of the CPU
time of a driver with one short query. It ignores an archive of another Java or of other jars.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import spark
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME

# Aggregation, join, and a program in Scala that needs the extension.
QUERIES = ("windows_update", "join_left_outer_v2", "transform_scala")


def main() -> None:
    """Run queries in a driver that writes the archive when it ends."""
    archive = spark.CLASS_ARCHIVE
    archive.unlink(missing_ok=True)
    archive.parent.mkdir(exist_ok=True)
    # A test run beside this one must not map half an archive.
    new = archive.with_suffix(".new")
    spark.JVM_OPTIONS = f"{spark.OWN_OPTIONS} -Xlog:cds=off -XX:ArchiveClassesAtExit={new}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, spark.running_driver():
        events = Events(Path(folder, "input"))
        events.add_files(0, 2)
        for name in QUERIES:
            checkpoint = str(Path(folder, name))
            run = Run(BY_NAME[name], events, checkpoint, spark.CAIRN, 2)
            run.advance()
            run.state(run.operator.views[-1])
    new.rename(archive)


if __name__ == "__main__":
    main()
