"""Runs the demo on a Spark cluster in containers and kills a worker in the middle.

Usage: docker_cluster.py [--files N] [--hold]    scripts/cluster.sh finds or starts the engine

Builds the images (docker_images.py), starts MinIO, a master and two workers (docker/compose.yaml),
says where Spark's UIs are, runs the demo's driver in a container, kills the container of a worker
when the driver asks for it, and takes everything down: also after an error, Ctrl-C or SIGTERM. The
exit code is the driver's: 0 if every query has the rows of its batch computation.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import subprocess
import sys
from types import FrameType
from typing import NoReturn

from docker_images import (
    DEMO_IMAGE,
    MINIO_IMAGE,
    ROOT,
    SPARK_IMAGE,
    ImageError,
    build_images,
    install_program,
)

COMPOSE_FILE = ROOT / "docker" / "compose.yaml"
SERVICES = ("minio", "master", "worker-1", "worker-2")
VICTIM = "worker-2"
# Printed by examples/flights/cluster.py.
KILL_REQUEST = "Kill a Spark worker now"


class ComposeCluster:
    """The services of the compose file under a project name of their own.

    Args:
        files: micro-batches per query of the demo.
    """

    def __init__(self, files: int) -> None:
        self.project = f"cairn-{secrets.token_hex(4)}"
        self.master_ui_port = _free_port(8080)
        self.driver_ui_port = _free_port(4040)
        self._compose = [*compose_command(), "-f", str(COMPOSE_FILE), "-p", self.project]
        self._environment = {
            **os.environ,
            "CAIRN_IMAGE": SPARK_IMAGE,
            "CAIRN_DEMO_IMAGE": DEMO_IMAGE,
            "CAIRN_MINIO_IMAGE": MINIO_IMAGE,
            "CAIRN_MINIO_USER": "cairn" + secrets.token_hex(4),
            "CAIRN_MINIO_PASSWORD": secrets.token_hex(16),
            "CAIRN_MASTER_UI_PORT": str(self.master_ui_port),
            "CAIRN_DRIVER_UI_PORT": str(self.driver_ui_port),
            "CAIRN_DEMO_FILES": str(files),
        }

    def up(self) -> None:
        """Start storage, master and workers; the driver waits until they answer.

        Raises:
            CalledProcessError: a container does not start.
        """
        self._run("up", "-d", *SERVICES)

    def run_demo(self) -> int:
        """Run the driver to its end, kill a worker when it asks for it; return its exit code."""
        command = [*self._compose, "run", "--rm", "--service-ports", "-T", "demo"]
        # In a session of its own: Ctrl-C ends this program, which then ends the containers.
        with subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as driver:
            try:
                for line in driver.stdout or ():
                    print(line, end="", flush=True)
                    if KILL_REQUEST in line:
                        print(f"docker kill {VICTIM}", flush=True)
                        self._run("kill", "-s", "SIGKILL", VICTIM)
                return driver.wait()
            except BaseException:
                driver.kill()
                raise

    def down(self) -> None:
        """Remove the containers, the network and the volumes of this project."""
        # The containers of `run` are orphans to compose; --remove-orphans needs the project only.
        self._run("down", "--volumes", "--remove-orphans", "--timeout", "2", check=False)

    def logs(self) -> None:
        """Print the end of the logs of all services."""
        self._run("logs", "--tail", "40", check=False)

    def _run(self, *arguments: str, check: bool = True) -> None:
        subprocess.run(
            [*self._compose, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            check=check,
            start_new_session=True,
        )


def compose_command() -> list[str]:
    """Return the command of Docker Compose on this machine: version 2, else version 1.

    Raises:
        ImageError: there is none, and it cannot be installed here.
    """
    plugin = ["docker", "compose"]
    if subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode == 0:
        return plugin
    install_program("docker-compose")
    return ["docker-compose"]


def _free_port(preferred: int) -> int:
    """Return the preferred port of loopback, or another one if it is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _stop(_signum: int, _frame: FrameType | None) -> NoReturn:
    # The shell, make and the terminal may each send one; nothing interrupts the end.
    _ignore_signals()
    raise KeyboardInterrupt


def run(files: int, *, is_held: bool) -> int:
    """Build, start, run, compare, and take everything down; return the exit code."""
    build_images()
    cluster = ComposeCluster(files)
    code = 1
    try:
        cluster.up()
        print(f"Spark's UI: http://127.0.0.1:{cluster.master_ui_port} (master and workers)")
        print(f"and, while the queries run: http://127.0.0.1:{cluster.driver_ui_port}", flush=True)
        code = cluster.run_demo()
        if code:
            cluster.logs()
        if is_held:
            print("The cluster stays up until Ctrl-C", flush=True)
            signal.pause()
    finally:
        _ignore_signals()
        print("Taking the cluster down", flush=True)
        cluster.down()
    return code


def main() -> None:
    """Read the command line, run, and end with one line of error."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--files", type=int, default=12, help="micro-batches per query (12)")
    parser.add_argument("--hold", action="store_true", help="stay up until Ctrl-C")
    args = parser.parse_args()
    # The shell that starts this in the background has told it to ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        code = run(args.files, is_held=args.hold)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ImageError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
    sys.exit(code)


if __name__ == "__main__":
    main()
