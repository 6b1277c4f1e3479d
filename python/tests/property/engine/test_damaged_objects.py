"""Objects are damaged at random: a version then has its rows, or its load names an object."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rig import Rig, family

from cairn.errors import DataError

if TYPE_CHECKING:
    from cairn.errors import CairnError

PUT, DELETE = 1, 2
FAMILY = family(0, multi=False)
CONF = {"minDeltasForSnapshot": 1, "minBatchesToRetain": 100}
Rows = dict[bytes, bytes]
Writes = dict[bytes, bytes | None]
Damage = tuple[str, int, str, int]

KEYS = st.integers(0, 9).map(lambda n: b"k%d" % n)
WRITES = st.dictionaries(KEYS, st.none() | st.binary(min_size=1, max_size=40), min_size=1)
STEPS = st.lists(WRITES | st.sampled_from(["snapshot", "restart"]), min_size=4, max_size=25)
DAMAGES = st.lists(
    st.tuples(
        st.sampled_from(["snapshot", "sst", "snapshot", "sst", "changelog"]),
        st.integers(0, 1000),
        st.sampled_from(["delete", "cut", "flip"]),
        st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=6,
)


class History:
    """A store that keeps all changelogs, and the rows of each of its versions."""

    def __init__(self, folder: Path, checkpoint_format: int) -> None:
        self.folder = folder
        self.objects = folder / "objects"
        self.checkpoint_format = checkpoint_format
        self.rows: list[Rows] = [{}]
        self.ids: list[str | None] = [None]
        self.rigs = 0
        self.rig = self._new_rig()
        self.load(0)

    @property
    def newest(self) -> int:
        return len(self.ids) - 1

    def restart(self, version: int) -> dict[str, Any]:
        """Load a version in a worker whose local directory is empty."""
        self.rig.crash()
        self.rig = self._new_rig()
        return self.load(version)

    def _new_rig(self) -> Rig:
        self.rigs += 1
        local = self.folder / f"local{self.rigs}"
        return Rig(local, str(self.objects), self.checkpoint_format, CONF)

    def load(self, version: int) -> dict[str, Any]:
        has_ids = self.checkpoint_format == 2
        return self.rig.load(version, self.ids[version] if has_ids else None)

    def commit(self, writes: Writes) -> None:
        self.rig.write([(PUT if v else DELETE, 0, k, v, 0) for k, v in writes.items()])
        answer = self.rig.commit(self.newest + 1, self.ids[-1], [FAMILY])
        self.rows.append({k: v for k, v in {**self.rows[-1], **writes}.items() if v})
        self.ids.append(answer["checkpoint_id"])
        self.load(self.newest)

    def run(self, steps: list[Writes | str]) -> None:
        for step in steps:
            if isinstance(step, dict):
                self.commit(step)
            elif step == "snapshot":
                self.rig.maintain()
            else:
                self.restart(self.newest)
        # No snapshot is stored after the damage.
        self.restart(0)

    def damage(self, kind: str, index: int, how: str, at: int) -> None:
        """Delete an object, cut it, or flip a bit of it."""
        present = sorted((self.objects / kind).glob("*"))
        if not present:
            return
        # Which snapshots there are depends on threads: `index` chooses among those.
        path = present[index % len(present)]
        content = bytearray(path.read_bytes())
        if how == "delete":
            path.unlink()
        elif content:
            content[at % len(content)] ^= 1
            path.write_bytes(content if how == "flip" else content[: at % len(content)])

    def failure_of(self, version: int) -> CairnError | None:
        """Load a version and compare its rows; return the error if it cannot be loaded."""
        try:
            answer = self.restart(version)
        except DataError as failure:
            return failure
        assert self.rig.contents(0, version) == self.rows[version]
        assert answer["counts"] == ({"0": len(self.rows[version])} if version else {})
        return None


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, damages=DAMAGES, checkpoint_format=st.sampled_from([1, 2]))
def test_a_version_has_its_rows_or_its_load_names_an_object(
    steps: list[Writes | str], damages: list[Damage], checkpoint_format: int
) -> None:
    """If only snapshots are damaged and every changelog is kept, all versions have their rows."""
    with tempfile.TemporaryDirectory(prefix="cairn-damage-") as folder:
        history = History(Path(folder), checkpoint_format)
        history.run(steps)
        for damage in damages:
            history.damage(*damage)
        has_changelogs = all(kind != "changelog" for kind, *_ in damages)

        failures = [history.failure_of(version) for version in range(history.newest + 1)]

        for failure in filter(None, failures):
            assert not has_changelogs, failure
            assert folder in str(failure.object_name)
        history.rig.crash()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, damages=DAMAGES, checkpoint_format=st.sampled_from([1, 2]))
def test_a_repaired_store_goes_on_and_the_next_load_needs_no_repair(
    steps: list[Writes | str], damages: list[Damage], checkpoint_format: int
) -> None:
    """The commit after the repair takes a snapshot under a name that is free."""
    with tempfile.TemporaryDirectory(prefix="cairn-damage-") as folder:
        history = History(Path(folder), checkpoint_format)
        history.run([{b"first": b"row"}, *steps])
        for kind, *how in damages:
            history.damage("sst" if kind == "changelog" else kind, *how)  # type: ignore[arg-type]

        repairs = history.restart(history.newest)["repairs"]
        history.commit({b"new": b"row"})
        if repairs:
            assert history.rig.maintain()["snapshot_version"] == history.newest
        again = history.restart(history.newest)

        assert history.rig.contents(0, history.newest) == history.rows[-1]
        assert not (repairs and again["repairs"])
        history.rig.crash()
