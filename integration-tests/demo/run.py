"""The main job, end to end: five stateful queries on real flights, killed, resumed, compared.

1. lays the flights of 2013 out as a file stream in event order;
2. starts spark-submit (local mode, two task slots) with the five queries beside each other;
3. kills the driver JVM with SIGKILL in the middle of their work;
4. starts it again on the same checkpoints and lets it finish;
5. compares what each query wrote with a batch computation of the same rows.

Ends with a table, and with an exit code other than 0 if any row is missing, unexpected or late.
Leaves nothing behind, however it ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integration-tests"))

from rich.console import Console

from demo.checkpoints import CheckpointStorage, LocalCheckpoints, MinioCheckpoints, count
from demo.result import QueryResult, human_bytes, show_table
from demo.settings import (
    PROVIDERS,
    base_settings,
    provider_settings,
    s3_settings,
    write_properties,
)
from demo.spark_process import SparkProcess
from harness.flights import write_flight_inputs
from harness.minio import MinioProcess
from harness.queries import QUERIES

LINE_EVERY_S = 4.0
POLL_S = 0.1
KILL_AT_SHARE = 0.4  # of all micro-batches: each query then has some behind it and some before it


class Demo:
    """One run of the demo, in a folder of its own."""

    def __init__(self, folder: Path, args: argparse.Namespace, console: Console) -> None:
        self.folder = folder
        self.provider: str = args.provider
        self.files: int = args.files
        self.kill: bool = args.kill
        self.console = console
        self.started_at = time.monotonic()
        self.results = {q.name: QueryResult(q.name, q.operator) for q in QUERIES}
        self.settings = {**base_settings(folder / "tmp"), **provider_settings(args.provider)}
        self.lives = 0

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(f"[cyan]{time.monotonic() - self.started_at:6.1f} s[/cyan]  {text}")

    def start_spark(self, storage: CheckpointStorage) -> SparkProcess:
        """Start the driver on the checkpoints, new or left behind."""
        self.lives += 1
        properties = self.folder / f"spark-{self.lives}.properties"
        write_properties(self.settings, properties)
        command = [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--properties-file", str(properties)),
            str(ROOT / "integration-tests" / "demo" / "job.py"),
            *("--inputs", str(self.folder / "inputs")),
            *("--sinks", str(self.folder / "sinks")),
            *("--checkpoints", storage.url),
            *("--events", str(self.folder / f"events-{self.lives}.jsonl")),
        ]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self.folder / "tmp"),
        }
        environment.pop("SPARK_HOME", None)  # the pyspark beside this Python, no other
        return SparkProcess(
            command,
            environment,
            self.folder / f"spark-{self.lives}.log",
            self.folder / f"events-{self.lives}.jsonl",
        )

    def follow(self, spark: SparkProcess, *, until_batches: int | None) -> bool:
        """Take the driver's events until so many micro-batches are done, or it ends.

        Returns:
            True once the batches are done, False when the driver ended by itself, in good order.

        Raises:
            RuntimeError: the driver failed.
        """
        next_line, said = time.monotonic() + LINE_EVERY_S, 0
        while True:
            ended = spark.exit_code()  # before the events: none comes after it
            self.take_events(spark)
            done = [result.batches for result in self.results.values()]
            if until_batches and sum(done) >= until_batches and min(done) > 1:
                return True
            if ended is not None:
                if ended:
                    tail = spark.log.read_text(errors="replace")[-4000:]
                    raise RuntimeError(f"the driver failed with {ended}:\n{tail}")
                return False
            if time.monotonic() >= next_line and sum(done) != said:
                next_line, said = time.monotonic() + LINE_EVERY_S, sum(done)
                self.say_progress()
            time.sleep(POLL_S)

    def take_events(self, spark: SparkProcess) -> None:
        """Add what the application told to the results."""
        for event in spark.new_events():
            result = self.results[event["query"]]
            if event["event"] == "progress":
                result.take_progress(event["progress"])
                if self.lives > 1 and result.recovery_s is None:
                    result.recovery_s = event["at"] - spark.started_at
            elif event["event"] == "failed":
                raise RuntimeError(f"query {result.name} failed: {event['message']}")
            elif event["event"] == "compared":
                result.comparison = event
                self.say(f"{result.name}: compared {event['sink_rows']:,} rows")

    def say_progress(self) -> None:
        """Print how far each query is."""
        parts = [f"{r.name} {r.batches}" for r in self.results.values()]
        rows = sum(r.rows for r in self.results.values())
        if rows:
            self.say(f"micro-batches: {', '.join(parts)}; {rows:,} rows")

    def run(self, storage: CheckpointStorage) -> None:
        """Run all lives of the job."""
        if self.kill:
            self.say("Starting Spark, first life")
            self.first_life(storage)
            self.say("Starting Spark again on the same checkpoints")
        else:
            self.say("Starting Spark")
        spark = self.start_spark(storage)
        try:
            self.follow(spark, until_batches=None)
        finally:
            left = spark.end()
        if left:
            raise RuntimeError(f"processes {left} were still alive after the driver had ended")
        for result in self.results.values():
            result.checkpoint = count(storage, result.name)

    def first_life(self, storage: CheckpointStorage) -> None:
        """Run until every query is in the middle, then kill the driver."""
        batches = int(len(QUERIES) * (self.files + 1) * KILL_AT_SHARE)
        spark = self.start_spark(storage)
        try:
            if not self.follow(spark, until_batches=batches):
                raise RuntimeError("the driver finished before it could be killed")
            spark.kill()
            self.say(f"[bold red]kill -9 {spark.pid}[/bold red]: the driver JVM is dead")
        finally:
            left = spark.end()
        if left:
            raise RuntimeError(f"processes {left} outlived the killed driver by 10 s")
        self.take_events(spark)
        counts = [count(storage, query.name) for query in QUERIES]
        cut = sum(one.batches_planned > one.batches_committed for one in counts)
        done = sum(one.batches_committed for one in counts)
        self.say(f"{done} micro-batches committed, {cut} of {len(counts)} queries cut in one")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--provider", choices=PROVIDERS, default=PROVIDERS[0])
    parser.add_argument("--s3", choices=["minio"], help="where checkpoints lie; default: local")
    parser.add_argument("--files", type=int, help="micro-batches a query; 20, on S3 12")
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="one life only")
    parser.add_argument("--data", type=Path, default=ROOT / ".build" / "flights")
    parser.add_argument("--keep", type=Path, help="work in this new folder and leave it there")
    args = parser.parse_args()
    # Spark's own metadata costs most of a second a micro-batch on S3, whichever the state store.
    args.files = args.files or (12 if args.s3 else 20)
    return args


def stop_on_sigterm(_signum: int, _frame: FrameType | None) -> NoReturn:
    """End like a Ctrl-C, so that all is cleaned up."""
    raise KeyboardInterrupt


def run_demo(args: argparse.Namespace, stack: ExitStack, console: Console) -> int:
    """Run the demo; what it starts is ended by ``stack``."""
    if args.keep:
        args.keep.mkdir(parents=True)
        folder = args.keep.resolve()
    else:
        # Short: a Unix socket's path under it has to fit in 100 bytes.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cairn-demo-")))
    (folder / "tmp").mkdir()
    demo = Demo(folder, args, console)
    storage: CheckpointStorage = LocalCheckpoints(folder / "checkpoints")
    server = None
    if args.s3:
        binary = ROOT / ".build" / "tools" / "minio"
        server = stack.enter_context(MinioProcess(binary, folder=folder))
        server.client().create_bucket(Bucket="demo")
        storage = MinioCheckpoints(server, "demo", "checkpoints")
        demo.settings |= s3_settings(server, ROOT / ".build" / "s3a-jars")
    demo.say(f"State store: {args.provider}; checkpoints: {storage.url}")
    write_flight_inputs(args.data, folder / "inputs", files=args.files)
    demo.say(f"336,776 flights of 2013 laid out in {args.files} files in event order")
    demo.run(storage)

    results = list(demo.results.values())
    console.print()
    where = args.s3 or "disk"
    show_table(results, f"State store: {args.provider}, checkpoints on {where}", console)
    if server:
        counts = sorted(server.request_counts().items(), key=lambda item: -item[1])
        requests = ", ".join(f"{name} {number:,}" for name, number in counts)
        console.print(f"S3 requests of the whole run, Spark's own among them: {requests}")
    written = sum(one.checkpoint.state_bytes for one in results if one.checkpoint)
    seconds = time.monotonic() - demo.started_at
    console.print(f"{human_bytes(written)} of state objects; the whole run took {seconds:.0f} s.")
    faults = [fault for result in results for fault in result.faults()]
    for fault in faults:
        console.print(f"[red]{fault}[/red]")
    if not faults:
        console.print("[green]Every sink holds exactly the rows of its batch computation.[/green]")
    return 1 if faults else 0


def main() -> None:
    """Run, and clean up however the run ends."""
    args = parse_arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    signal.signal(signal.SIGTERM, stop_on_sigterm)
    code = 1
    with ExitStack() as stack:
        try:
            code = run_demo(args, stack, console)
        except KeyboardInterrupt:
            console.print("[yellow]Stopped; all that was started is ended.[/yellow]")
            code = 130
        except RuntimeError as error:
            console.print("[red]error:[/red]", end=" ")
            console.print(str(error), markup=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
