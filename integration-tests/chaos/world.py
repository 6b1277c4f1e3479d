"""What a chaos run starts: S3 behind two proxies, a Spark cluster, a small disk, a driver.

engines, Spark -> TcpProxy (HTTP requests) -> Toxiproxy (connections) -> MinIO
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from cairn.engine.directories import WorkerDirectories
from chaos.driver import HERE, Job
from harness.cluster import StandaloneCluster
from harness.event_log import event_log_conf
from harness.events import Events
from harness.minio import MinioProcess, find_minio_binary
from harness.processes import Process, descendants, engines_of
from harness.small_disk import small_disk
from harness.spark import (
    CAIRN_CONF,
    JVM_OPTIONS,
    STATE_STORE,
    class_path,
    driver_conf,
    s3a_conf,
)
from harness.tcp_proxy import TcpProxy
from harness.toxiproxy import Toxiproxy

BUCKET = "chaos"
WORKERS = 2
DISK_MIB = 64
# Small, so that the queries spill, evict and read through the engine.
CACHE_BYTES = 1024 * 1024
WORKER_BYTES = 64 * 1024 * 1024
RETAINED_BATCHES = 5
KEYS = 2_000
ROWS_PER_FILE = 800
LOG_TAIL = 4_000
_DRIVER_CLASS = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True)
class Failure:
    """A query that failed.

    Attributes:
        query: its name.
        text: of its error.
        at_s: when it ended, in seconds since 1970.
    """

    query: str
    text: str
    at_s: float


class ChaosDriver:
    """A driver process, its child the JVM.

    Args:
        folder: for specification, log and Spark's temporary files.
        job: what it runs.
    """

    def __init__(self, folder: Path, job: Job) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.job = job
        self._log = folder / "driver.log"
        path = folder / "job.json"
        path.write_text(json.dumps(asdict(job)))
        with self._log.open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, str(HERE / "driver.py"), str(path)],
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONUNBUFFERED": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def exit_code(self) -> int | None:
        """The exit code; ``None`` while it runs."""
        return self._child.poll()

    def jvm(self) -> Process | None:
        """Return the driver JVM, if it runs."""
        below = descendants(self._child.pid)
        return next((one for one in below if _DRIVER_CLASS in one.command), None)

    def engines(self) -> list[Process]:
        """Return its engine workers."""
        return engines_of(self._child.pid)

    def take_failures(self) -> list[Failure]:
        """Return the errors of its queries, each once."""
        found = []
        for name in self.job.operators:
            path = self.job.sink(name) / "error.txt"
            if path.exists():
                found.append(Failure(name, path.read_text(), path.stat().st_mtime))
                path.unlink()
        return found

    def end(self) -> None:
        """Kill its processes that still run, descendants first."""
        for process in reversed(descendants(self._child.pid)):
            process.kill()
        self._child.kill()
        self._child.wait()

    def batches(self) -> list[int]:
        """Return how many batches each query has given to its sink."""
        sinks = [self.job.sink(name) for name in self.job.operators]
        return [sum(1 for _ in sink.glob("*.json")) for sink in sinks]

    def tail(self) -> str:
        """Return the end of the log."""
        return self._log.read_text(errors="replace")[-LOG_TAIL:]


class World:
    """All of it, up between ``__enter__`` and ``__exit__``.

    Args:
        folder: an empty folder for data and logs.
        operators: names of the queries.
        files: micro-batches with data of each query.
        interval_s: time between two micro-batches of a query.
        seed: of the input.

    Attributes:
        event_log: folder of Spark's event logs, of all drivers.
        left: folders of workers that were there when all had ended, and one more had started.
    """

    def __init__(
        self, folder: Path, operators: list[str], files: int, interval_s: float, seed: int
    ) -> None:
        self.folder = folder
        self.files = files
        self.event_log = folder / "event-log"
        self.events = Events(folder / "input", seed, ROWS_PER_FILE, KEYS)
        self._operators = operators
        self._interval_s = interval_s
        self._stack = ExitStack()
        self._drivers = 0
        binary = find_minio_binary()
        if binary is None:
            raise FileNotFoundError("there is no MinIO binary: run `make minio`")
        (folder / "minio").mkdir()
        self.minio = MinioProcess(binary, folder=folder / "minio")
        self.left: list[str] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.events.add_files(0, self.files)
            self.event_log.mkdir()
            # Short: the path of a Unix socket below it must fit into 100 bytes.
            self.temporary = Path(tempfile.mkdtemp(prefix="cx-"))
            stack.callback(shutil.rmtree, self.temporary, ignore_errors=True)
            stack.enter_context(self.minio)
            self.client: Any = self.minio.client()
            self.client.create_bucket(Bucket=BUCKET)
            self.toxics = stack.enter_context(Toxiproxy(self.minio.endpoint_url, self.folder))
            self.proxy = stack.enter_context(TcpProxy(self.toxics.url))
            self.disk = stack.enter_context(small_disk(self.folder / "disk", DISK_MIB))
            stack.callback(self._note_left)
            self.cluster = stack.enter_context(
                StandaloneCluster(self.folder / "cluster", WORKERS, retries_executors=True)
            )
            self.job = self._job()
            self.driver = self.start_driver(self.job)
            stack.callback(self._end_driver)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end_driver(self) -> None:
        self.driver.end()  # the last one that was started

    def _note_left(self) -> None:
        """Note what workers have left that the next one does not remove; all have ended."""
        self.disk.free()
        one_more = WorkerDirectories(self.disk.path, self.temporary)
        one_more.remove()
        one_more.close()
        left = {*self.temporary.glob("cairn-*"), *self.disk.path.glob("cairn-worker-*")}
        # A killed executor leaves a folder to the next one, which only a job has.
        of_executors = sorted(self.temporary.glob("cairn-tws-*"))
        left -= set(of_executors[:WORKERS])
        self.left = sorted(path.name for path in left)

    @property
    def checkpoints(self) -> str:
        """The URL of the folder of all checkpoints."""
        return f"s3a://{BUCKET}/checkpoints"

    def s3_conf(self, endpoint_url: str) -> dict[str, str]:
        """Return the settings of `s3a` for the server behind an endpoint."""
        settings = {
            "endpoint_url": endpoint_url,
            "region": "us-east-1",
            "access_key": self.minio.access_key,
            "secret_key": self.minio.secret_key,
        }
        return s3a_conf(settings)

    def _job(self) -> Job:
        s3 = {f"spark.hadoop.{name}": value for name, value in self.s3_conf(self.proxy.url).items()}
        conf = {
            **driver_conf(self.temporary),
            **s3,
            **event_log_conf(self.event_log),
            "spark.master": self.cluster.url,
            "spark.driver.extraJavaOptions": f"{JVM_OPTIONS} -Djava.io.tmpdir={self.temporary}",
            "spark.executor.memory": "768m",
            "spark.executor.cores": "1",
            "spark.executor.extraClassPath": class_path(),
            "spark.executor.extraJavaOptions": f"{JVM_OPTIONS} -Djava.io.tmpdir={self.temporary}",
            "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
            "spark.task.maxFailures": "8",
            "spark.network.timeout": "60s",
            "spark.executor.heartbeatInterval": "4s",
            "spark.speculation": "true",
            "spark.speculation.interval": "500ms",
            # A stopped executor stands still for at least 2.7 s: its tasks must have twins by then.
            "spark.speculation.minTaskRuntime": "1s",
            "spark.speculation.multiplier": "1.5",
            "spark.speculation.quantile": "0.5",
            # Spark's own client of S3 asks again for about a minute.
            "spark.hadoop.fs.s3a.connection.establish.timeout": "5s",
            "spark.hadoop.fs.s3a.connection.timeout": "20s",
            "spark.sql.streaming.minBatchesToRetain": str(RETAINED_BATCHES),
            CAIRN_CONF + "cacheMemory": str(CACHE_BYTES),
            CAIRN_CONF + "workerMemory": str(WORKER_BYTES),
            CAIRN_CONF + "localDir": str(self.disk.path),
            STATE_STORE + "maintenanceInterval": "2s",
        }
        return Job(
            conf=conf,
            operators=self._operators,
            events=str(self.events.folder),
            checkpoints=self.checkpoints,
            out=str(self.folder / "sink"),
            begin_s=time.time(),
            interval_s=self._interval_s,
        )

    def start_driver(self, job: Job) -> ChaosDriver:
        """Start a driver; it does not become ``driver``."""
        self._drivers += 1
        return ChaosDriver(self.folder / f"driver-{self._drivers}", job)

    def second_job(self, number: int) -> Job:
        """Return the same job as a second driver runs it: on its own cores, with its own sinks."""
        conf = {**self.job.conf, "spark.master": "local[2,4]"}
        return replace(self.job, conf=conf, out=str(self.folder / f"second-{number}"))

    def executors(self) -> list[Process]:
        """Return the executor JVMs of all workers."""
        return [one for number in range(WORKERS) for one in self.cluster.executors(number)]

    def engines(self) -> list[Process]:
        """Return the engine workers of all executors."""
        return [
            one for number in range(WORKERS) for one in engines_of(self.cluster.worker(number).pid)
        ]
