"""A standalone Spark cluster on loopback: a master and workers, each with its own folders.

Each worker has its own address, 127.0.0.1, 127.0.0.2 and so on: Spark starts a speculative task on
another host only.

pyspark's `spark-class` starts them, because the package has no start scripts; they are ended by
process id.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Self

import pyspark

from harness.processes import (
    Process,
    command_of,
    descendants,
    end_child,
    free_port,
    wait_until,
    wait_until_ended,
)
from harness.spark import JVM_OPTIONS, class_path

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_REGISTERED = re.compile(r"Registering worker ")


class StandaloneCluster:
    """A running cluster, up between ``__enter__`` and ``__exit__``.

    Args:
        folder: for logs, work and local directories.
        workers: number of workers, each with one core.
        memory: the memory of each worker for executors.
        retries_executors: whether executors that end are started again without a limit.

    Attributes:
        url: the value of `spark.master`.
        ui: the URL of the master's UI.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        memory: str = "1g",
        *,
        retries_executors: bool = False,
    ) -> None:
        self._folder = folder
        self._count = workers
        self._memory = memory
        self._retries_executors = retries_executors
        self._port = free_port()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ui_port = free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self.ui = f"http://127.0.0.1:{self._ui_port}"

    def __enter__(self) -> Self:
        try:
            self._start("master", self._master_command(), "127.0.0.1")
            log = self._log("master")
            wait_until(
                lambda: "New state: ALIVE" in log.read_text(errors="replace"),
                START_TIMEOUT_S,
                "the master",
                lambda: log.read_text(errors="replace"),
            )
            for number in range(self._count):
                self._start(f"worker-{number}", self._worker_command(number), _host(number))
            wait_until(
                lambda: len(_REGISTERED.findall(log.read_text(errors="replace"))) >= self._count,
                START_TIMEOUT_S,
                "the workers",
                lambda: log.read_text(errors="replace"),
            )
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def executor_conf(self) -> dict[str, str]:
        """Return the settings of an application whose executors have one core each."""
        return {
            "spark.master": self.url,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraClassPath": class_path(),
            "spark.executor.extraJavaOptions": JVM_OPTIONS,
            "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
        }

    def worker(self, number: int) -> Process:
        """Return a worker daemon; its executors are its descendants."""
        pid = self._children[f"worker-{number}"].pid
        return Process(pid, command_of(pid) or "")

    def executors(self, number: int) -> list[Process]:
        """Return the executor JVMs of a worker."""
        found = descendants(self.worker(number).pid)
        return [p for p in found if "CoarseGrainedExecutorBackend" in p.command]

    def _start(self, name: str, command: list[str], host: str) -> None:
        home = self._folder / name
        (home / "local").mkdir(parents=True)
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(home / "local"),
            "SPARK_WORKER_DIR": str(home / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
            **self._retries,
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log(name).open("wb") as output:
            self._children[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def _retries(self) -> dict[str, str]:
        if not self._retries_executors:
            return {}
        return {"SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1"}

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _master_command(self) -> list[str]:
        ports = ["--port", str(self._port), "--webui-port", str(self._ui_port)]
        return [
            _spark_class(),
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            *ports,
        ]

    def _worker_command(self, number: int) -> list[str]:
        options = ["--host", _host(number), "--cores", "1", "--memory", self._memory]
        options += ["--webui-port", str(free_port())]
        options += ["--work-dir", str(self._folder / f"worker-{number}" / "work")]
        return [_spark_class(), "org.apache.spark.deploy.worker.Worker", *options, self.url]

    def _stop(self) -> None:
        # Workers first: the executors of a worker that is not terminated stay alive.
        for name in sorted(self._children, reverse=True):
            child = self._children[name]
            below = descendants(child.pid)
            end_child(child, STOP_TIMEOUT_S)
            # Engines remove their folders before they end.
            for process in wait_until_ended(below, STOP_TIMEOUT_S):
                process.kill()


def _host(worker: int) -> str:
    return f"127.0.0.{worker + 1}"


def _spark_class() -> str:
    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")
