"""Running a move: its stores in processes of this machine, or in tasks of Spark.

Layer: offline.move. Each store ends with a result in the target (``moving``), so that whoever
repeats the move goes on with the stores that are left. A process of this machine gets the move, and
then one store after the other, as pickles through its standard input; it ends with that.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from cairn.checkpoint.presence import is_stored
from cairn.checkpoint.stored_versions import StoredVersions
from cairn.errors import (
    CairnError,
    DataError,
    DiskFullError,
    InternalError,
    RetryableError,
    unexpected,
)
from cairn.format.names import manifest_name
from cairn.memory import give_back_buffers
from cairn.offline.move.committing import attempt_of
from cairn.offline.move.moving import Moved, key_of_result, read_results
from cairn.offline.parallel import in_parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cairn.offline.move.moving import Move, StoreMover, StoreRef
    from cairn.storage.base import ObjectStore

_LOOK_EVERY_S = 2.0
_CANCEL_EVERY_S = 0.2
_PROCESSES_MAX = 16
_THREADS = 16
_FREE_SPACE = (
    "free space there, or name a folder of a larger disk by --local-dir, and repeat the command"
)
_TASK_ATTEMPTS = 3
"""Requests are repeated by the storage already; this is for what another attempt gets around."""


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far a move is.

    Attributes:
        stores: how many are done.
        of_stores: how many there are.
        rows: how many were moved so far.
        stored_bytes: of the stores that are done.
        seconds_left: by the speed so far; ``None``: not known yet.
    """

    stores: int
    of_stores: int
    rows: int
    stored_bytes: int
    seconds_left: float | None


class _Meter:
    """Reports the progress of a move."""

    def __init__(
        self,
        stores: Sequence[StoreRef],
        done: dict[StoreRef, Moved],
        report: Callable[[MoveProgress], None] | None,
    ) -> None:
        self._of_stores = len(stores)
        self._before = len(done)
        self._report = report
        self._began = time.monotonic()
        self._rows: dict[StoreRef, int] = {}
        self.done = done

    def add(self, *results: Moved) -> None:
        """Count results that are new."""
        for one in results:
            self.done[one.store] = one
            self._rows.pop(one.store, None)
        self._show()

    def note(self, store: StoreRef, rows: int) -> None:
        """Take note of how many rows of a store have been moved."""
        self._rows[store] = rows
        self._show()

    def _show(self) -> None:
        if self._report is None:
            return
        here = len(self.done) - self._before
        left = self._of_stores - len(self.done)
        seconds = (time.monotonic() - self._began) / here * left if here else None
        self._report(
            MoveProgress(
                stores=len(self.done),
                of_stores=self._of_stores,
                rows=sum(sum(one.keys.values()) for one in self.done.values())
                + sum(self._rows.values()),
                stored_bytes=sum(one.stored_bytes for one in self.done.values()),
                seconds_left=seconds,
            )
        )


def run_move(
    move: Move,
    stores: Sequence[StoreRef],
    *,
    session: Any = None,  # noqa: ANN401 - pyspark is no dependency
    processes: int | None = None,
    progress: Callable[[MoveProgress], None] | None = None,
) -> dict[StoreRef, Moved]:
    """Move stores, and return all results; those that are there already are not moved again.

    Args:
        move: what they have in common.
        stores: all of them.
        session: a ``SparkSession``: each store is a task of it. ``None``: processes of this
            machine.
        processes: how many; ``None``: one per processor.
        progress: called after each store, and every few seconds. What it raises ends the move.

    Raises:
        CairnError: a store could not be moved; those that were are not moved again.
    """
    try:
        return _run(move, stores, session=session, processes=processes, progress=progress)
    except DiskFullError as failure:
        # What writes there knows the setting of an engine, and not the option of a command.
        if Path(failure.object_name or "/").is_relative_to(move.local_folder):
            failure.next_step = _FREE_SPACE
        raise


def _run(
    move: Move,
    stores: Sequence[StoreRef],
    *,
    session: Any,  # noqa: ANN401 - pyspark is no dependency
    processes: int | None,
    progress: Callable[[MoveProgress], None] | None,
) -> dict[StoreRef, Moved]:
    with move.target.open() as target:
        done = kept_results(target, move, stores)
        left = [ref for ref in stores if ref not in done]
        if session is not None:
            job = partial(_in_spark, session, move, left)
            return run_in_spark(session, job, move, stores, progress)
        meter = _Meter(stores, done, progress)
        meter.add()
        count = min(processes or os.cpu_count() or 1, _PROCESSES_MAX, len(left))
        if count > 1:
            _beside(move, left, meter, count)
        else:  # in this process: nothing would run beside another
            _one_by_one(move, left, meter)
    return meter.done


