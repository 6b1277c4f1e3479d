"""Record: what a command did to a checkpoint, kept in the checkpoint, with what it removed.

Layer: offline.  Spec: docs/checkpoint-format.md#records.

    cairn-log/<time>-<command>-<token>/record.json
    cairn-log/<time>-<command>-<token>/removed/<key>
    cairn-log/<time>-<command>-<token>/results/<part>.json      ; until all is done
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from cairn.clock import SYSTEM_CLOCK
from cairn.errors import DataError
from cairn.format.fields import as_list, as_object, parse_object
from cairn.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.clock import Clock
    from cairn.format.fields import JsonObject
    from cairn.storage.base import ObjectStore

FOLDER = "cairn-log"
_OBJECT_BYTES_MAX = 1 << 30
_NAME = "record.json"


class Record:
    """The record of one piece of work. It exists from its beginning; ``end`` completes it.

    Args:
        checkpoint: at the query's checkpoint location.
        command: of ``cairn``.
        token: of the hold.
        steps: what will be done, as JSON values.
        clock: tells the time.

    Attributes:
        folder: where it is, relative to the checkpoint.
    """

    def __init__(
        self,
        checkpoint: ObjectStore,
        command: str,
        token: str,
        steps: Sequence[Mapping[str, object]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._checkpoint = checkpoint
        self._clock = clock
        began = clock.now()
        self._fields: dict[str, object] = {
            "command": command,
            "release": RELEASE,
            "began": began.isoformat(timespec="seconds"),
            "ended": None,
            "steps": list(steps),
        }
        self.folder = f"{FOLDER}/{began:%Y%m%dT%H%M%SZ}-{command}-{token}"
        self._write()

    @property
    def command(self) -> object:
        """The command that has made it."""
        return self._fields.get("command")

    @property
    def name(self) -> str:
        """What names this piece of work, and no other one."""
        return self.folder.rpartition("/")[2]

    @property
    def steps(self) -> list[Mapping[str, object]]:
        """What was to be done."""
        return [as_object(one, "a step") for one in as_list(self._fields["steps"], "steps")]

    @property
    def results(self) -> str:
        """Folder for the results of parts of the work, until all is done."""
        return f"{self.folder}/results"

    @property
    def done(self) -> list[Mapping[str, object]]:
        """What was done; empty before the end."""
        return [
            as_object(one, "what was done") for one in as_list(self._fields.get("done", []), "done")
        ]

    @property
    def is_ended(self) -> bool:
        """Whether all was done."""
        return self._fields.get("ended") is not None

    def keep(self, key: str) -> None:
        """Keep a copy of an object that will be removed.

        Raises:
            MissingError: there is none.
        """
        data = self._checkpoint.get(key, max_bytes=_OBJECT_BYTES_MAX).data
        self._checkpoint.put(f"{self.folder}/removed/{key}", data)

    def end(self, done: Sequence[Mapping[str, object]]) -> None:
        """Note what was done; the results of parts are not needed any more."""
        self._fields["done"] = list(done)
        self._fields["ended"] = self._clock.now().isoformat(timespec="seconds")
        self._write()
        if results := [info.key for info in self._checkpoint.list(f"{self.results}/")]:
            self._checkpoint.delete(results)

    def _write(self) -> None:
        text = json.dumps(self._fields, indent=1, ensure_ascii=False)
        self._checkpoint.put(f"{self.folder}/{_NAME}", f"{text}\n".encode())


class FoundRecord(Record):
    """A record that an earlier process has begun.

    Args:
        checkpoint: at the query's checkpoint location.
        folder: where it is.
        fields: what it has.
        clock: tells the time.
    """

    def __init__(
        self, checkpoint: ObjectStore, folder: str, fields: JsonObject, clock: Clock
    ) -> None:
        self._checkpoint = checkpoint
        self._clock = clock
        self._fields = dict(fields)
        self.folder = folder


def find_records(checkpoint: ObjectStore, clock: Clock = SYSTEM_CLOCK) -> Iterator[FoundRecord]:
    """Yield the records of a checkpoint, oldest first; those that are damaged are left out."""
    for info in checkpoint.list(f"{FOLDER}/"):
        folder, _, name = info.key.rpartition("/")
        if name != _NAME or folder.count("/") != 1:
            continue
        with suppress(DataError):
            data = checkpoint.get(info.key, max_bytes=_OBJECT_BYTES_MAX).data
            fields = parse_object(data, "the record")
            for step in as_list(fields.get("steps"), "steps"):
                as_object(step, "a step")
            yield FoundRecord(checkpoint, folder, fields, clock)
