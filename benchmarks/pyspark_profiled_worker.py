"""PySpark's worker under cProfile, for transform.py --profile.

Spark starts this module as each Python worker, by `spark.python.worker.module`. A task leaves its
profile in the folder that the environment names.
"""

from __future__ import annotations

import cProfile
import os
import time
from pathlib import Path
from typing import IO

from pyspark import worker


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Run one task."""
    folder = Path(os.environ["TRANSFORM_PROFILE"])
    profile = cProfile.Profile()
    try:
        profile.runcall(worker.main, infile, outfile)
    finally:
        profile.dump_stats(folder / f"worker-{os.getpid()}-{time.time_ns()}.prof")
