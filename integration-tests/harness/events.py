"""Small inputs of the operator tests: one JSON file per micro-batch, generated from a seed.

There are two streams of the same schema, `left` and `right`. Event time advances by ten minutes per
file. One row in twelve is late by up to an hour, keys repeat, and every column but the time is
sometimes null.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

SCHEMA = "k int, name string, ts timestamp, v bigint"
START = datetime(2026, 1, 1, tzinfo=UTC)
FILE_MINUTES = 10
LATE_ONE_IN = 12
NULL_ONE_IN = 25
# The only key of a last file, and how long after the other files its row is.
LAST_KEY = 999
LAST_AFTER = timedelta(days=1)
# The file source orders by modification time, which must not depend on when a test runs.
FIRST_MTIME_S = 1_750_000_000


@dataclass(frozen=True)
class Events:
    """A folder of input files, one per micro-batch.

    Attributes:
        folder: contains `left/` and `right/`.
        seed: seed of all rows.
        rows_per_file: rows in each file of each side.
        keys: number of distinct `k`.
        has_late_rows: whether some rows are later than a watermark of ten minutes allows. Without
            them no query drops rows that its batch job has.
    """

    folder: Path
    seed: int = 7
    rows_per_file: int = 60
    keys: int = 12
    has_late_rows: bool = True

    def side(self, name: str) -> str:
        """Return the folder of one stream."""
        return str(self.folder / name)

    def add_files(self, first: int, count: int) -> None:
        """Write the files of micro-batches ``first`` to ``first + count - 1`` of both sides."""
        for side in ("left", "right"):
            (self.folder / side).mkdir(parents=True, exist_ok=True)
            for number in range(first, first + count):
                self._write(side, number)

    def add_last_file(self, number: int) -> None:
        """Write one row per side, so much later that nothing else waits for the watermark then."""
        at = START + timedelta(minutes=FILE_MINUTES * number) + LAST_AFTER
        row = {"k": LAST_KEY, "name": "last", "ts": at.isoformat(), "v": 1}
        for side in ("left", "right"):
            self._store(side, number, f"{json.dumps(row)}\n")

    def join_files(self, source: Events, side: str, numbers: range, number: int) -> None:
        """Write one file with the rows of another input's files; none for no files."""
        if numbers:
            self._store(side, number, "".join(source.path(side, of).read_text() for of in numbers))

    def path(self, side: str, number: int) -> Path:
        """Return a file."""
        return self.folder / side / f"{number:04}.json"

    def _write(self, side: str, number: int) -> None:
        chance = random.Random(f"{self.seed}/{side}/{number}")
        lines = [json.dumps(self._row(chance, number)) for _ in range(self.rows_per_file)]
        self._store(side, number, "\n".join(lines) + "\n")

    def _store(self, side: str, number: int, text: str) -> None:
        path = self.path(side, number)
        # The file gets its name when it is complete: the source may list the folder at any time.
        hidden = path.with_name(f".{path.name}.new")
        hidden.write_text(text)
        os.utime(hidden, (FIRST_MTIME_S + number, FIRST_MTIME_S + number))
        hidden.rename(path)

    def _row(self, chance: random.Random, number: int) -> dict[str, object]:
        at = START + timedelta(minutes=FILE_MINUTES * number, seconds=chance.randrange(900))
        if self.has_late_rows and not chance.randrange(LATE_ONE_IN):
            at -= timedelta(minutes=chance.randrange(60))
        k = chance.randrange(self.keys) - 2
        return {
            "k": _or_null(chance, k),
            # Various lengths, short and long, with a character outside ASCII.
            "name": _or_null(chance, f"ö{k}-" + "x" * chance.choice((0, 3, 8, 200))),
            "ts": at.isoformat(),
            "v": _or_null(chance, chance.randrange(-500, 1000)),
        }


def _or_null(chance: random.Random, value: object) -> object:
    return value if chance.randrange(NULL_ONE_IN) else None
