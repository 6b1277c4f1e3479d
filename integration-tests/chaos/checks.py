"""What must hold after a chaos run: rows, state, objects, memory, and nothing left behind."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.leftovers import Leftovers
from chaos.world import RETAINED_BATCHES, WORKER_BYTES, World
from harness.differential import Run
from harness.operators import BY_NAME
from harness.spark import SUBJECT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.driver import Job
    from harness.processes import Process

CONTROL_LIMIT_S = 3_600
# What a worker has before its first batch, with an S3 client (docs/configuration.md).
BASE_BYTES = 128 * 1024 * 1024
EXAMPLES = 3
RETAIN = {"spark.sql.streaming.minBatchesToRetain": str(RETAINED_BATCHES)}


class Memory:
    """The largest resident memory of an engine worker."""

    def __init__(self) -> None:
        self.largest_bytes = 0
        self.samples = 0

    def sample(self, engines: Iterable[Process]) -> None:
        """Measure all workers."""
        for engine in engines:
            with suppress(OSError, ValueError, IndexError):
                status = Path(f"/proc/{engine.pid}/status").read_text()
                kib = int(status.partition("VmRSS:")[2].split()[0])
                self.largest_bytes = max(self.largest_bytes, kib * 1024)
                self.samples += 1

    def findings(self) -> list[str]:
        """Compare with the bound."""
        print(f"largest worker: {self.largest_bytes >> 20} MiB, of {self.samples} samples")
        limit = BASE_BYTES + WORKER_BYTES
        if not self.samples:
            return ["no worker was measured"]
        if self.largest_bytes > limit:
            return [f"a worker had {self.largest_bytes >> 20} MiB, over {limit >> 20} MiB"]
        return []


def of_results(world: World, second_jobs: list[Job]) -> list[str]:
    """Compare rows and state with those of Spark's own provider; return the differences."""
    findings: list[str] = []
    for name in world.job.operators:
        control = _control(world, name)
        expected = control.record.rows
        findings += _row_findings(name, expected, _sink(world.job.sink(name)), is_whole=True)
        for job in second_jobs:
            who = f"{name} in a second driver"
            findings += _row_findings(who, expected, _sink(job.sink(name)), is_whole=False)
        findings += _state_findings(world, control)
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
        leftovers = Leftovers(world.job.checkpoint(name), settings, RETAINED_BATCHES)
        findings += leftovers.findings()
        print(f"swept {name}: {leftovers.deleted} objects of {leftovers.stores} stores")
    return findings


def _control(world: World, name: str) -> Run:
    operator = BY_NAME[name]
    checkpoint = str(world.folder / "control" / name)
    control = Run(operator, world.events, checkpoint, operator.control, conf=RETAIN)
    query = control.start()
    if not query.awaitTermination(CONTROL_LIMIT_S):
        query.stop()
        raise TimeoutError(f"{name} under {operator.control} did not end")
    return control


def _sink(folder: Path) -> dict[int, list[str]]:
    return {int(path.stem): json.loads(path.read_text()) for path in folder.glob("*.json")}


def _row_findings(
    who: str, expected: dict[int, list[str]], rows: dict[int, list[str]], *, is_whole: bool
) -> list[str]:
    wrong = [batch for batch, of_batch in rows.items() if expected.get(batch) != of_batch]
    absent = sorted(expected.keys() - rows.keys()) if is_whole else []
    found = [f"{who}: {len(wrong)} batches have other rows: {sorted(wrong)[:9]}"] if wrong else []
    return found + ([f"{who}: batches {absent[:9]} are missing"] if absent else [])


def _state_findings(world: World, control: Run) -> list[str]:
    """Read every retained batch of the state under both providers."""
    subject = Run(
        control.operator,
        world.events,
        world.job.checkpoint(control.operator.name),
        SUBJECT,
        2,
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