def run_in_spark(
    session: Any,  # noqa: ANN401 - pyspark is no dependency
    job: Callable[[], Iterable[CairnError | None]],
    move: Move,
    stores: Sequence[StoreRef],
    progress: Callable[[MoveProgress], None] | None = None,
) -> dict[StoreRef, Moved]:
    """Run a job of Spark, and return all results.

    Args:
        session: whose job it is.
        job: ends with what went wrong.
        move: what the stores have in common.
        stores: all of them.
        progress: called now and then. What it raises cancels the job.

    Raises:
        CairnError: what went wrong.
    """
    context, tag = session.sparkContext, f"cairn-{move.token}"

    def tagged() -> list[CairnError | None]:
        context.addJobTag(tag)
        return list(job())

    with move.target.open() as target, ThreadPoolExecutor(1) as thread:
        meter = _Meter(stores, results_of(target, move, stores), progress)
        meter.add()
        run = thread.submit(tagged)
        try:
            while not wait([run], _LOOK_EVERY_S).done:
                meter.add(*results_of(target, move, stores).values())
        except BaseException:
            context.cancelJobsWithTag(tag)
            while not wait([run], _CANCEL_EVERY_S).done:
                context.cancelJobsWithTag(tag)  # it had not begun, or another one follows it
            raise
        for failure in filter(None, run.result()):
            raise failure
        meter.add(*results_of(target, move, stores).values())
    return meter.done


def results_of(
    target: ObjectStore, move: Move, stores: Iterable[StoreRef]
) -> dict[StoreRef, Moved]:
    """Return the results of some stores that are there; see ``read_results``."""
    wanted = frozenset(stores)
    return {ref: one for ref, one in read_results(target, move.results).items() if ref in wanted}


def kept_results(
    target: ObjectStore, move: Move, stores: Iterable[StoreRef]
) -> dict[StoreRef, Moved]:
    """Return the results of some stores that are there, as are the stores; delete the others.

    Nothing leads to a store until the end of the work: ``cairn gc`` may have deleted it since, or a
    driver may have written another version under its name. Files of Spark's own providers are not
    looked at.
    """
    found = results_of(target, move, stores)
    if move.conf.provider != "cairn":
        return found
    there = in_parallel(
        lambda one: _is_written(target, move, one), found.values(), threads=_THREADS
    )
    if gone := [ref for ref, is_there in zip(found, there, strict=True) if not is_there]:
        target.delete([key_of_result(move.results, ref) for ref in gone])
    return {ref: one for ref, one in found.items() if ref not in gone}


def _is_written(target: ObjectStore, move: Move, moved: Moved) -> bool:
    store = moved.store.id
    with target.at(target.object_url(store.folder)) as root:
        versions = StoredVersions(root, store, move.checkpoint_format)
        try:
            header = versions.read_header(move.batch + 1, moved.checkpoint_id).header
        except DataError:
            return False
        seed = header.base.ref
        if seed is None or header.attempt != attempt_of(move.token):
            return False
        return is_stored(root, manifest_name(seed))


def _one_by_one(move: Move, stores: Sequence[StoreRef], meter: _Meter) -> None:
    """Move stores in this process."""
    if stores:
        with move.mover() as mover:
            for ref in stores:
                mover.on_rows = partial(meter.note, ref)
                meter.add(mover.move(ref))


def _beside(move: Move, stores: Sequence[StoreRef], meter: _Meter, count: int) -> None:
    """Move stores in processes of this machine."""
    work = _Work(move, stores)
    with ThreadPoolExecutor(count) as threads:
        runs = [threads.submit(work.drive) for _ in range(count)]
        try:
            for _ in runs:
                while (one := work.answers.get()) is not None:
                    if isinstance(one, Moved):
                        meter.add(one)
                    else:
                        meter.note(*one)
        except BaseException:
            work.give_up()
            raise
        for run in runs:
            run.result()


