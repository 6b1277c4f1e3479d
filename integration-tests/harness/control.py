"""Spark's own provider as the control of a test, with recorded results: its inputs have a seed.

A recording is a file below `recorded/<minor of Spark>`. It has the rows, the counts and what the
test reads of the state, and the checksums of the program and of its input. The variable
`CAIRN_TEST_CONTROL` says what a test does:

    recorded   (the default) read the recording; a run without one is run
    live       run, and compare with the recording if there is one
    record     run, and write the recording
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

from harness.differential import Record, Rows, Run
from harness.events import Events
from harness.operators import Operator, StateView
from harness.scala_programs import PLANS, plan_in_scala
from harness.spark import CAIRN_CONF, MINOR, driver_conf, provider_conf

T = TypeVar("T")
INTEGRATION_TESTS = Path(__file__).resolve().parents[1]
RECORDED = INTEGRATION_TESTS / "recorded" / MINOR
MODE = os.environ.get("CAIRN_TEST_CONTROL", "recorded")
# Of more rows, a recording has number and checksum; the rows of one test would fill 100 KB.
READABLE_ROWS = 20
NEXT = "Next: make record-control, and look at what has changed"


class StaleRecordingError(Exception):
    """A recording is not of this program, of this input, or of what Spark's provider does now."""


class Digest:
    """Rows of which only number and checksum are recorded; it equals the list of these rows."""

    def __init__(self, count: int, sha256: str) -> None:
        self._count, self._sha256 = count, sha256

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list):
            return NotImplemented
        return len(other) == self._count and _checksum(other) == self._sha256

    __hash__ = None  # type: ignore[assignment] # as that of a list

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{self._count} rows; CAIRN_TEST_CONTROL=live has their text>"


class Control:
    """The results of a run of Spark's own provider, recorded or live.

    Args:
        name: of the recording, without ending; each test has its own.
        run: a run that has not begun. It is not started if there is a recording.
    """

    def __init__(self, name: str, run: Run) -> None:
        self.record = Record()
        self._run = run
        self._file = RECORDED / f"{name}.json"
        self._old: dict[str, Any] = {}
        if MODE != "record" and self._file.exists():
            self._old = json.loads(self._file.read_text())
        self._is_played = MODE == "recorded" and bool(self._old)
        self._new: dict[str, Any] = {"steps": [], "reads": {}}

    @property
    def operator(self) -> Operator:
        """The query."""
        return self._run.operator

    def change(self, operator: Operator) -> None:
        """Let the next call of `advance` run a later form of the query."""
        self._run = replace(self._run, operator=operator)

    def advance(self) -> None:
        """Process all present input files.

        Raises:
            StaleRecordingError: the recording has another input; live: Spark has other results.
        """
        number = len(self._new["steps"])
        step = {
            "program": _checksum(_program(self._run)),
            "input": _checksum(_input(self._run.events)),
        }
        if self._is_played:
            (old,) = self._old["steps"][number : number + 1] or [{}]
            for part, checksum in step.items():
                self._require(old.get(part) == checksum, f"another {part} in step {number + 1}")
            self._new["steps"].append(old)
            self.record.rows |= {int(batch): _rows(old["rows"][batch]) for batch in old["rows"]}
            self.record.counts |= {int(b): _counts(old["counts"][b]) for b in old["counts"]}
            return
        before = Record(dict(self.record.rows), dict(self.record.counts))
        self._run.advance()
        self.record = self._run.record
        rows = {str(b): _stored(some) for b, some in _added(self.record.rows, before.rows)}
        counts = {
            str(b): [" ".join(map(str, one)) for one in operators]
            for b, operators in _added(self.record.counts, before.counts)
        }
        done = {**step, "rows": rows, "counts": counts}
        self._new["steps"].append(done)
        self._keep(lambda old: old["steps"][number : number + 1] == [done])

    def state(self, view: StateView, **options: object) -> Rows:
        """Return the state as Spark's `statestore` source shows it."""
        return self._read(f"{view} {options}", lambda: self._run.state(view, **options))

    def changes(self, view: StateView, last: int, first: int = 0) -> Rows:
        """Return what each batch leaves at each key, as `Run.changes` does."""
        what = f"changes {view} {f'{first} ' if first else ''}{last}"
        return self._read(what, lambda: self._run.changes(view, last, first))

    def _read(self, what: str, read: Callable[[], Rows]) -> Rows:
        key = f"step {len(self._new['steps'])}: {what}"
        if self._is_played:
            self._require(key in self._old["reads"], f"no result of: {key}")
            return _rows(self._old["reads"][key])
        rows = read()
        self._new["reads"][key] = _stored(rows)
        self._keep(lambda old: old["reads"].get(key) == _stored(rows))
        return rows

    def _keep(self, is_same: Callable[[dict[str, Any]], bool]) -> None:
        """Write the recording, or compare with it."""
        if MODE == "record":
            self._file.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self._new, indent=1, ensure_ascii=False) + "\n"
            self._file.write_text(text, "utf-8")
        elif self._old:
            self._require(is_same(self._old), "other results than Spark's provider has now")

    def _require(self, is_met: bool, reason: str) -> None:  # noqa: FBT001
        if not is_met:
            raise StaleRecordingError(f"{self._file} has {reason}. {NEXT}")


