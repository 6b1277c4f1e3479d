"""The demo on a cluster that loses a worker: in containers by `make cluster`, else on loopback.

Tests of `make test-all`. Containers are used where a Docker engine answers. Elsewhere the same
driver runs on the standalone cluster of the harness with the MinIO binary. The header of the tests
says which.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from harness.cluster import StandaloneCluster
from harness.docker_engine import engine_answers
from harness.s3 import s3_by_binary
from harness.spark import REPOSITORY, S3A_JARS

pytestmark = [pytest.mark.usefixtures("nothing_survives"), pytest.mark.slow]

FILES = 3
MEMORY = "1200m"
# The image is built first, and Spark's jars alone are 450 MB.
TIMEOUT_S = 900
DRIVER = REPOSITORY / "examples" / "flights" / "cluster.py"
KILL_REQUEST = "Kill a Spark worker now"
WORKER_LOST = "A Spark worker is lost"
ALL_EQUAL = "Every sink has exactly the rows of its batch computation."


def test_the_demo_on_a_cluster_that_loses_a_worker_has_the_rows_of_the_batch_job(
    tmp_path: Path,
) -> None:
    """The five operators on S3, on machines of their own, one of which dies in the middle."""
    code, output = in_containers() if engine_answers() else on_loopback(tmp_path)

    assert code == 0, output
    assert output.index(KILL_REQUEST) < output.index(WORKER_LOST) < output.index(ALL_EQUAL)


def test_an_interrupted_cluster_leaves_nothing(tmp_path: Path) -> None:
    """A cluster that stays up keeps ports, memory and disk of whoever tried it."""
    if engine_answers():
        with make_cluster() as process:
            seen = read_until(process, "Starting the driver on")
            os.killpg(process.pid, signal.SIGINT)
            seen += process.communicate(timeout=TIMEOUT_S)[0]
        assert process.returncode != 0
        assert "Taking the cluster down" in seen
        assert compose_leftovers() == []
    else:
        with loopback(tmp_path) as (_, process):
            read_until(process, "Starting the driver on")
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130


def in_containers() -> tuple[int, str]:
    """Run `make cluster`; return its exit code and output."""
    with make_cluster() as process:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert compose_leftovers() == []
    assert "Spark's UI: http://127.0.0.1:" in output
    return process.returncode, output


@contextmanager
def make_cluster() -> Iterator[subprocess.Popen[str]]:
    """Start `make cluster` in a process group of its own, as a terminal does."""
    command = ["make", "-C", str(REPOSITORY), "cluster", f"ARGS=--files {FILES}"]
    with subprocess.Popen(
        [*command, f"PYTHON={sys.executable}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        except BaseException:
            # It takes the cluster down.
            os.killpg(process.pid, signal.SIGTERM)
            raise


def compose_leftovers() -> list[str]:
    """List the containers, networks and volumes of projects that `make cluster` names."""
    client = docker.from_env()
    try:
        everything = [
            *((one.name, one.labels) for one in client.containers.list(all=True)),
            *((one.name, one.attrs["Labels"]) for one in client.networks.list()),
            *((one.name, one.attrs["Labels"]) for one in client.volumes.list()),
        ]
    finally:
        client.close()
    label = "com.docker.compose.project"
    return [str(name) for name, labels in everything if "cairn-" in (labels or {}).get(label, "")]


def on_loopback(folder: Path) -> tuple[int, str]:
    """Run the driver on the harness's cluster and kill a worker; return exit code and output."""
    with loopback(folder) as (cluster, process):
        output = read_until(process, KILL_REQUEST)
        for victim in (cluster.worker(1), *cluster.executors(1)):
            victim.kill()
        output += process.communicate(timeout=TIMEOUT_S)[0]
    return process.returncode, output


@contextmanager
def loopback(folder: Path) -> Iterator[tuple[StandaloneCluster, subprocess.Popen[str]]]:
    """Start a cluster of processes, MinIO, and the driver."""
    with s3_by_binary() as s3, StandaloneCluster(folder / "cluster", memory=MEMORY) as cluster:
        command = [sys.executable, str(DRIVER), "--driver-host", "127.0.0.1"]
        command += ["--master", cluster.url, "--master-ui", cluster.ui]
        command += ["--s3-endpoint", s3.endpoint_url, "--s3a-jars", str(S3A_JARS)]
        command += ["--data", str(REPOSITORY / ".build" / "flights"), "--files", str(FILES)]
        environment = {"MINIO_ROOT_USER": s3.access_key, "MINIO_ROOT_PASSWORD": s3.secret_key}
        with subprocess.Popen(
            [*command, "--folder", str(folder / "demo")],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield cluster, process
            except BaseException:
                process.terminate()
                raise


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read the output up to the line that has a text; fail if it ends before."""
    assert process.stdout is not None
    lines = ""
    for line in process.stdout:
        lines += line
        if text in line:
            return lines
    pytest.fail(f"the output ended before {text!r}:\n{lines}")
