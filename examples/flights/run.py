"""Five stateful queries on real flights: killed, resumed and compared with a batch computation.

1. writes the flights of 2013 as the input of file streams, in event order;
2. starts spark-submit (local mode, two task slots) with the five queries running concurrently;
3. kills the driver JVM by SIGKILL while they run;
4. starts it again on the same checkpoints and lets it finish;
5. compares the rows that each query wrote with a batch computation of the same rows.

Prints a table at the end. The exit code is not 0 if a row is missing, unexpected or late. However
it ends, it removes all processes and files that it created.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from checkpoints import (
    CheckpointStorage,
    HadoopCheckpoints,
    LocalCheckpoints,
    S3Checkpoints,
    count,
)
from inputs import write_flight_inputs
from queries import QUERIES
from result import QueryResult, human_bytes, show_table
from rich.console import Console
from settings import (
    PROVIDERS,
    STORAGES,
    base_settings,
    hdfs_settings,
    provider_settings,
    s3_settings,
    write_properties,
)
from spark_process import SparkProcess

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
LINE_EVERY_S = 4.0
POLL_S = 0.1
ALL_EQUAL = "Every sink has exactly the rows of its batch computation."
KILL_AT_SHARE = 0.4  # of all micro-batches: each query has run some then and has some left


class Demo:
    """One run of the demo, in its own folder."""

    def __init__(self, folder: Path, args: argparse.Namespace, console: Console) -> None:
        self.folder = folder
        self.provider: str = args.provider
        self.files: int = args.files
        self.kill: bool = args.kill
        self.console = console
        self.started_at = time.monotonic()
        self.results = {q.name: QueryResult(q.name, q.operator) for q in QUERIES}
        self.settings = {**base_settings(folder / "tmp"), **provider_settings(args.provider)}
        self.local_ip = "127.0.0.1"
        self.starts = 0

    @property
    def all_batches(self) -> int:
        """The micro-batches of all queries; the last file has the sentinel alone."""
        return len(QUERIES) * (self.files + 1)

    def print(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(f"[cyan]{time.monotonic() - self.started_at:6.1f} s[/cyan]  {text}")

    def start_spark(self, storage: CheckpointStorage) -> SparkProcess:
        """Start the driver; it resumes from the checkpoints if there are any."""
        self.starts += 1
        properties = self.folder / f"spark-{self.starts}.properties"
        write_properties(self.settings, properties)
        command = [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--properties-file", str(properties)),
            str(HERE / "job.py"),
            *("--inputs", str(self.folder / "inputs")),
            *("--sinks", str(self.folder / "sinks")),
            *("--checkpoints", storage.url),
            *("--events", str(self.folder / f"events-{self.starts}.jsonl")),
        ]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": self.local_ip,
            "TMPDIR": str(self.folder / "tmp"),
        }
        environment.pop("SPARK_HOME", None)  # use the pyspark of this Python
        (self.folder / "tmp").mkdir(exist_ok=True)
        return SparkProcess(
            command,
            environment,
            self.folder / f"spark-{self.starts}.log",
            self.folder / f"events-{self.starts}.jsonl",
        )

    def follow(self, spark: SparkProcess, *, until_batches: int | None) -> bool:
        """Process the driver's events until this many micro-batches are done, or it ends.

        Returns:
            True once the batches are done, False when the driver has ended without an error.

        Raises:
            RuntimeError: the driver failed.
        """
        next_line, printed = time.monotonic() + LINE_EVERY_S, 0
        while True:
            ended = spark.exit_code()  # read before the events, so that no event follows it
            self.process_events(spark)
            done = [result.batches for result in self.results.values()]
            if until_batches and sum(done) >= until_batches and min(done) > 1:
                return True
            if ended is not None:
                if ended:
                    tail = spark.log.read_text(errors="replace")[-4000:]
                    raise RuntimeError(f"the driver failed with {ended}:\n{tail}")
                return False
            if time.monotonic() >= next_line and sum(done) != printed:
                next_line, printed = time.monotonic() + LINE_EVERY_S, sum(done)
                self.print_progress()
            time.sleep(POLL_S)

    def process_events(self, spark: SparkProcess) -> None:
        """Add the application's new events to the results."""
        for event in spark.new_events():
            result = self.results[event["query"]]
            if event["event"] == "progress":
                result.add_progress(event["progress"])
                if self.starts > 1 and result.recovery_s is None:
                    result.recovery_s = event["at"] - spark.started_at
            elif event["event"] == "failed":
                raise RuntimeError(f"query {result.name} failed: {event['message']}")
            elif event["event"] == "compared":
                result.comparison = event
                self.print(f"{result.name}: compared {event['sink_rows']:,} rows")

    def print_progress(self) -> None:
        """Print the number of micro-batches of each query."""
        parts = [f"{r.name} {r.batches}" for r in self.results.values()]
        rows = sum(r.rows for r in self.results.values())
        if rows:
            self.print(f"micro-batches: {', '.join(parts)}; {rows:,} rows")

    def run(self, storage: CheckpointStorage) -> None:
        """Run the job to its end, with a kill and a restart unless that is disabled."""
        self.print("Starting Spark")
        if self.kill:
            self.run_until_killed(storage)
            self.print("Starting Spark again on the same checkpoints")
        with self.running_spark(storage) as spark:
            self.follow(spark, until_batches=None)
        self.count_objects(storage)

    @contextmanager
    def running_spark(self, storage: CheckpointStorage) -> Iterator[SparkProcess]:
        """Start the driver, and end it.

        Raises:
            RuntimeError: processes of it were still alive 10 s after its end.
        """
        spark = self.start_spark(storage)
        try:
            yield spark
        finally:
            left = spark.end()
        if left:
            raise RuntimeError(f"processes {left} were still alive 10 s after the driver's end")

    def count_objects(self, storage: CheckpointStorage) -> None:
        """Set the results' ``checkpoint``."""
        for result in self.results.values():
            result.checkpoint = count(storage, result.name)

    def run_until_killed(self, storage: CheckpointStorage) -> None:
        """Run until every query has some micro-batches done and some left, then kill the driver."""
        with self.running_spark(storage) as spark:
            if not self.follow(spark, until_batches=int(self.all_batches * KILL_AT_SHARE)):
                raise RuntimeError("the driver finished before it could be killed")
            spark.kill()
            self.print(f"[bold red]kill -9 {spark.pid}[/bold red]: the driver JVM is dead")
        self.process_events(spark)
        counts = [count(storage, query.name) for query in QUERIES]
        cut = sum(one.batches_planned > one.batches_committed for one in counts)
        done = sum(one.batches_committed for one in counts)
        self.print(f"{done} micro-batches committed, {cut} of {len(counts)} queries cut in one")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--provider", choices=PROVIDERS, default=PROVIDERS[0])
    parser.add_argument(
        "--storage", choices=STORAGES, default=STORAGES[0], help="of the checkpoints"
    )
    parser.add_argument("--files", type=int, help="micro-batches per query (default 20, on S3 12)")
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="do not kill Spark")
    parser.add_argument("--data", type=Path, default=REPOSITORY / ".build" / "flights")
    parser.add_argument("--keep", type=Path, help="work in this new folder and do not remove it")
    args = parser.parse_args()
    # On S3, Spark's own metadata takes most of a second per micro-batch under every state store.
    args.files = args.files or (12 if args.storage == "minio" else 20)
    return args


