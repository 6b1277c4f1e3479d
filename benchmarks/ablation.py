"""Switches off each mechanism of the product by itself, and measures what it gains.

    python benchmarks/ablation.py                    all mechanisms, 3 rounds: about an hour
    python benchmarks/ablation.py --mechanisms last-keys --workloads upserts
    python benchmarks/ablation.py --quick            small sizes, one round: shows that it works
    python benchmarks/ablation.py --list
    python benchmarks/ablation.py --check            whether every patch applies and is described
    python benchmarks/ablation.py --build            builds the copies only
    python benchmarks/ablation.py --report           the tables of what was measured so far

The product has no switches: a mechanism is switched off by a patch, ablation/<mechanism>.patch,
that makes a correct product without it. It changes as few lines as possible, because a later change
of these lines breaks it: most patches leave the mechanism's code and stop its use at one place. The
files ablation/*.toml say what each mechanism is, which workloads could show its gain, and what it
costs in lines. Each patch is built in a copy of the committed sources (patched_copy.py).

In each round every workload runs in the copy without a patch (*on*), and in the copies of its
mechanisms (*off*); the order rotates. A run that has figures is not repeated: the program goes on
where it was stopped, unless the sources, the patch or the sizes have changed. Sizes are those of
bench.toml, or ablation.toml's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import result_file
from driver import (
    BUILD,
    HERE,
    REPOSITORY,
    Jvm,
    RunFailedError,
    compile_driver,
    interrupt_at_sigterm,
    load_provider,
    load_settings,
)
from patched_copy import BuiltCopy, CopyError, build, check_patch, digest_of
from run import measure, sizes_of
from summary import as_text, differing_counts, medians, with_shares

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = HERE / "ablation"
ON = "all"
# Less is better for these, as for all figures that are not rates.
CPU = ("worker_cpu_us_per_written_row", "jvm_cpu_us_per_written_row")
_NAMED = {"name", "what", "workloads", "files", "more_lines", "more_lines_of"}


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of ablation/*.toml.

    Attributes:
        name: that of its patch.
        what: one sentence.
        workloads: those that could show its gain.
        files: files of the repository that are wholly its own.
        more_lines: its lines in other files, counted by hand.
        more_lines_of: which lines these are, or why they cannot be counted.
    """

    name: str
    what: str
    workloads: tuple[str, ...]
    more_lines: int
    files: tuple[str, ...] = ()
    more_lines_of: str = ""

    @property
    def patch(self) -> Path:
        """The patch that switches it off."""
        return FOLDER / f"{self.name}.patch"

    def line_count(self) -> int:
        """Return what it costs in lines of source."""
        own = sum(len((REPOSITORY / name).read_text().splitlines()) for name in self.files)
        return own + self.more_lines


def load_mechanisms(folder: Path = FOLDER) -> list[Mechanism]:
    """Return the mechanisms of all files of a folder.

    Raises:
        SystemExit: an entry has a name that it must not have.
    """
    entries: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.toml")):
        entries += tomllib.loads(path.read_text())["mechanism"]
    for entry in entries:
        unknown = entry.keys() - _NAMED
        if unknown:
            message = f"mechanism {entry.get('name')}: unknown {', '.join(sorted(unknown))}"
            raise SystemExit(message)
    return [_mechanism(**entry) for entry in entries]


def _mechanism(*, workloads: list[str], files: list[str] | None = None, **others: Any) -> Mechanism:  # noqa: ANN401
    return Mechanism(workloads=tuple(workloads), files=tuple(files or ()), **others)


def faults_of(mechanisms: list[Mechanism], workloads: Iterable[str]) -> list[str]:
    """Return what is wrong with the patches and their descriptions."""
    known, described = set(workloads), {one.name for one in load_mechanisms()}
    faults = [
        f"{patch.name} is described in no {FOLDER.name}/*.toml"
        for patch in sorted(FOLDER.glob("*.patch"))
        if patch.stem not in described
    ]
    for one in mechanisms:
        faults += [f"{one.name}: no workload {name}" for name in set(one.workloads) - known]
        faults += [
            f"{one.name}: no file {name}" for name in one.files if not (REPOSITORY / name).exists()
        ]
        if not one.patch.exists():
            faults.append(f"{one.name}: no file {one.patch}")
            continue
        try:
            check_patch(one.patch)
        except CopyError as error:
            faults.append(str(error))
    return faults