def _stored(rows: Rows) -> Any:  # noqa: ANN401 - JSON
    if len(rows) <= READABLE_ROWS:
        return rows
    return {"count": len(rows), "sha256": _checksum(rows)}


def _rows(stored: Any) -> Rows:  # noqa: ANN401 - JSON
    # Whoever only compares rows needs no text of them.
    return stored if isinstance(stored, list) else cast("Rows", Digest(**stored))


def _counts(stored: list[str]) -> list[tuple[int, ...]]:
    return [tuple(map(int, one.split())) for one in stored]


def _added(now: dict[int, T], before: dict[int, T]) -> list[tuple[int, T]]:
    return [(batch, part) for batch, part in sorted(now.items()) if batch not in before]


def _checksum(parts: Iterator[str] | list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _input(events: Events) -> Iterator[str]:
    """Yield the names and the contents of all present input files."""
    for path in sorted(events.folder.glob("*/*.json")):
        yield f"{path.parent.name}/{path.name}"
        yield path.read_text("utf-8")


def _program(run: Run) -> Iterator[str]:
    """Yield what decides on the results beside the input: plan, output mode, settings, sink."""
    settings = {
        **driver_conf(Path("/scratch")),
        **provider_conf(run.provider, run.checkpoint_format),
        **run.operator.conf,
        **run.conf,
    }
    # The class path differs between machines, and no setting of Cairn's changes Spark's provider.
    own = (CAIRN_CONF, "spark.driver.", "spark.sql.extensions")
    yield from (f"{name}={settings[name]}" for name in sorted(settings) if not name.startswith(own))
    yield from (type(run).__qualname__, run.operator.output_mode)
    yield from _sources(run.operator.plan, set())


def _sources(thing: Any, seen: set[Any]) -> Iterator[str]:  # noqa: ANN401 - what a function may use
    """Yield the source of a function or class, and of all of this folder that it uses."""
    if isinstance(thing, partial):
        yield from _sources([thing.func, thing.args, thing.keywords], seen)
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            yield from _sources(part, seen)
    elif isinstance(thing, dict):
        yield from _sources(sorted(thing.items()), seen)
    elif isinstance(thing, (str, int, float)) or thing is None:
        yield repr(thing)
    elif isinstance(thing, (FunctionType, type)) and _is_here(thing) and thing not in seen:
        seen.add(thing)
        yield inspect.getsource(thing)
        yield from _sources(list(_used(thing)), seen)
        if thing is plan_in_scala:
            yield PLANS.read_text("utf-8")


def _is_here(thing: FunctionType | type) -> bool:
    module = inspect.getmodule(thing)
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(INTEGRATION_TESTS)


def _used(thing: FunctionType | type) -> Iterator[Any]:
    """Yield what a class has, or what the names in a function mean."""
    if isinstance(thing, type):
        yield thing.__bases__
        yield from (part for part in vars(thing).values() if isinstance(part, FunctionType))
        return
    yield from (cell.cell_contents for cell in thing.__closure__ or ())
    names = sorted(set(_names(thing.__code__)))
    for value in (thing.__globals__[name] for name in names if name in thing.__globals__):
        if isinstance(value, ModuleType):
            yield from (getattr(value, name) for name in names if hasattr(value, name))
        else:
            yield value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
