"""The five queries of run.py on a standalone Spark cluster that loses a worker in the middle.

1. writes the flights of 2013 as the input of file streams, into a folder that all machines share;
2. starts spark-submit with the five queries running concurrently on the cluster;
3. asks for the kill of a Spark worker while they run, by a line that begins with KILL_REQUEST, and
   waits until the master has lost it;
4. lets the queries finish on the workers that are left;
5. compares the rows that each query wrote with a batch computation of the same rows.

Whoever starts this program reads its output and kills the worker (`make cluster`). S3's credentials
are in MINIO_ROOT_USER and MINIO_ROOT_PASSWORD. The exit code is not 0 if a row is missing,
unexpected or late, or if no worker was lost while the queries ran.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from checkpoints import CheckpointStorage, S3Checkpoints
from inputs import write_flight_inputs
from rich.console import Console
from run import KILL_AT_SHARE, Demo, run_and_exit, show_outcome
from settings import cluster_settings, provider_settings, s3_settings
from spark_process import SparkProcess

KILL_REQUEST = "Kill a Spark worker now"
BUCKET = "demo"
WORKERS = 2
CLUSTER_UP_S = 90.0
WORKER_LOST_S = 120.0
POLL_S = 0.5


class Master:
    """The master of a standalone cluster, as its UI shows it."""

    def __init__(self, ui: str) -> None:
        self._ui = ui

    def workers(self) -> list[dict[str, Any]]:
        """Return the workers that are alive; none while the master does not answer."""
        try:
            with urllib.request.urlopen(f"{self._ui}/json/", timeout=5) as answer:  # noqa: S310
                state = json.load(answer)
        except (urllib.error.URLError, OSError):
            return []
        return [one for one in state["workers"] if one["state"] == "ALIVE"]

    def wait_for(self, workers: int) -> None:
        """Wait until this number of workers is alive.

        Raises:
            RuntimeError: they are not within 90 s.
        """
        deadline = time.monotonic() + CLUSTER_UP_S
        while len(self.workers()) < workers:
            if time.monotonic() > deadline:
                alive = len(self.workers())
                raise RuntimeError(f"{alive} of {workers} Spark workers are alive at {self._ui}")
            time.sleep(POLL_S)


class ClusterDemo(Demo):
    """One run of the demo's driver on a cluster."""

    def __init__(self, folder: Path, args: argparse.Namespace, console: Console) -> None:
        super().__init__(folder, args, console)
        self.master = Master(args.master_ui)
        self.settings |= provider_settings(args.provider, args.master)
        self.settings |= cluster_settings(args.master, args.driver_host)
        self.local_ip = socket.gethostbyname(args.driver_host)

    def run(self, storage: CheckpointStorage) -> None:
        """Run the job to its end; a worker is lost in the middle.

        Raises:
            RuntimeError: the driver failed, or no worker was lost while the queries ran.
        """
        self.master.wait_for(WORKERS)
        self.print(f"Starting the driver on {WORKERS} Spark workers")
        with self.running_spark(storage) as spark:
            if not self.follow(spark, until_batches=int(self.all_batches * KILL_AT_SHARE)):
                raise RuntimeError("the queries finished before a worker could be killed")
            self.lose_worker(spark)
            self.follow(spark, until_batches=None)
        self.count_objects(storage)

    def lose_worker(self, spark: SparkProcess) -> None:
        """Ask for the kill, and wait until the master has lost a worker."""
        idle = [one["host"] for one in self.master.workers() if not one["coresused"]]
        if idle:
            raise RuntimeError(f"no executor runs on {idle}: to kill one would show nothing")
        self.print(f"{KILL_REQUEST}: {self.batches} of {self.all_batches} micro-batches are done")
        deadline = time.monotonic() + WORKER_LOST_S
        while len(self.master.workers()) == WORKERS:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no worker was killed within {WORKER_LOST_S:.0f} s")
            self.process_events(spark)
            time.sleep(POLL_S)
        self.process_events(spark)
        # A query may have further batches without data.
        if min(result.batches for result in self.results.values()) > self.files:
            raise RuntimeError("the queries had finished before the worker was lost")
        alive = ", ".join(one["host"] for one in self.master.workers())
        self.print(f"[bold red]A Spark worker is lost[/bold red]; left: {alive}")

    @property
    def batches(self) -> int:
        """The micro-batches that are done, of all queries."""
        return sum(result.batches for result in self.results.values())


def run_demo(args: argparse.Namespace, _: ExitStack, console: Console) -> int:
    """Run the demo in an empty folder."""
    folder = args.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    access_key, secret_key = (os.environ[f"MINIO_ROOT_{name}"] for name in ("USER", "PASSWORD"))
    client = boto3.client(
        "s3",
        endpoint_url=args.s3_endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
        # MinIO may still be starting.
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 10}),
    )
    demo = ClusterDemo(folder, args, console)
    demo.settings |= s3_settings(args.s3_endpoint, access_key, secret_key, args.s3a_jars)
    client.create_bucket(Bucket=BUCKET)
    storage = S3Checkpoints(client, BUCKET, folder.name)
    demo.print(f"State store: {args.provider}; checkpoints: {storage.url}")
    write_flight_inputs(args.data, folder / "inputs", files=args.files)
    demo.print(f"336,776 flights of 2013 written to {args.files} files in event order")
    demo.run(storage)
    return show_outcome(demo, "a cluster that lost a worker")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--master", required=True, help="spark://host:port")
    parser.add_argument("--master-ui", required=True, help="http://host:port")
    parser.add_argument("--driver-host", required=True, help="this machine, for the executors")
    parser.add_argument("--s3-endpoint", required=True, help="http://host:port")
    parser.add_argument("--s3a-jars", type=Path, help="default: they are among Spark's own jars")
    parser.add_argument(
        "--folder", type=Path, required=True, help="replaced; the machines share it"
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder of flights.csv")
    parser.add_argument("--files", type=int, default=12, help="micro-batches per query")
    parser.set_defaults(provider="cairn", kill=True)
    return parser.parse_args()


if __name__ == "__main__":
    run_and_exit(partial(run_demo, parse_arguments()))