def load_workloads() -> dict[str, dict[str, Any]]:
    """Return the workloads of bench.toml, with the sizes and figures of ablation.toml."""
    changed = tomllib.loads((HERE / "ablation.toml").read_text())["workload"]
    return {entry["name"]: entry | changed.get(entry["name"], {}) for entry in _bench_workloads()}


def _bench_workloads() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = load_settings()["workload"]
    return entries


def main(arguments: list[str] | None = None) -> int:
    """Run what the options select; return 1 if a run failed."""
    workloads = load_workloads()
    mechanisms = load_mechanisms()
    options = _options(arguments, mechanisms, workloads)
    selected = _selected(mechanisms, options)
    result = options.result or BUILD / ("ablation-quick.json" if options.quick else "ablation.json")
    if options.list or options.check or options.report:
        return _show(options, selected, workloads, result)
    interrupt_at_sigterm()
    try:
        copies = _build(selected)
    except CopyError as error:
        print(error, file=sys.stderr)
        return 1
    if options.build:
        return 0
    compile_driver()
    of_these = [*options.workloads] if options.workloads else list(workloads)
    ablation = Ablation(selected, {name: workloads[name] for name in of_these}, copies, result)
    rounds = options.rounds or (1 if options.quick else 3)
    try:
        failures = ablation.run(rounds, is_quick=options.quick)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 1 if _report(result, selected) or failures else 0


def _show(
    options: argparse.Namespace, selected: list[Mechanism], workloads: Iterable[str], result: Path
) -> int:
    """Do what needs no run."""
    if options.report:
        return _report(result, selected)
    if options.check:
        faults = faults_of(selected, workloads)
        print("\n".join(faults) or "every patch applies")
        return 1 if faults else 0
    for one in selected:
        print(f"{one.name:24} {one.line_count():>5} lines  {', '.join(one.workloads)}")
        print(f"    {one.what}")
    return 0


def _report(result: Path, mechanisms: list[Mechanism]) -> int:
    """Print what a result file has; return 1 if that is wrong or nothing."""
    if not result.exists():
        print(f"nothing was measured yet: there is no {result}", file=sys.stderr)
        return 1
    outcome = json.loads(result.read_text())
    print("\n" + tables(outcome, mechanisms))
    faults = [f"FAILED: {run['error']}" for run in outcome["runs"] if "error" in run]
    faults += [f"DIFFERENT: {difference}" for difference in differing_counts(outcome)]
    print("\n".join([*faults, f"results: {result}"]))
    return 1 if faults else 0


