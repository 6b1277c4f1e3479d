"""What must hold after a chaos run: rows, state, objects, memory, and nothing left behind."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from chaos.driver import SinkBatch, checkpoint_format
from chaos.leftovers import Leftovers
from chaos.world import RETAINED_BATCHES, WORKER_BYTES, World
from harness.differential import Run
from harness.operators import BY_NAME
from harness.spark import SUBJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from chaos.driver import Job
    from harness.events import Events
    from harness.processes import Process

CONTROL_LIMIT_S = 3_600
# What a worker has before its first batch, with an S3 client (docs/configuration.md).
BASE_BYTES = 128 * 1024 * 1024
# A worker is compared with itself if it lived so long: then it has had about twenty batches.
LONG_LIFE_S = 120.0
# It loads its stores, and fills its caches, before the early samples.
WARM_UP_S = 30.0
# Half of its memory for blocks and writes, which may become full late. Twenty batches of a leak of
# two megabytes are more.
GROWTH_BYTES = WORKER_BYTES // 2
EXAMPLES = 3
RETAIN = {"spark.sql.streaming.minBatchesToRetain": str(RETAINED_BATCHES)}


class Memory:
    """The resident memory of the engine workers: its largest value, and its growth.

    Args:
        now: the time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._samples: dict[int, list[tuple[float, int]]] = {}

    def sample(self, engines: Iterable[Process]) -> None:
        """Measure all workers."""
        for engine in engines:
            with suppress(OSError, ValueError, IndexError):
                status = Path(f"/proc/{engine.pid}/status").read_text()
                kib = int(status.partition("VmRSS:")[2].split()[0])
                self.add(engine.pid, kib * 1024)

    def add(self, pid: int, size_bytes: int) -> None:
        """Note what a worker has now."""
        self._samples.setdefault(pid, []).append((self._now(), size_bytes))

    def findings(self) -> list[str]:
        """Compare the largest worker with the bound, and each that lived long with itself."""
        sizes = [size for samples in self._samples.values() for _, size in samples]
        if not sizes:
            return ["no worker was measured"]
        largest, limit = max(sizes), BASE_BYTES + WORKER_BYTES
        print(f"largest worker: {largest >> 20} MiB, of {len(sizes)} samples")
        findings = []
        if largest > limit:
            findings.append(f"a worker had {largest >> 20} MiB, over {limit >> 20} MiB")
        for pid, (early, late) in sorted(self._long_lived().items()):
            print(f"worker {pid}: {early >> 20} MiB early, {late >> 20} MiB late")
            if late > early + GROWTH_BYTES:
                findings.append(f"worker {pid} grew from {early >> 20} to {late >> 20} MiB")
        return findings

    def not_tested(self) -> list[str]:
        """Return why there was nothing to compare."""
        if self._long_lived():
            return []
        how = "repeat with --only s3_slow s3_error"
        return [f"no worker lived for {LONG_LIFE_S:.0f} s, so none could grow: {how}"]

    def _long_lived(self) -> dict[int, tuple[int, int]]:
        """Return the median of the early and of the late samples, of each that lived long."""
        found = {}
        for pid, samples in self._samples.items():
            first, last = samples[0][0], samples[-1][0]
            if last - first >= LONG_LIFE_S:
                warm = first + WARM_UP_S
                third = (last - warm) / 3
                early = [size for at, size in samples if warm <= at <= warm + third]
                late = [size for at, size in samples if at >= last - third]
                if early:
                    found[pid] = int(median(early)), int(median(late))
        return found


def of_results(world: World, second_jobs: list[Job]) -> list[str]:
    """Compare rows and state with those of Spark's own provider; return the differences."""
    findings: list[str] = []
    names = world.job.operators
    sinks = {name: _sink(world.job.sink(name)) for name in names}
    second_sinks = {name: [_sink(job.sink(name)) for job in second_jobs] for name in names}
    batches = {name: all_batches(sinks[name], second_sinks[name]) for name in names}
    with ThreadPoolExecutor(len(names)) as pool:
        controls = list(pool.map(lambda name: _control(world, name, batches[name]), names))
    for name, control in zip(names, controls, strict=True):
        expected = control.record.rows
        of_rows = _row_findings(name, expected, batches[name], is_whole=True)
        for sink in second_sinks[name]:
            who = f"{name} in a second driver"
            findings += _row_findings(who, expected, sink, is_whole=False)
        findings += of_rows or _state_findings(world, control)
        print(f"compared {name}: {len(expected)} batches")
    return findings


