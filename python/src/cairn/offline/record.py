"""Record: what a command did to a checkpoint, kept in the checkpoint, with what it removed.

Layer: offline.  Spec: docs/checkpoint-format.md#records.

    cairn-log/<time>-<command>-<token>/record.json
    cairn-log/<time>-<command>-<token>/removed/<key>
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cairn.clock import SYSTEM_CLOCK
from cairn.release import RELEASE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cairn.clock import Clock
    from cairn.storage.base import ObjectStore

FOLDER = "cairn-log"
_OBJECT_BYTES_MAX = 1 << 30


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

    def keep(self, key: str) -> None:
        """Keep a copy of an object that will be removed.

        Raises:
            MissingError: there is none.
        """
        data = self._checkpoint.get(key, max_bytes=_OBJECT_BYTES_MAX).data
        self._checkpoint.put(f"{self.folder}/removed/{key}", data)

    def end(self, done: Sequence[Mapping[str, object]]) -> None:
        """Note what was done."""
        self._fields["done"] = list(done)
        self._fields["ended"] = self._clock.now().isoformat(timespec="seconds")
        self._write()

    def _write(self) -> None:
        text = json.dumps(self._fields, indent=1, ensure_ascii=False)
        self._checkpoint.put(f"{self.folder}/record.json", f"{text}\n".encode())