def stop_on_sigterm(_signum: int, _frame: FrameType | None) -> NoReturn:
    """End as after Ctrl-C, so that everything is cleaned up."""
    raise KeyboardInterrupt


def run_demo(args: argparse.Namespace, stack: ExitStack, console: Console) -> int:
    """Run the demo; ``stack`` ends what it starts."""
    if args.keep:
        args.keep.mkdir(parents=True)
        folder = args.keep.resolve()
    else:
        # Short: the path of a Unix socket below it must fit in 100 bytes.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cairn-demo-")))
    demo = Demo(folder, args, console)
    storage: CheckpointStorage = LocalCheckpoints(folder / "checkpoints")
    # The servers of the tests.
    sys.path.insert(0, str(REPOSITORY / "integration-tests"))
    server = None
    if args.storage == "minio":
        from harness.minio import MinioProcess  # noqa: PLC0415 - needed here alone

        server = MinioProcess(REPOSITORY / ".build" / "tools" / "minio", folder=folder)
        client = stack.enter_context(server).client()
        client.create_bucket(Bucket="demo")
        storage = S3Checkpoints(client, "demo", "checkpoints")
        demo.settings |= s3_settings(
            server.endpoint_url,
            server.access_key,
            server.secret_key,
            REPOSITORY / ".build" / "s3a-jars",
        )
    elif args.storage == "hdfs":
        from harness.hdfs import MiniHdfs, hadoop_server  # noqa: PLC0415 - needed here alone

        (folder / "hdfs").mkdir()
        hdfs = stack.enter_context(MiniHdfs(folder / "hdfs"))
        files = stack.enter_context(hadoop_server(hdfs.url))
        storage = HadoopCheckpoints(f"{hdfs.url}/checkpoints", files)
        demo.settings |= hdfs_settings()
    demo.print(f"State store: {args.provider}; checkpoints: {storage.url}")
    write_flight_inputs(args.data, folder / "inputs", files=args.files)
    demo.print(f"336,776 flights of 2013 written to {args.files} files in event order")
    demo.run(storage)

    if server:
        counts = sorted(server.request_counts().items(), key=lambda item: -item[1])
        requests = ", ".join(f"{name} {number:,}" for name, number in counts)
        console.print(f"S3 requests of the whole run, with those of Spark itself: {requests}")
    return show_outcome(demo, f"checkpoints on {args.storage}")


def show_outcome(demo: Demo, where: str) -> int:
    """Print the table of a finished demo and its faults; return the exit code."""
    results, console = list(demo.results.values()), demo.console
    console.print()
    show_table(results, f"State store: {demo.provider}, {where}", console)
    written = sum(one.checkpoint.state_bytes for one in results if one.checkpoint)
    seconds = time.monotonic() - demo.started_at
    console.print(f"{human_bytes(written)} of state objects; the whole run took {seconds:.0f} s.")
    faults = [fault for result in results for fault in result.faults()]
    for fault in faults:
        console.print(f"[red]{fault}[/red]")
    if not faults:
        console.print(f"[green]{ALL_EQUAL}[/green]")
    return 1 if faults else 0


def run_and_exit(run: Callable[[ExitStack, Console], int]) -> NoReturn:
    """Run a demo, then clean up however the run ends; ``ExitStack`` ends what it started."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    signal.signal(signal.SIGTERM, stop_on_sigterm)
    code = 1
    with ExitStack() as stack:
        try:
            code = run(stack, console)
        except KeyboardInterrupt:
            console.print("[yellow]Stopped; all started processes have ended.[/yellow]")
            code = 130
        except RuntimeError as error:
            console.print("[red]error:[/red]", end=" ")
            console.print(str(error), markup=False)
    sys.exit(code)


if __name__ == "__main__":
    run_and_exit(partial(run_demo, parse_arguments()))
