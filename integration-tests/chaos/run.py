"""Runs queries on a cluster while everything around them fails, and checks what is left.

    python integration-tests/chaos/run.py --seed 7 --minutes 10

Six queries with state in Cairn, one of them in checkpoint format 1, run on a standalone Spark
cluster, with their checkpoints on MinIO behind two proxies. Faults come from a schedule, which a
seed repeats (chaos/schedule.py). A driver that has ended is started again. Afterwards
(chaos/checks.py) the rows of every batch, and the state of every retained batch, must equal those
of Spark's own provider on the same input, without faults; nothing may be left behind. The exit code
is 1 if a check has failed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
for _path in (HERE.parent, REPOSITORY / "python" / "src"):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

from chaos import checks
from chaos.faults import DAMAGING, Faults, Hit
from chaos.schedule import KINDS, Fault, schedule
from chaos.ways import is_changelog, is_named, split_key
from chaos.world import Failure, World
from harness.event_log import Twins, metrics, twins
from harness.processes import nothing_survives, wait_until
from harness.spark import running_driver

OPERATORS = (
    "windows_append",
    "distinct_by_time",
    "join_left_outer_v4",
    "sessions",
    "groups_event_time",
    "transform_event_time",
)
SECONDS_PER_BATCH = 6.0
POLL_S = 0.2
START_S = 180.0
FINISH_S = 300.0
# A fault without a target tries again so often, until the queries have ended. While a driver starts
# there is no engine: on a busy machine for a minute, and some drivers are killed before that.
RETRY_S = 3.0
# So long without a batch of any query: no fault lasts that long, nor several killed drivers.
IDLE_S = 600.0
# Errors that say that stored bytes are wrong. Only a damaged object may cause them.
DAMAGE_CODES = {"CAIRN_CORRUPT", "CAIRN_MISSING", "CAIRN_FOREIGN_OBJECT", "CAIRN_FORMAT_VERSION"}
# Those of them after which a load takes another way, if there is one (docs/semantics.md). It never
# does so around the object of a newer release.
HEALED_CODES = DAMAGE_CODES - {"CAIRN_FORMAT_VERSION"}
# Errors that no fault of a run explains.
BUG_CODES = {"CAIRN_INTERNAL", "CAIRN_PROTOCOL", "CAIRN_SCHEMA_MISMATCH"}
NO_TWINS = Twins(0, 0)
# What small budgets and faults must have caused, by the metric that counts it.
WORK = {
    "cairnSpills": "a batch's writes were spilled",
    "cairnCacheEvictions": "the state cache evicted a slab",
    "cairnReplayedChangelogs": "a changelog was replayed",
}
REPAIRS = "cairnRepairs"
_CODE = re.compile(r"\[(CAIRN_[A-Z0-9_]+)\]")
_SPARK_CODE = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")


@dataclass(frozen=True)
class Options:
    """What a run does.

    Attributes:
        seed: of the schedule and of the input.
        minutes: the time within which faults begin.
        every_s: mean time between two faults.
        operators: names of the queries.
        without: kinds of faults that are left out.
    """

    seed: int
    minutes: float
    every_s: float
    operators: list[str]
    without: frozenset[str] = frozenset()


@dataclass
class Outcome:
    """What happened in a run.

    Attributes:
        hits: faults that hit something, with their target.
        missed: faults that found no target until the queries had ended, or until they were over:
            no request was sent that they would have changed.
        restarts: how often the driver was started again.
        errors: errors that ended a query, by their code; one that names a damaged object says so.
        twins: the tasks that Spark repeated while they were late, by speculation.
        metrics: the sums of Cairn's metrics over all finished batches.
        not_tested: what the run gave no occasion to check, one text each.
        findings: faults of Cairn, one text each; empty: the run has passed.
    """

    hits: list[tuple[Fault, str]] = field(default_factory=list)
    missed: list[Fault] = field(default_factory=list)
    restarts: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    twins: Twins = NO_TWINS
    metrics: Counter[str] = field(default_factory=Counter)
    not_tested: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


class Run:
    """One run in its world, from the first fault to the end of the input."""

    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.options = options
        self.faults = Faults(world)
        self.outcome = Outcome()
        self._log = world.folder / "events.jsonl"
        self._started_s = time.monotonic()
        self._undo: list[tuple[float, Fault, Hit]] = []
        self._waiting: list[Fault] = []  # for a target
        self._retried_s = 0.0
        self._batches = 0
        self._batch_at_s = 0.0

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started_s

    def _check_alive(self) -> bool:
        """Return whether drivers still come to a new batch; looks at the sinks now and then."""
        if self.seconds < self._batch_at_s + IDLE_S:
            return True
        batches = sum(self.world.driver.batches())
        if batches > self._batches:
            self._batches, self._batch_at_s = batches, self.seconds
            return True
        return False

    def go(self, memory: checks.Memory) -> None:
        """Make all faults, then let the queries reach the end of their input."""
        options = self.options
        driver = self.world.driver

        def has_begun() -> bool:
            return min(driver.batches()) > 0 or driver.exit_code is not None

        wait_until(has_begun, START_S, "the first batches", driver.tail)
        if not min(driver.batches()):
            raise RuntimeError(f"the queries do not run even without a fault:\n{driver.tail()}")
        self._started_s = time.monotonic()
        for fault in schedule(options.seed, options.minutes, options.every_s, options.without):
            while self.seconds < fault.at_s and self._check_alive():
                self._look_after()
                memory.sample(self.world.engines())
                time.sleep(POLL_S)
            if not self._check_alive() or not self._has_begun(fault):
                self._waiting.append(fault)
        deadline = self.seconds + FINISH_S + options.minutes * 60
        while self._undo or self.world.driver.exit_code != 0:
            self._look_after()
            memory.sample(self.world.engines())
            time.sleep(POLL_S)
            if self.seconds > deadline or not self._check_alive():
                tail = self.world.driver.tail()
                self._find(f"the queries did not reach the end of their input:\n{tail}")
                break
        for fault in self._waiting:
            self._miss(fault)
        for key in list(self.faults.damages):
            self.faults.restore(key)

    def _has_begun(self, fault: Fault) -> bool:
        """Begin a fault; return whether there was a target."""
        hit = self.faults.begin(fault)
        if hit is None:
            return False
        self._note("fault", number=fault.number, kind=fault.kind, hit=hit.target)
        self.outcome.hits.append((fault, hit.target))
        self._undo.append((self.seconds + fault.lasts_s, fault, hit))
        lasts = f" for {fault.lasts_s:.1f} s" if fault.lasts_s else ""
        print(f"{self.seconds:7.1f} s  {fault.number:4}  {fault.kind:15} {hit.target}{lasts}")
        return True

    def _miss(self, fault: Fault) -> None:
        self.outcome.missed.append(fault)
        self._note("missed", number=fault.number, kind=fault.kind)

    def _retry(self) -> None:
        """Begin one fault that had no target, if there is one now."""
        if self.seconds < self._retried_s + RETRY_S:
            return
        self._retried_s = self.seconds
        for fault in self._waiting:
            # Two at the same time would have the same target.
            if self._has_begun(fault):
                self._waiting.remove(fault)
                return

    def _look_after(self) -> None:
        """Undo what is over, retry faults, and start the driver again if it has ended."""
        self._retry()
        due = [one for one in self._undo if one[0] <= self.seconds]
        self._undo = [one for one in self._undo if one[0] > self.seconds]
        for _, fault, hit in due:
            hit.undo()
            self._note("undone", number=fault.number)
            if not hit.was_applied():
                self.outcome.hits.remove((fault, hit.target))
                self._miss(fault)
        for second in self.faults.seconds:
            for failure in second.take_failures():
                self.judge(failure, "the second driver")
        driver = self.world.driver
        if driver.exit_code in (None, 0):
            return
        for failure in driver.take_failures():
            self.judge(failure, "the driver")
        driver.end()
        self.outcome.restarts += 1
        self.world.driver = self.world.start_driver(driver.job)
        self._note("restarted", exit_code=driver.exit_code)

    def judge(self, failure: Failure, who: str) -> None:
        """Say whether a fault explains an error; give a damaged object back that it names."""
        codes = set(_CODE.findall(failure.text))
        damaged = self.faults.damaged_before(failure.at_s)
        named = sorted(key for key in damaged if is_named(key, failure.text))
        self._note("failed", who=who, query=failure.query, text=failure.text[:3000])
        code = min(codes) if codes else next(iter(_SPARK_CODE.findall(failure.text)), "other")
        self.outcome.errors[f"{code}, of a damaged object" if named else code] += 1
        unexplained = codes & BUG_CODES or (codes & DAMAGE_CODES and not named)
        if unexplained or (codes & HEALED_CODES and self._had_to_heal(named, damaged)):
            self._find(f"{who}, {failure.query}: {failure.text[:1500]}")
        for key in named:
            self.faults.restore(key)

    def _had_to_heal(self, named: list[str], damaged: set[str]) -> bool:
        """Return whether only snapshots' objects were damaged, and each load had another way.

        A damaged changelog may end a query: most of them are on every way.
        """
        stores = {split_key(key)[0] for key in named}
        if any(is_changelog(key) and split_key(key)[0] in stores for key in damaged):
            return False
        return bool(named) and all(self.faults.is_avoidable(key, damaged) for key in named)

    def _find(self, text: str) -> None:
        self.outcome.findings.append(text)
        print(f"FINDING: {text}", file=sys.stderr)

    def _note(self, event: str, **values: object) -> None:
        line = json.dumps({"at": round(self.seconds, 2), "event": event, **values})
        with self._log.open("a") as log:
            log.write(line + "\n")


def run(folder: Path, options: Options) -> Outcome:
    """Make one run in an empty folder, check what is left, and return the outcome."""
    files = max(5, int(options.minutes * 60 / SECONDS_PER_BATCH))
    memory = checks.Memory()
    with World(folder, options.operators, files, SECONDS_PER_BATCH, options.seed) as world:
        one = Run(world, options)
        one.go(memory)
        world.driver.end()
        for second in one.faults.seconds:
            second.end()
        outcome = one.outcome
        outcome.twins = twins(world.event_log)
        outcome.metrics = metrics(world.event_log)
        outcome.not_tested += memory.not_tested()
        if not outcome.findings:
            outcome.findings += checks.of_results(world, [s.job for s in one.faults.seconds])
            outcome.findings += memory.findings()
            outcome.findings += checks.of_objects(world)
    outcome.findings += [f"left behind by an engine: {name}" for name in world.left]
    return outcome


def _not_tested(outcome: Outcome) -> list[str]:
    """Return what the run gave no occasion to check."""
    hits = {fault.kind for fault, _ in outcome.hits}
    missed = {fault.kind for fault in outcome.missed}
    texts = [f"no fault of kind {name} found a target" for name in sorted(missed - hits)]
    if not outcome.twins.won:
        texts.append("no twin of a stateful task was first")
    texts += [f"in no finished batch {WORK[name]}" for name in WORK if not outcome.metrics[name]]
    if not hits.isdisjoint(DAMAGING) and not outcome.metrics[REPAIRS]:
        texts.append("in no finished batch a load went around a damaged object")
    return texts + outcome.not_tested


def show(outcome: Outcome, options: Options) -> None:
    """Print the table by kind."""
    hits = Counter(fault.kind for fault, _ in outcome.hits)
    missed = Counter(fault.kind for fault in outcome.missed)
    print(
        f"\nseed {options.seed}, {options.minutes:g} minutes: {hits.total()} faults hit, "
        f"{missed.total()} found no target"
    )
    print(f"{'kind':16} {'hit':>7} {'no target':>10}")
    for kind in KINDS:
        print(f"{kind.name:16} {hits[kind.name]:7} {missed[kind.name]:10}")
    print(
        f"{'twins of tasks':16} {outcome.twins.started:7}  "
        f"({outcome.twins.won} of stateful tasks were first)"
    )
    for name in (*WORK, REPAIRS):
        print(f"{name:23} {outcome.metrics[name]}")
    for text in _not_tested(outcome):
        print(f"NOT TESTED: {text}")
    print(f"\nthe driver was started again {outcome.restarts} times; errors that ended a query:")
    for code, count in outcome.errors.most_common():
        print(f"{count:5}  {code}")
    for finding in outcome.findings:
        print(f"FINDING: {finding}")
    if not outcome.findings:
        print("All rows and all state equal those of Spark's own provider; nothing is left behind.")


def command(options: Options) -> str:
    """Return the command that makes the same run again: its faults depend on every option."""
    words = ["python", str(Path(__file__).resolve().relative_to(REPOSITORY))]
    words += ["--seed", str(options.seed), "--minutes", repr(options.minutes)]
    words += ["--every", repr(options.every_s), "--queries", *options.operators]
    if options.without:
        kinds = [kind.name for kind in KINDS if kind.name not in options.without]
        words += ["--only", *kinds]
    return shlex.join(words)


def parse_options(words: list[str] | None = None) -> tuple[Options, Path | None]:
    """Read the command line; return the options, and the folder to keep."""
    arguments = parse_arguments(words)
    kinds = {kind.name for kind in KINDS}
    unknown = set(arguments.only or ()) - kinds
    if unknown:
        sys.exit(f"error: no such kinds: {', '.join(sorted(unknown))}. Kinds: {sorted(kinds)}")
    seed = arguments.seed if arguments.seed is not None else random.randrange(1_000_000)
    without = frozenset(kinds - set(arguments.only)) if arguments.only else frozenset()
    options = Options(seed, arguments.minutes, arguments.every, arguments.queries, without)
    return options, arguments.keep


def parse_arguments(words: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="repeats a schedule (default: a new one)")
    parser.add_argument("--minutes", type=float, default=10, help="default %(default)s")
    parser.add_argument("--every", type=float, default=3, help="mean seconds between two faults")
    parser.add_argument("--queries", nargs="+", default=list(OPERATORS), metavar="NAME")
    parser.add_argument("--only", nargs="+", metavar="KIND", help="kinds of faults; default: all")
    parser.add_argument("--keep", type=Path, help="work in this new folder and do not remove it")
    return parser.parse_args(words)


def main() -> int:
    """Run, print, and return the exit code."""
    options, keep = parse_options()
    print(f"seed {options.seed}; repeat this run by:\n{command(options)}")
    folder = keep or Path(tempfile.mkdtemp(prefix="cairn-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with nothing_survives(), running_driver():
            outcome = run(folder.resolve(), options)
        show(outcome, options)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
