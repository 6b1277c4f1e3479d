r"""Hold: the entry of Spark's offset log that stands there while a command changes a checkpoint.

Layer: format (no I/O).  Spec: docs/checkpoint-format.md#hold.

    hold := text "\n" json "\n"

Spark takes neither for an entry of its own, and shows the text in its error.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from cairn.errors import CorruptError, FormatVersionError, InUseError
from cairn.format.fields import as_flag, as_int, as_text, dump_object, parse_object

FORMAT_VERSION = 1
_MAGIC = "CAIRN-HOLD"
_LINES = 2


@dataclass(frozen=True, slots=True)
class Hold:
    """Who changes a checkpoint.

    Attributes:
        command: of ``cairn``.
        host: the name of its machine.
        pid: the id of its process there.
        process: tells this process from a later one with the same id: ``boot/namespace/start``;
            empty if the machine does not say it.
        token: unique.
        since_ms: when it began, by the machine's clock.
        is_new: the command makes the checkpoint: what is there is not whole before its end, and
            only the same command may take the hold over.
        is_left: the process has given up, and may be alive: nothing is being changed.
    """

    command: str
    host: str
    pid: int
    process: str
    token: str
    since_ms: int
    is_new: bool = False
    is_left: bool = False

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")
        what = "makes" if self.is_new else "changes"
        return (
            f"`cairn {self.command}` {what} this checkpoint, in process {self.pid} on {self.host} "
            f"since {since}"
        )

    def error(self) -> InUseError:
        """Return the error of whoever meets it."""
        next_step = (
            "wait for its end. If it does not run any more, run it again there: it takes the hold "
            "over. If that does not help, delete the commit of the same number, if there is one, "
            "then this entry, and run it again"
        )
        if self.is_new:
            next_step += " before anything else; or delete the whole folder"
        return InUseError(str(self), next_step=next_step)


def encode(hold: Hold) -> bytes:
    """Return the entry's bytes."""
    text = f"{hold}: wait for its end, or run it again if it does not run any more"
    fields = {"magic": _MAGIC, "format": FORMAT_VERSION, **asdict(hold)}
    return f"{text}\n{dump_object(fields)}\n".encode()


def parse(data: bytes) -> Hold | None:
    """Return the hold; ``None`` if the bytes are none.

    Raises:
        FormatVersionError: a newer release has written it.
    """
    lines = data.split(b"\n")
    if len(lines) != _LINES + 1 or _MAGIC.encode() not in lines[1]:
        return None
    try:
        fields = parse_object(lines[1], "the hold")
        if as_int(fields.get("format"), "format") > FORMAT_VERSION:
            raise FormatVersionError(
                "a command of a newer release changes this checkpoint, or was killed",
                next_step="use that release",
            )
        return Hold(
            command=as_text(fields.get("command"), "command"),
            host=as_text(fields.get("host"), "host"),
            pid=as_int(fields.get("pid"), "pid"),
            process=as_text(fields.get("process"), "process"),
            token=as_text(fields.get("token"), "token"),
            since_ms=as_int(fields.get("since_ms"), "since_ms"),
            is_new=as_flag(fields.get("is_new", False), "is_new"),
            is_left=as_flag(fields.get("is_left", False), "is_left"),
        )
    except CorruptError:
        return None