def _options(
    arguments: list[str] | None, mechanisms: list[Mechanism], workloads: dict[str, dict[str, Any]]
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    named: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    names = [one.name for one in mechanisms]
    parser.add_argument("--mechanisms", choices=names, help="only these", **named)
    parser.add_argument("--workloads", choices=list(workloads), help="only these", **named)
    parser.add_argument("--rounds", type=int, help="runs of each (default 3; quick 1)")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round")
    parser.add_argument("--list", action="store_true", help="list the mechanisms; run none")
    parser.add_argument("--check", action="store_true", help="check the patches; run none")
    parser.add_argument("--build", action="store_true", help="build the copies; run none")
    parser.add_argument("--report", action="store_true", help="print the tables only")
    parser.add_argument(
        "--result", type=Path, help=f"the result file (default {BUILD}/ablation.json)"
    )
    return parser.parse_args(arguments)


def _selected(mechanisms: list[Mechanism], options: argparse.Namespace) -> list[Mechanism]:
    """Return the mechanisms that are selected and have a selected workload."""
    return [
        one
        for one in mechanisms
        if (not options.mechanisms or one.name in options.mechanisms)
        and (not options.workloads or set(one.workloads) & set(options.workloads))
    ]


def _build(mechanisms: list[Mechanism]) -> dict[str, BuiltCopy]:
    """Return the built copies by name; all patches are checked before the first is built."""
    for one in mechanisms:
        check_patch(one.patch)
    copies: dict[str, BuiltCopy] = {}
    for number, name in enumerate([ON, *(one.name for one in mechanisms)]):
        print(f"copy {number} of {len(mechanisms)}: {name}", flush=True)
        patch = FOLDER / f"{name}.patch" if number else None
        copies[name] = build(name, patch, copies.get(ON))
    return copies


@dataclass(frozen=True)
class _Run:
    """One run: a workload in a copy."""

    workload: str
    copy: str
    number: int
    sizes: dict[str, int]

    def is_in(self, record: dict[str, Any]) -> bool:
        """Return whether a record is of this run, with figures."""
        names = (record["workload"], record["provider"], record["run"], record["sizes"])
        return names == (self.workload, self.copy, self.number, self.sizes) and (
            "numbers" in record
        )


class Ablation:
    """The runs of some mechanisms, and their result file.

    The file has the form of summary.py; its providers are the copies.

    Args:
        mechanisms: those to measure.
        workloads: those to run, by name.
        copies: the built copies, by the names of their mechanisms, and ``ON``.
        result: the result file.
    """

    def __init__(
        self,
        mechanisms: list[Mechanism],
        workloads: dict[str, dict[str, Any]],
        copies: dict[str, BuiltCopy],
        result: Path,
    ) -> None:
        self._mechanisms = mechanisms
        self._workloads = workloads
        self._copies = copies
        self._result = result
        self._settings = load_settings()
        self.outcome: dict[str, Any] = {
            "machine": machine.describe(BUILD),
            "heap": self._settings["heap"],
            "subject": ON,
            "providers": {},
            "workloads": {},
            "runs": [],
        }
        if result.exists():
            self._go_on(json.loads(result.read_text()))
        for name, copy in copies.items():
            self.outcome["providers"][name] = {
                "title": name,
                "family": "cairn",
                "digest": copy.digest,
            }
        self.outcome["workloads"] |= workloads

    def _go_on(self, former: dict[str, Any]) -> None:
        """Take the runs of a former call whose sources and patch are those of now."""
        fresh = {name for name, one in former["providers"].items() if self._is_fresh(name, one)}
        self.outcome["providers"] = {name: former["providers"][name] for name in fresh}
        self.outcome["workloads"] = former["workloads"]
        self.outcome["runs"] = [run for run in former["runs"] if run["provider"] in fresh]

    @staticmethod
    def _is_fresh(name: str, provider: dict[str, Any]) -> bool:
        patch = None if name == ON else FOLDER / f"{name}.patch"
        return (patch is None or patch.exists()) and provider["digest"] == digest_of(patch)

    def run(self, rounds: int, *, is_quick: bool) -> int:
        """Do all runs that have no figures; return the number of failed runs."""
        due = self._planned(rounds, is_quick=is_quick)
        known = self.outcome["runs"]
        due = [run for run in due if not any(run.is_in(record) for record in known)]
        failures = 0
        for number, run in enumerate(due):
            print(
                f"[{number + 1}/{len(due)}, {self._minutes_left(due[number:])}]"
                f" round {run.number + 1}  {run.workload}  {run.copy}",
                flush=True,
            )
            record = self._run_one(run)
            failures += "error" in record
            same = (run.workload, run.copy, run.number)
            self.outcome["runs"] = [
                one
                for one in self.outcome["runs"]
                if (one["workload"], one["provider"], one["run"]) != same
            ]
            self.outcome["runs"].append(record)
            result_file.write(self._result, self.outcome)
        return failures

    def _planned(self, rounds: int, *, is_quick: bool) -> list[_Run]:
        planned: list[_Run] = []
        for number in range(rounds):
            for name, entry in self._workloads.items():
                off = [one.name for one in self._mechanisms if name in one.workloads]
                copies = [ON, *off] if off else []
                # The order rotates: a machine that slows down affects all.
                turn = number % max(1, len(copies))
                sizes = sizes_of(entry, is_quick=is_quick) | {"seed": number + 1}
                planned += [
                    _Run(name, copy, number, sizes) for copy in copies[turn:] + copies[:turn]
                ]
        return planned

    def _minutes_left(self, due: list[_Run]) -> str:
        """Return how long some runs will take, by those that were done."""
        durations: dict[str, list[float]] = {}
        for record in self.outcome["runs"]:
            durations.setdefault(record["workload"], []).append(record["duration_s"])
        if not durations:
            return "time left unknown"
        means = {name: statistics.mean(some) for name, some in durations.items()}
        mean = statistics.mean(means.values())
        return f"{sum(means.get(run.workload, mean) for run in due) / 60:.0f} min left"

    def _run_one(self, run: _Run) -> dict[str, Any]:
        entry, copy = self._workloads[run.workload], self._copies[run.copy]
        group = self._settings["groups"][entry["group"]]
        provider = load_provider(self._settings, group.get("subject", "cairn"))
        jvm = Jvm(heap=self._settings["heap"], shim_jar=copy.shim_jar, python=copy.python)
        record: dict[str, Any] = {
            "workload": run.workload,
            "provider": run.copy,
            "run": run.number,
            "sizes": run.sizes,
        }
        start = time.monotonic()
        try:
            record["numbers"] = measure(entry, provider, run.sizes, jvm)
        except RunFailedError as error:
            record["error"] = str(error)
            print(f"  {error}", file=sys.stderr, flush=True)
        else:
            shown = (f"{name} {record['numbers'][name]:,.2f}" for name in figures_of(entry))
            print("  " + "  ".join(shown), flush=True)
        record["duration_s"] = round(time.monotonic() - start, 1)
        return record


def figures_of(entry: dict[str, Any]) -> list[str]:
    """Return the numbers by which a workload is compared."""
    return list(entry.get("figures", ["rows_per_s"]))


@dataclass(frozen=True)
class Gain:
    """How many times better a number is with a mechanism than without it."""

    on: float
    off: float
    ratio: float
    by_round: tuple[float, ...]

    def __str__(self) -> str:
        """Return the ratio of the medians, and the lowest and the highest of a round."""
        return f"{self.ratio:.2f} ({min(self.by_round):.2f} to {max(self.by_round):.2f})"


def gain_of(outcome: dict[str, Any], mechanism: str, workload: str, number: str) -> Gain | None:
    """Return what a mechanism gains; ``None`` if no round has the number of both copies."""
    by_copy: dict[str, dict[int, float]] = {ON: {}, mechanism: {}}
    for run in outcome["runs"]:
        numbers = with_shares(run.get("numbers", {}), has_workers=True)
        if run["workload"] == workload and run["provider"] in by_copy and numbers.get(number):
            by_copy[run["provider"]][run["run"]] = numbers[number]
    rounds = sorted(by_copy[ON].keys() & by_copy[mechanism].keys())
    if not rounds:
        return None
    table = medians(outcome)[workload]
    on, off = table[ON][number], table[mechanism][number]
    pairs = [(by_copy[ON][one], by_copy[mechanism][one]) for one in rounds]
    ratios = tuple(_ratio(number, *pair) for pair in pairs)
    return Gain(on, off, _ratio(number, on, off), ratios)


def _ratio(number: str, on: float, off: float) -> float:
    return on / off if number.endswith("rows_per_s") else off / on


def tables(outcome: dict[str, Any], mechanisms: list[Mechanism]) -> str:
    """Return the tables in Markdown: of the mechanisms, and of each with each workload."""
    facts = ", ".join(f"{name} {value}" for name, value in outcome["machine"].items())
    lines = [
        f"Machine: {facts}.",
        "",
        "A gain above 1: better with the mechanism. It is the ratio of the medians; in brackets",
        "are the lowest and the highest ratio of a round.",
        "",
        "| mechanism | lines | most gained | what it is |",
        "|---|---:|---|---|",
    ]
    details = [
        "| mechanism | workload | with | without | gain | gain in CPU per row: worker | JVM |",
        "|---|---|---:|---:|---|---|---|",
    ]
    notes = []
    for one in mechanisms:
        best: tuple[float, str] = (0.0, "not measured")
        for workload in one.workloads:
            for number in figures_of(outcome["workloads"].get(workload, {})):
                gain = gain_of(outcome, one.name, workload, number)
                if not gain:
                    continue
                best = max(best, (gain.ratio, f"{gain} in {workload}"))
                cpu = [gain_of(outcome, one.name, workload, share) or "" for share in CPU]
                values = (as_text(number, value) for value in (gain.on, gain.off))
                cells = [f"{workload}, {number}", *values, gain, *cpu]
                details.append(f"| {one.name} | {' | '.join(map(str, cells))} |")
        lines.append(f"| {one.name} | {one.line_count():,} | {best[1]} | {one.what} |")
        if one.more_lines_of:
            notes.append(f"- {one.name}: {one.more_lines_of}")
    return "\n".join([*lines, "", *details, *(["", "Lines:", "", *notes] if notes else []), ""])


if __name__ == "__main__":
    raise SystemExit(main())
