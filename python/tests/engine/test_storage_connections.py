"""A worker whose files are served over storage connections: no loss, whatever is answered."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from client import DELETE, PUT, EngineError, Store, WorkerProcess

from cairn.errors import AlreadyExistsError, UnavailableError
from cairn.protocol import files, frames
from harness.fake_shim import FILE_SYSTEM, FakeShim

URL = "hdfs://host:9000/query/state/0/3"
STORAGE = {"file_system": str(FILE_SYSTEM), "timeout_ms": "5000"}
CONF = {"minDeltasForSnapshot": "3", "minBatchesToRetain": "2", "orphanGraceMs": "0"}


def open_store(
    shim: FakeShim, worker: WorkerProcess, checkpoint_format: int, number: int = 1
) -> Store:
    """Open an instance, with four storage connections to its worker."""
    for _ in range(4):
        channel = worker.channel()
        channel.send(frames.SERVE_FILES, 0, b"")
        shim.serve(channel.socket)
    return Store(
        worker, number, URL, checkpoint_format=checkpoint_format, conf=CONF, storage=STORAGE
    )


@pytest.mark.parametrize("checkpoint_format", [1, 2])
@pytest.mark.parametrize("publishing", [files.PUBLISHES_BY_RENAME, files.PUBLISHES_BY_CLOSE])
def test_a_killed_worker_leaves_all_versions_to_the_next_one(
    spawn: Callable[..., WorkerProcess], publishing: int, checkpoint_format: int
) -> None:
    """The files are the only truth; of format 1 without an atomic rename there must be none."""
    shim = FakeShim(publishing)
    worker = spawn()
    store = open_store(shim, worker, checkpoint_format)
    store.load(0)
    store.write([(PUT, 0, b"a", b"1")])
    if (publishing, checkpoint_format) == (files.PUBLISHES_BY_CLOSE, 1):
        with pytest.raises(EngineError, match="CAIRN_NO_CONDITIONAL_PUT"):
            store.commit()
        assert shim.content == {}
        return
    for version in range(1, 8):
        store.commit()
        store.load(version, store.checkpoint_id)
        store.write([(PUT, 0, b"v", b"%d" % version)])
        worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=True)
    worker.kill()

    after = open_store(shim, spawn(), checkpoint_format)
    answer = after.load(7, store.checkpoint_id)

    assert answer["source"] == "snapshot"
    assert after.scan() == {b"a": b"1", b"v": b"6"}
    assert any("/sst/" in path for path in shim.content)
    assert not any(path.endswith("/changelog/1.arrow") for path in shim.content)


@dataclass
class Trouble:
    """Fails some requests, before or after they are done; the seed repeats the choice."""

    chance: random.Random
    share: float
    counts: dict[str, int] = field(default_factory=dict)

    def before(self, kind: int, path: str) -> None:
        """Refuse a request."""
        self._maybe("before", kind, path, UnavailableError("refused"))

    def after(self, kind: int, path: str) -> None:
        """Lose the answer to a request; the client then repeats it and may meet its own file."""
        lost = AlreadyExistsError if kind == files.FILE_RENAME else UnavailableError
        self._maybe("after", kind, path, lost("the answer was lost"))
        if self.chance.random() < self.share / 4:
            self.counts["broken"] = self.counts.get("broken", 0) + 1
            raise ConnectionAbortedError

    def _maybe(self, when: str, kind: int, _path: str, failure: Exception) -> None:
        if self.chance.random() < self.share:
            name = f"{when} {kind:#x}"
            self.counts[name] = self.counts.get(name, 0) + 1
            raise failure


@pytest.mark.parametrize("checkpoint_format", [1, 2])
@pytest.mark.parametrize(
    ("seed", "versions"),
    [(1, 12), *(pytest.param(seed, 25, marks=pytest.mark.slow) for seed in (1, 2))],
)
def test_whatever_fails_each_committed_version_has_the_model_s_rows(
    spawn: Callable[..., WorkerProcess], checkpoint_format: int, seed: int, versions: int
) -> None:
    """A refused, lost or doubled answer may fail a task; it never changes a committed version."""
    shim, worker, number = FakeShim(), spawn(), 0
    trouble = Trouble(random.Random(seed), share=0.08)
    shim.before, shim.after = trouble.before, trouble.after
    model: dict[bytes, bytes] = {}
    version, committed_id, failures = 0, None, 0
    store: Store | None = None
    while version < versions or trouble_kinds(trouble) < {"before", "after", "broken"}:
        wanted = dict(model)
        try:
            if store is None:
                number += 1
                store = open_store(shim, worker, checkpoint_format, number)
            store.attempt = store.attempt | {"task_attempt": failures}
            store.load(version, committed_id)
            assert store.scan() == model, f"version {version}, seed {seed}"
            key = b"k%d" % trouble.chance.randrange(6)
            if key in wanted and trouble.chance.random() < 0.3:
                store.write([(DELETE, 0, key, None)])
                del wanted[key]
            else:
                store.write([(PUT, 0, key, b"%d" % version)])
                wanted[key] = b"%d" % version
            store.commit()
            version, committed_id, model = store.version, store.checkpoint_id, wanted
            worker.call("maintain", instance=number, storage=None, snapshot=True, cleanup=True)
        except EngineError as failure:
            failures += 1
            if failure.code != "CAIRN_STORAGE_UNAVAILABLE" or failures > 400:
                raise
            # As another executor would, with an empty disk; maintenance may fail after a commit.
            store = None

    assert failures > 3, "nothing failed"


def trouble_kinds(trouble: Trouble) -> set[str]:
    """Return the kinds of failures that there were."""
    return {name.partition(" ")[0] for name in trouble.counts}
