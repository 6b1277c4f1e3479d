"""The faults of a chaos run: each kind is a method of `Faults`, which begins it.

A method returns what it hit, and how that is undone; ``None``: there was nothing to hit.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from chaos.ways import copy_key, is_avoidable, split_key
from chaos.world import BUCKET, ChaosDriver, World
from harness.tcp_proxy import Fault as HttpFault

if TYPE_CHECKING:
    from chaos.schedule import Fault
    from harness.processes import Process

SLOW_MS = 400
MANY = 1_000
STATE_FOLDERS = ("/changelog", "/snapshot", "/sst")
NEWEST = 4
# The kinds that damage an object.
DAMAGING = ("flip_bit", "cut_object", "delete_object")
# So long an error may be on its way after its object was restored: a load tries other ways while S3
# is away, then the executor stands still, and then the driver does.
LATE_ERROR_S = 90.0
_BODY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>slow down</Message></Error>"
_SLOW_DOWN = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


@dataclass(frozen=True)
class Hit:
    """What a fault hit, in words, how it is undone, and whether it had an effect by then."""

    target: str
    undo: Callable[[], None] = lambda: None
    was_applied: Callable[[], bool] = lambda: True


@dataclass
class Damage:
    """A damaged object: its bytes before, and the tag of what is there now; ``None``: nothing."""

    key: str
    original: bytes
    etag: str | None


@dataclass
class Faults:
    """Begins faults in a world.

    Attributes:
        damages: objects that are damaged now, by key.
        damaged: all objects that were ever damaged, with the time in seconds since 1970 at which
            they were restored; infinite: not yet.
        seconds: the second drivers, in their order.
    """

    world: World
    damages: dict[str, Damage] = field(default_factory=dict)
    damaged: dict[str, float] = field(default_factory=dict)
    seconds: list[ChaosDriver] = field(default_factory=list)

    def begin(self, fault: Fault) -> Hit | None:
        """Begin a fault."""
        method: Callable[[Fault], Hit | None] = getattr(self, fault.kind)
        return method(fault)

    # -- processes ---------------------------------------------------------------------------------

    def kill_engine(self, fault: Fault) -> Hit | None:
        """Kill one engine worker."""
        return _kill(fault, self.world.engines())

    def stop_engine(self, fault: Fault) -> Hit | None:
        """Stop one engine worker for some seconds: it holds its locks and answers nothing."""
        return _stop(fault, self.world.engines())

    def kill_executor(self, fault: Fault) -> Hit | None:
        """Kill one executor."""
        return _kill(fault, self.world.executors())

    def stop_executor(self, fault: Fault) -> Hit | None:
        """Stop one executor: its tasks get twins, and end after them."""
        return _stop(fault, self.world.executors())

    def kill_driver(self, fault: Fault) -> Hit | None:
        """Kill the driver JVM."""
        jvm = self.world.driver.jvm()
        return _kill(fault, [jvm] if jvm else [])

    def stop_driver(self, fault: Fault) -> Hit | None:
        """Stop the driver JVM."""
        jvm = self.world.driver.jvm()
        return _stop(fault, [jvm] if jvm else [])

    def second_driver(self, fault: Fault) -> Hit | None:
        """Start the same queries once more, on the same checkpoints."""
        if self.seconds and self.seconds[-1].exit_code is None:
            return None
        job = self.world.second_job(fault.number)
        second = self.world.start_driver(job)
        self.seconds.append(second)
        return Hit("all checkpoints", second.end)

    # -- storage -----------------------------------------------------------------------------------

    def s3_error(self, fault: Fault) -> Hit | None:
        """Answer some requests with 503."""
        method = fault.choose((b"PUT ", b"GET ", b"POST ", b"HEAD "))
        return self._http(fault, HttpFault(method, times=MANY, answer=_SLOW_DOWN))

    def s3_lost_answer(self, fault: Fault) -> Hit | None:
        """Execute some requests, and close their connections without an answer."""
        method = fault.choose((b"PUT ", b"GET ", b"POST "))
        return self._http(fault, HttpFault(method, times=MANY, drops_answer=True))

    def s3_cut_answer(self, fault: Fault) -> Hit | None:
        """Send only the first bytes of some answers."""
        size = 100 + int(fault.choice * 4_000)
        cut = HttpFault(b"GET ", times=MANY, cuts_answer_after_bytes=size)
        return self._http(fault, cut)

    def _http(self, fault: Fault, http: HttpFault) -> Hit | None:
        # A longer fault hits more requests; after its time it hits none.
        http.times = 1 + int(fault.lasts_s * 10)
        self.world.proxy.add(http)

        def undo() -> None:
            http.times = 0

        target = f"{http.starts_with.decode().strip()} x{http.times}"
        return Hit(target, undo, lambda: http.applied > 0)

    def s3_slow(self, fault: Fault) -> Hit | None:
        """Delay every answer."""
        return self._toxic(fault, "latency", latency=SLOW_MS, jitter=SLOW_MS // 2)

    def s3_reset(self, fault: Fault) -> Hit | None:
        """Reset every connection that is used."""
        return self._toxic(fault, "reset_peer", timeout=50)

    def _toxic(self, fault: Fault, kind: str, **attributes: int) -> Hit | None:
        name, toxics = f"fault-{fault.number}", self.world.toxics
        toxics.add_toxic(name, kind, **attributes)
        return Hit("all connections", lambda: toxics.remove_toxic(name))

    def s3_away(self, _: Fault) -> Hit | None:
        """Refuse all connections."""
        toxics = self.world.toxics
        toxics.set_enabled(is_enabled=False)
        return Hit("the bucket", lambda: toxics.set_enabled(is_enabled=True))

    def full_disk(self, _: Fault) -> Hit | None:
        """Fill the disk of the engines."""
        disk = self.world.disk
        if not disk.is_small:
            return None
        disk.fill()
        return Hit("the local directory", disk.free)

    # -- objects -----------------------------------------------------------------------------------

    def flip_bit(self, fault: Fault) -> Hit | None:
        """Change one bit of an object of the state."""

        def flip(data: bytes) -> bytes:
            at = int(fault.choice * 1e9) % len(data)
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

        return self._damage(fault, flip)

    def cut_object(self, fault: Fault) -> Hit | None:
        """Shorten an object of the state."""
        return self._damage(fault, lambda data: data[: int(len(data) * fault.choice)])

    def delete_object(self, fault: Fault) -> Hit | None:
        """Delete an object of the state."""
        return self._damage(fault, None)

    def _damage(self, fault: Fault, change: Callable[[bytes], bytes] | None) -> Hit | None:
        client = self.world.client
        stores = self._newest_objects()
        if not stores:
            return None
        newest = fault.choose(stores)
        key = newest[int(fault.choice * 1e6) % len(newest)]
        with suppress(client.exceptions.NoSuchKey):  # retention has deleted it
            original = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            if change is None or not original:
                client.delete_object(Bucket=BUCKET, Key=key)
                etag = None
            else:
                etag = client.put_object(Bucket=BUCKET, Key=key, Body=change(original))["ETag"]
            self.note_damage(Damage(key, original, etag))
            # What has no local copy any more is read.
            for engine in self.world.engines():
                engine.kill()
            return Hit(key, lambda: self.restore(key))
        return None

    def note_damage(self, damage: Damage) -> None:
        """Remember an object that was just damaged."""
        self.damages[damage.key] = damage
        self.damaged[damage.key] = math.inf

    def restore(self, key: str) -> None:
        """Give a damaged object its bytes back, unless it was replaced or deleted. Idempotent.

        In format 1 an attempt that finds no object creates its own. It would have kept a copy of
        the deleted one, which lineages may name: then that copy is what is given back.
        """
        damage = self.damages.pop(key, None)
        if damage is None:
            return
        client = self.world.client
        present = None
        with suppress(client.exceptions.ClientError):
            present = client.head_object(Bucket=BUCKET, Key=key)["ETag"]
        if present == damage.etag:
            client.put_object(Bucket=BUCKET, Key=key, Body=damage.original)
        elif damage.etag is None and (copy := copy_key(key, damage.original)) is not None:
            client.put_object(Bucket=BUCKET, Key=copy, Body=damage.original)
        self.damaged[key] = time.time()

    def damaged_before(self, at_s: float) -> set[str]:
        """Return what was damaged when the cause of an error happened, and may explain it.

        Args:
            at_s: when the query ended, in seconds since 1970.
        """
        return {key for key, end_s in self.damaged.items() if at_s <= end_s + LATE_ERROR_S}

    def is_avoidable(self, key: str, damaged: set[str]) -> bool:
        """Return whether a load had to go around a damaged manifest or SST.

        Args:
            key: of the object.
            damaged: the keys of all objects that were damaged then.
        """
        root, name = split_key(key)
        client, prefix = self.world.client, f"{root}/"
        pages: Any = client.get_paginator("list_objects_v2")
        present = {
            item["Key"].removeprefix(prefix)
            for page in pages.paginate(Bucket=BUCKET, Prefix=prefix)
            for item in page.get("Contents", [])
        }

        def read(name: str) -> bytes:
            data: bytes = client.get_object(Bucket=BUCKET, Key=prefix + name)["Body"].read()
            return data

        names = {one.removeprefix(prefix) for one in damaged if one.startswith(prefix)}
        try:
            return is_avoidable(name, present, names, read)
        except client.exceptions.NoSuchKey:  # retention has just deleted it
            return False

    def _newest_objects(self) -> list[list[str]]:
        """List the newest objects of each store: the next load needs most of them."""
        pages: Any = self.world.client.get_paginator("list_objects_v2")
        stores: dict[str, list[tuple[datetime, str]]] = {}
        for page in pages.paginate(Bucket=BUCKET, Prefix="checkpoints/"):
            for item in page.get("Contents", []):
                store, _, _ = item["Key"].rpartition("/")
                if store.endswith(STATE_FOLDERS) and item["Key"] not in self.damages:
                    root = store.rpartition("/")[0]
                    stores.setdefault(root, []).append((item["LastModified"], item["Key"]))
        return [
            [key for _, key in sorted(objects)[-NEWEST:]] for _, objects in sorted(stores.items())
        ]


def _kill(fault: Fault, processes: list[Process]) -> Hit | None:
    if not processes:
        return None
    process = fault.choose(processes)
    process.kill()
    return Hit(f"process {process.pid}")


def _stop(fault: Fault, processes: list[Process]) -> Hit | None:
    if not processes:
        return None
    pid = fault.choose(processes).pid
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return Hit(f"process {pid}", go_on)
