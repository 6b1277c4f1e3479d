"""A worker's life: one JSON line in, one out, then it serves until its standard input ends.

Layer: engine.  Spec: docs/architecture.md#control-calls.

The end of standard input is the end of the executor, however it died. (The kernel's parent-death
signal is not used: it fires when the *thread* that spawned us ends, and that is a Spark task.)
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import platform
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import cairn
from cairn.engine import control
from cairn.engine.directories import WorkerDirectories
from cairn.engine.worker import Worker, WorkerLimits
from cairn.errors import CairnError, InternalError, ProtocolError
from cairn.protocol import frames

_SWITCH_INTERVAL_S = 0.0005
_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD_BYTES = 256 * 1024
_LOG = logging.getLogger("cairn.engine")


def _settle_process() -> None:
    # A reply under a busy thread waits this long: 5 ms by default.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # Arenas a thread keep what they freed: two are enough for a process whose rows have one owner.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
        # Fixed: glibc raises it with each large buffer freed, and then keeps their memory.
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the driver, and that ends us
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _versions() -> dict[str, str]:
    import importlib.metadata as packages  # noqa: PLC0415 - a tenth of the start time, once

    return {
        "cairn": getattr(cairn, "__version__", "unknown"),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "rocksdict": packages.version("rocksdict"),
    }


def _start(asked: dict[str, Any]) -> tuple[Worker, WorkerDirectories, int]:
    if asked["protocol"] != frames.PROTOCOL:
        raise ProtocolError(
            f"the shim speaks protocol {asked['protocol']}, this engine {frames.PROTOCOL}",
            next_step="install the shim jar and the Python package of one release",
        )
    directories = WorkerDirectories(Path(asked["local_dir"]), Path(asked["socket_dir"]))
    limits = WorkerLimits(
        memory_bytes=int(asked["memory_bytes"]),
        local_disk_bytes=int(asked["local_disk_bytes"]),
        download_threads=int(asked["download_threads"]),
        upload_threads=int(asked["upload_threads"]),
    )
    worker = Worker(directories, limits, token=asked["token"].encode())
    worker.start()
    _, port = control.serve(control.ControlEntry(worker.find_method), asked["token"])
    return worker, directories, port


def main() -> None:
    """Serve until standard input ends or SIGTERM comes; then remove what is on the local disk."""
    _settle_process()
    directories: WorkerDirectories | None = None
    line = sys.stdin.readline()
    if not line:
        return
    try:
        _, directories, port = _start(json.loads(line))
    except CairnError as failure:
        _say({"error": failure.to_dict()})
        sys.exit(1)
    except (KeyError, TypeError, ValueError) as failure:
        error = ProtocolError(f"the start line is not understood: {type(failure).__name__}")
        _say({"error": error.to_dict()})
        sys.exit(1)
    except Exception as failure:  # noqa: BLE001 - told to the shim, which has no other way to know
        _LOG.exception("the worker could not start")
        _say({"error": InternalError(f"the worker could not start: {failure}").to_dict()})
        sys.exit(1)

    def end(*_: object) -> None:
        directories.remove()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    _say(
        {
            "port": port,
            "socket": str(directories.socket_path),
            "pid": os.getpid(),
            "versions": _versions(),
        }
    )
    # Nobody reads our standard output any more: what prints there goes to the executor's log.
    os.dup2(2, 1)
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    end()


if __name__ == "__main__":
    main()
