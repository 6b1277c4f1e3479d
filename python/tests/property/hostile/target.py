"""Target: reads one kind of input from outside, and says how it ended.

A target returns normally, or raises an error that its documentation promises. Everything else is a
fault: another exception, ``CAIRN_INTERNAL``, an exception in the log. ``fuzz`` sees crashes, hangs
and memory.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from served import RefusedError, Served

from cairn.errors import BusyError, CairnError
from cairn.protocol import frames

if TYPE_CHECKING:
    from random import Random

_VECTORS = Path(__file__).resolve().parents[4] / "spec" / "vectors"


class FaultError(Exception):
    """An input ended in a way that is not promised."""


def expect(error: Exception, *promised: type[Exception]) -> None:
    """Return if an error is promised and names what to do; raise a fault otherwise."""
    if not isinstance(error, promised) or isinstance(error, BusyError):
        kind = type(error).__name__
        message = f"{kind}: {error}"
        raise FaultError(message) from error
    if isinstance(error, CairnError) and not str(error).startswith(f"[{error.code}] "):
        raise FaultError(str(error))


def vectors(folder: str, suffix: str) -> list[bytes]:
    """Return the golden vectors of a kind."""
    found = sorted(
        path.read_bytes()
        for path in (_VECTORS / folder).glob(f"*{suffix}")
        if ".meaning" not in path.name
    )
    assert found
    return found


class Log(logging.Handler):
    """Keeps exceptions that the worker logs as unexpected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []
        logging.getLogger("cairn").addHandler(self)
        logging.getLogger("cairn").propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record."""
        self.records.append(record)

    def check(self) -> None:
        """Raise if something was logged since the last check."""
        records, self.records = self.records, []
        for record in records:
            text = logging.Formatter("%(message)s").format(record)
            raise FaultError(text)


class Target(ABC):
    """Reads one kind of input.

    Args:
        folder: an empty folder of its own.

    Attributes:
        name: of the target, for the command line.
        weight: share of all inputs.
    """

    name: ClassVar[str]
    weight: ClassVar[int] = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def run(self, random: Random) -> None:
        """Make an input and read it; raise if it ends otherwise than promised."""

    def close(self) -> None:  # noqa: B027 - most targets hold nothing
        """Release what the target holds."""


class WorkerTarget(Target):
    """A target with a worker in this process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = Log()
        self.served = Served(folder / "local", folder / "sockets")
        self.sessions = 1

    def close(self) -> None:
        """See ``Target``."""
        self.served.close()

    def commit_versions(self, instance: int = 1) -> str:
        """Commit versions 1 to 5, with two snapshots; return the id of the last one."""
        served, base = self.served, None
        for version in range(1, 6):
            session = (instance << 32) + 100 + version
            served.call(
                "load",
                instance=instance,
                session=session,
                version=version - 1,
                checkpoint_id=base,
            )
            writes = [(1, 0, b"k%d" % (key * version), b"v" * 9, 0) for key in range(40)]
            columns: list[Any] = list(zip(*writes, strict=True))
            batch = pa.record_batch(
                [
                    pa.array(column, field.type)
                    for column, field in zip(columns, frames.WRITES_SCHEMA, strict=True)
                ],
                schema=frames.WRITES_SCHEMA,
            )
            served.send(
                frames.WRITES, batch.serialize(), session=session, sequence=1, rows=batch.num_rows
            )
            reply = served.commit(
                session=session,
                rows=batch.num_rows,
                expected_rows=batch.num_rows,
                version=version,
                base_checkpoint_id=base,
            )
            base = reply["checkpoint_id"]
            if version in (2, 4):
                served.call("maintain", instance=instance, snapshot=True, cleanup=False)
        return str(base)

    def scan(self, session: int) -> bytes:
        """Return the rows of version 5, as the worker sends them.

        Raises:
            RefusedError: the worker answered with an error.
        """
        values: list[Any] = [0, None, 1, None, 1000, 1 << 20]
        columns = [
            pa.array([value], field.type)
            for value, field in zip(values, frames.SCAN_SCHEMA, strict=True)
        ]
        request = pa.record_batch(columns, schema=frames.SCAN_SCHEMA)
        self.served.send(frames.SCAN, request.serialize(), session=session, applied=5)
        header, payload = self.served.receive()
        if header.kind == frames.ERROR:
            raise RefusedError(json.loads(payload))
        return payload
