"""A server on loopback that stands in for a cloud's storage, for one of Hadoop's file systems."""

from __future__ import annotations

import subprocess
import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.processes import end_child, free_port, server_environment, wait_until_serving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOP_TIMEOUT_S = 10.0


class Emulator(ABC):
    """The server between ``__enter__`` and ``__exit__``; its data goes with it.

    Attributes:
        url: of a container or bucket, without a slash at the end.
        conf: Hadoop's settings for it.
    """

    program: Path
    made_by: str
    """The command that installs ``program``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.conf: dict[str, str] = {}
        self._stack = ExitStack()

    @abstractmethod
    def _command(self, port: int) -> Sequence[str]:
        """Return the arguments of the program, which runs in an empty folder."""

    @abstractmethod
    def _prepare(self, port: int) -> Mapping[str, str]:
        """Make the container, if need be; return Hadoop's settings."""

    def _environment(self) -> Mapping[str, str]:
        """Return variables of the program, beside those of all servers."""
        return {}

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            RuntimeError, TimeoutError: it is not installed, or did not start; the message has its
                log.
        """
        if not self.program.exists():
            raise RuntimeError(f"{self.program} is missing: run `{self.made_by}`")
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix=f"cairn-{self.program.name}-")
            folder, port = Path(stack.enter_context(temporary)), free_port()
            log = folder / "log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [str(self.program), *self._command(port)],
                    cwd=folder,
                    env={**server_environment(), **self._environment()},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            stack.callback(end_child, process, STOP_TIMEOUT_S)
            wait_until_serving(process, f"http://127.0.0.1:{port}/", self.program.name, log)
            self.conf = dict(self._prepare(port))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End it and remove its data."""
        self._stack.close()
