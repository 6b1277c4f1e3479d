"""Moves one state between providers by `cairn migrate`, without Spark.

    python benchmarks/moving.py                             ten million keys, one run
    python benchmarks/moving.py --rows 1000000 --runs 3
    python benchmarks/moving.py --rows 100000000 --targets cairn

The state is that of an aggregation (count and sum) with a key of one long, in two partitions. Each
move is a process of its own with its children: its time is measured from its start, with all rows
read, written, read back and compared; its memory is that of all processes together.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import machine
import result_file
from driver import BUILD, SHIM_JAR, interrupt_at_sigterm, require_shim
from made_state import PROVIDERS, make_state, run_measured
from report import moving_table

_MOVE = """
import sys
import cairn
source, target, provider = sys.argv[1:]
with cairn.migrate(source, to=target, provider=provider) as plan:
    print(sum(one.keys for one in plan.apply()))
"""


def main() -> int:
    """Measure, print the table and write the results; return 1 if a row is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--sources", nargs="+", choices=sorted(PROVIDERS), default=["rocksdb"])
    parser.add_argument("--targets", nargs="+", choices=sorted(PROVIDERS), default=list(PROVIDERS))
    parser.add_argument("--result", type=Path, default=BUILD / "moving.json")
    options = parser.parse_args()
    require_shim(SHIM_JAR)
    interrupt_at_sigterm()
    runs: list[dict[str, Any]] = []
    for source in options.sources:
        folder = BUILD / "moving" / source
        make_state(folder, source, "id", options.rows)
        for target in sorted(options.targets):
            runs += [_measured(folder, source, target) for _ in range(options.runs)]
        shutil.rmtree(folder)
    content = {"rows": options.rows, "runs": runs, "machine": machine.describe(BUILD)}
    result_file.write(options.result, content)
    print(moving_table(content))
    wrong = [run for run in runs if run["rows"] != options.rows]
    for run in wrong:
        print(f"another number of rows: {run}", file=sys.stderr)
    return 1 if wrong else 0


def _measured(folder: Path, source: str, target: str) -> dict[str, Any]:
    moved = folder / "moved"
    shutil.rmtree(moved, ignore_errors=True)
    done = run_measured(_MOVE, str(folder / "checkpoint"), str(moved), target)
    rows = int(done.output)
    run = {
        "source": source,
        "target": target,
        "rows": rows,
        "whole_s": done.whole_s,
        "cpu_s": done.cpu_s,
        "peak_mib": done.peak_mib,
    }
    print(json.dumps(run), flush=True)
    return run


if __name__ == "__main__":
    raise SystemExit(main())