class _Work:
    """Stores that are moved by processes, each of which a thread drives.

    Attributes:
        answers: results; how many rows of a store were moved; ``None`` when a process has ended.
    """

    def __init__(self, move: Move, stores: Sequence[StoreRef]) -> None:
        self._move = move
        self._todo: queue.SimpleQueue[StoreRef] = queue.SimpleQueue()
        for ref in stores:
            self._todo.put(ref)
        self._processes: list[_Process] = []
        self.answers: queue.SimpleQueue[Moved | tuple[StoreRef, int] | None] = queue.SimpleQueue()

    def drive(self) -> None:
        """Move stores in a process of its own, until none is left or one fails."""
        try:
            with _Process(self._move) as process:
                self._processes.append(process)
                while True:
                    try:
                        ref = self._todo.get_nowait()
                    except queue.Empty:
                        return
                    for answer in process.move(ref):
                        self.answers.put(answer)
        except BaseException:
            self._leave_rest()  # the others end after their store
            raise
        finally:
            self.answers.put(None)

    def _leave_rest(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._todo.get_nowait()

    def give_up(self) -> None:
        """End all processes at once."""
        self._leave_rest()  # whoever has a store has its process in the list
        for process in self._processes:
            process.give_up()


class _Process:
    """A process that moves stores; ends with the ``with``."""

    def __init__(self, move: Move) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._send(move)

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        # Its end, also by ``give_up``, is seen by the next answer.
        with suppress(BrokenPipeError, ValueError):
            pickle.dump(value, self._process.stdin)
            self._process.stdin.flush()

    def move(self, ref: StoreRef) -> Iterator[Moved | tuple[StoreRef, int]]:
        """Move a store: yield now and then how many rows were moved, and the result at last.

        Raises:
            CairnError: it could not be moved, or the process has ended.
        """
        self._send(ref)
        while isinstance(answer := self._answer(ref), int):
            yield ref, answer
        if isinstance(answer, CairnError):
            raise answer
        yield cast("Moved", answer)

    def _answer(self, ref: StoreRef) -> object:
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        try:
            return pickle.load(self._process.stdout)  # noqa: S301 - of this program
        except EOFError:
            code = self._process.wait()
            raise InternalError(
                f"a process that moves stores has ended with {code}; its errors are above",
                store=str(ref.id),
                next_step="repeat the command: what is done is kept",
            ) from None

    def give_up(self) -> None:
        """Let the process end at once, as ``_receive`` says."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None  # noqa: S101 - pipes
        assert self._process.stdout is not None  # noqa: S101
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _in_spark(
    session: Any,  # noqa: ANN401 - pyspark is no dependency
    move: Move,
    stores: Sequence[StoreRef],
) -> list[CairnError | None]:
    """Move stores in tasks of Spark; return what went wrong."""
    if not stores:
        return []
    tasks = session.sparkContext.parallelize(list(stores), len(stores)).map(_Task(move))
    found: list[CairnError | None] = tasks.collect()
    return found


@dataclass(frozen=True, slots=True)
class _Task:
    """What a task of Spark does. An error is a result: as an exception Spark would only show it.

    So Spark repeats only tasks whose process or machine is lost.
    """

    move: Move

    def __call__(self, ref: StoreRef) -> CairnError | None:
        for attempt in range(1, _TASK_ATTEMPTS + 1):
            try:
                with self.move.mover() as mover:
                    mover.move(ref)
            except Exception as problem:  # noqa: BLE001 - the driver raises it
                failure = unexpected(problem)
                if attempt == _TASK_ATTEMPTS or not isinstance(failure, RetryableError):
                    return failure
            else:
                return None
        return None


def _serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Move the stores that come, until none comes."""
    move = pickle.load(source)  # noqa: S301 - of the process that has started this one
    asked: queue.SimpleQueue[StoreRef | None] = queue.SimpleQueue()
    is_idle = threading.Event()
    is_idle.set()
    threading.Thread(target=_receive, args=(source, asked, is_idle), daemon=True).start()

    def send(answer: object) -> None:
        pickle.dump(answer, sink)
        sink.flush()

    with ExitStack() as opened, suppress(BrokenPipeError):  # then the other process was killed
        mover: StoreMover | None = None
        while (ref := asked.get()) is not None:
            try:
                mover = mover or opened.enter_context(move.mover())
                mover.on_rows = send
                answer: object = mover.move(ref)
            except Exception as problem:  # noqa: BLE001 - the other process raises it
                answer = unexpected(problem)
            is_idle.set()
            send(answer)


def _receive(
    source: BinaryIO, asked: queue.SimpleQueue[StoreRef | None], is_idle: threading.Event
) -> None:
    """Pass the stores on. If nobody waits for the answer any more, end this process at once.

    Else it would go on to write a store which the repeated command moves, too.
    """
    while True:
        try:
            ref = pickle.load(source)  # noqa: S301 - see ``_serve``
        except EOFError:
            break
        is_idle.clear()
        asked.put(ref)
    if not is_idle.is_set():
        os._exit(1)
    asked.put(None)


if __name__ == "__main__":
    give_back_buffers()
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _serve(sys.stdin.buffer, answers)