def of_objects(world: World) -> list[str]:
    """Delete what the checkpoints no longer need; return what is left, or was deleted, wrongly."""
    settings = {
        "endpoint_url": world.minio.endpoint_url,
        "access_key": world.minio.access_key,
        "secret_key": world.minio.secret_key,
        "region": "us-east-1",
        "path_style": "true",
    }
    findings = []
    for name in world.job.operators:
        url, form = world.job.checkpoint(name), checkpoint_format(name)
        leftovers = Leftovers(url, settings, RETAINED_BATCHES, form)
        findings += leftovers.findings()
        print(f"swept {name}: {leftovers.deleted} objects of {leftovers.stores} stores")
    return findings


def all_batches(
    sink: dict[int, SinkBatch], second_sinks: Iterable[dict[int, SinkBatch]]
) -> dict[int, SinkBatch]:
    """Return the batches of a query: those that only a second driver has written, too.

    If that driver commits a batch, the first one goes on after it.
    """
    result: dict[int, SinkBatch] = {}
    for one in (*second_sinks, sink):
        result |= one
    return result


def _control(world: World, name: str, batches: dict[int, SinkBatch]) -> Run:
    """Run a query on the same batches without Cairn and without faults."""
    operator = BY_NAME[name]
    folder = world.folder / "control" / name
    files = [batches[batch].files for batch in sorted(batches)]
    events = input_by_batch(world.events, files, folder)
    checkpoint = str(folder / "checkpoint")
    control = Run(operator, events, checkpoint, operator.control, conf=RETAIN)
    query = control.start()
    if not query.awaitTermination(CONTROL_LIMIT_S):
        query.stop()
        raise TimeoutError(f"{name} under {operator.control} did not end")
    return control


def input_by_batch(events: Events, files: list[dict[str, int]], folder: Path) -> Events:
    """Write the input again, with one file per batch and side; return it.

    Args:
        events: the input.
        files: for each batch, how many files of each side were read up to its end.
        folder: for the new input.
    """
    joined = replace(events, folder=folder / "input")
    for side in ("left", "right"):
        Path(joined.side(side)).mkdir(parents=True, exist_ok=True)
    first = dict.fromkeys(files[0], 0)
    for number, ends in enumerate(files):
        for side, end in ends.items():
            joined.join_files(events, side, range(first[side], end), number)
        first = ends
    return joined


def _sink(folder: Path) -> dict[int, SinkBatch]:
    paths = folder.glob("*.json")
    return {int(path.stem): SinkBatch(**json.loads(path.read_text())) for path in paths}


def _row_findings(
    who: str, expected: dict[int, list[str]], sink: dict[int, SinkBatch], *, is_whole: bool
) -> list[str]:
    wrong = [batch for batch, of_batch in sink.items() if expected.get(batch) != of_batch.rows]
    absent = sorted(expected.keys() - sink.keys()) if is_whole else []
    found = [f"{who}: {len(wrong)} batches have other rows: {sorted(wrong)[:9]}"] if wrong else []
    return found + ([f"{who}: batches {absent[:9]} are missing"] if absent else [])


def _state_findings(world: World, control: Run) -> list[str]:
    """Read every retained batch of the state under both providers."""
    subject = Run(
        control.operator,
        world.events,
        world.job.checkpoint(control.operator.name),
        SUBJECT,
        checkpoint_format(control.operator.name),
        {**world.s3_conf(world.minio.endpoint_url), **control.conf},
    )
    last = control.record.last_batch
    findings = []
    for view in control.operator.views:
        for batch in range(max(0, last - RETAINED_BATCHES + 1), last + 1):
            expected = control.state(view, batchId=batch)
            present = subject.state(view, batchId=batch)
            if present != expected:
                less = sorted(set(expected) - set(present))[:EXAMPLES]
                more = sorted(set(present) - set(expected))[:EXAMPLES]
                where = f"{control.operator.name}, {view}, batch {batch}"
                findings.append(f"{where}: state lacks {less} and has {more}")
    return findings
