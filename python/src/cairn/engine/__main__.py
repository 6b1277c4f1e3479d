"""The main program of a worker: reads one JSON line, answers one, then serves until its input ends.

Layer: engine.  Spec: docs/protocol.md#control-calls.

Standard input ends when the executor ends, however it died. (The kernel's parent-death signal is
not used: it fires when the *thread* that spawned this process ends, and that is a Spark task.)
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import platform
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from cairn.engine import control
from cairn.engine.directories import WorkerDirectories
from cairn.engine.resources import WorkerLimits
from cairn.engine.worker import Worker
from cairn.errors import CairnError, InternalError, ProtocolError, open_files_error
from cairn.memory import give_back_buffers
from cairn.protocol.calls import StartAnswer, StartRequest, start_answer
from cairn.release import RELEASE

if TYPE_CHECKING:
    from cairn.protocol.calls import Json

_SWITCH_INTERVAL_S = 0.0005
_M_ARENA_MAX = -8
_MAX_KEPT_BYTES = 64 << 20
# Young objects before a collection, and collections before one of the next generation. Requests
# leave no cycles, so few collections are enough.
_COLLECT_AT = (50_000, 20, 50)
_LOG = logging.getLogger("cairn.engine")


class _WithoutPandas:
    """Makes ``import pandas`` fail.

    pyarrow imports it, where it is installed, to recognise its types: 0.3 s of CPU and 40 MB at the
    first commit, for nothing.
    """

    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        """See ``importlib.abc.MetaPathFinder``."""
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def _configure_process() -> None:
    sys.meta_path.insert(0, _WithoutPandas())
    # A reply waits this long for a busy thread. Python's default is 5 ms.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # Each arena keeps memory that its threads freed. Two are enough: one thread handles the rows.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the driver, which ends this process
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )


def _keep_freed_buffers(memory_bytes: int) -> None:
    """Let the C library keep a part of the worker's memory that was freed, for the next buffers.

    The system clears each page of memory that it gives out: a tenth of the CPU per written row if
    the frames of a session and the columns of a run got new pages each time.

    Args:
        memory_bytes: the worker's share of ``workerMemory``.
    """
    kept = min(memory_bytes // 4, _MAX_KEPT_BYTES)
    give_back_buffers(kept // 8, kept)


def _take_output() -> BinaryIO:
    """Return standard output, for the answer; what else is printed from now on goes to the log."""
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


def _answer(output: BinaryIO, message: Json) -> None:
    with output:
        output.write(start_answer(message))


def _versions() -> dict[str, str]:
    import importlib.metadata as packages  # noqa: PLC0415 - a tenth of the start time, once

    return {
        "cairn": RELEASE,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "rocksdict": packages.version("rocksdict"),
    }


def _start(request: StartRequest) -> tuple[WorkerDirectories, int]:
    _keep_freed_buffers(request.memory_bytes)
    directories = WorkerDirectories(
        Path(request.local_dir), Path(request.socket_dir), keeps_cache=request.keeps_cache
    )
    limits = WorkerLimits(request.memory_bytes, request.local_disk_bytes)
    worker = Worker(directories, limits, token=request.token.encode())
    worker.start()
    _, port = control.serve(control.ControlEntry(worker.call, worker.activity), request.token)
    # Modules, classes and functions live as long as the process. A full collection that visits
    # them stops all threads for 28 ms.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AT)
    return directories, port


def main() -> None:
    """Serve until standard input ends or SIGTERM arrives; then remove the worker's directories."""
    _configure_process()
    output = _take_output()
    line = sys.stdin.readline()
    if not line:
        return
    try:
        directories, port = _start(StartRequest.from_json(json.loads(line)))
    except CairnError as failure:
        _answer(output, {"error": failure.to_dict()})
        sys.exit(1)
    except (KeyError, TypeError, ValueError) as failure:
        error = ProtocolError(f"the start line is malformed: {type(failure).__name__}")
        _answer(output, {"error": error.to_dict()})
        sys.exit(1)
    except Exception as failure:  # noqa: BLE001 - the shim must receive it
        _LOG.exception("the worker could not start")
        short = open_files_error(failure)
        reason = short or InternalError(f"the worker could not start: {failure}")
        _answer(output, {"error": reason.to_dict()})
        sys.exit(1)

    def end(*_: object) -> None:
        directories.remove()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    answer = StartAnswer(port, str(directories.socket_path), os.getpid(), _versions())
    _answer(output, answer.to_json())
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    end()


if __name__ == "__main__":
    main()
