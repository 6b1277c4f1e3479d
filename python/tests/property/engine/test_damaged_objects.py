"""Objects are damaged at random: a version then has its rows, or its load names an object."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from history import History, Writes
from hypothesis import given, settings
from hypothesis import strategies as st
from offline import read_offline
from rig import STORE

from cairn.errors import DataError
from cairn.format import manifest
from cairn.reader.audit import audit_objects
from cairn.storage.open import open_store

if TYPE_CHECKING:
    from cairn.errors import CairnError
    from cairn.reader.findings import Finding

Damage = tuple[str, int, str, int]

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 20
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


class DamagedHistory(History):
    """A history whose objects can be damaged."""

    def damage(self, kind: str, index: int, how: str, at: int) -> Path | None:
        """Delete an object, cut it, or flip a bit of it; return it if it is damaged."""
        present = sorted((self.objects / kind).glob("*"))
        if not present:
            return None
        # Which snapshots there are depends on threads: `index` chooses among those.
        path = present[index % len(present)]
        content = bytearray(path.read_bytes())
        if how == "delete":
            path.unlink()
        elif content:
            content[at % len(content)] ^= 1
            path.write_bytes(content if how == "flip" else content[: at % len(content)])
        return path

    def audit(self) -> list[Finding]:
        """Return the findings of the store's objects."""
        with open_store(str(self.objects), {}) as objects:
            ids = self.ids if self.checkpoint_format == 2 else [None] * len(self.ids)
            versions = {number: id_ for number, id_ in enumerate(ids) if number}
            return list(audit_objects(objects, STORE, self.checkpoint_format, versions))

    def named_objects(self) -> dict[Path, int]:
        """Return the SSTs that intact manifests name, with the sizes that they say."""
        named: dict[Path, int] = {}
        for path in (self.objects / "snapshot").glob("*"):
            with suppress(DataError):
                found = manifest.decode(path.read_bytes(), object_name=path.name)
                named |= {self.objects / file.object_name: file.size_bytes for file in found.files}
        return named

    def failure_of(self, version: int) -> CairnError | None:
        """Load a version and compare its rows; return the error if it cannot be loaded."""
        try:
            answer = self.restart(version)
        except DataError as failure:
            return failure
        assert self.rig.contents(0, version) == self.rows[version]
        assert answer["counts"] == ({"0": len(self.rows[version])} if version else {})
        return None

    def failure_offline(self, version: int) -> CairnError | None:
        """Read a version without an engine and compare its rows; return the error, if any."""
        checkpoint_id = self.ids[version]
        try:
            found = read_offline(str(self.objects), self.checkpoint_format, version, checkpoint_id)
        except DataError as failure:
            return failure
        assert found.get(0, {}) == self.rows[version]
        return None


@settings(max_examples=EXAMPLES)
@given(steps=STEPS, damages=DAMAGES, checkpoint_format=st.sampled_from([1, 2]))
def test_a_version_has_its_rows_or_its_load_names_an_object(
    steps: list[Writes | str], damages: list[Damage], checkpoint_format: int
) -> None:
    """If only snapshots are damaged and every changelog is kept, all versions have their rows."""
    with tempfile.TemporaryDirectory(prefix="cairn-damage-") as folder:
        history = DamagedHistory(Path(folder), checkpoint_format)
        history.run(steps)
        for damage in damages:
            history.damage(*damage)
        has_changelogs = all(kind != "changelog" for kind, *_ in damages)

        versions = range(history.newest + 1)
        failures = [history.failure_offline(version) for version in versions]
        failures += [history.failure_of(version) for version in versions]

        for failure in filter(None, failures):
            assert not has_changelogs, failure
            assert folder in str(failure.object_name)
        history.rig.crash()


@settings(max_examples=EXAMPLES)
@given(steps=STEPS, damages=DAMAGES, checkpoint_format=st.sampled_from([1, 2]))
def test_the_audit_finds_what_is_gone_or_cut_and_nothing_before(
    steps: list[Writes | str], damages: list[Damage], checkpoint_format: int
) -> None:
    """A flipped bit in an SST is found by reading it, and not by names and sizes."""
    with tempfile.TemporaryDirectory(prefix="cairn-damage-") as folder:
        history = DamagedHistory(Path(folder), checkpoint_format)
        history.run(steps)
        before = history.audit()

        files = [path for path in history.objects.glob("*/*") if path.is_file()]
        whole = {path: path.read_bytes() for path in files}
        for damage in damages:
            history.damage(*damage)
        left = {path: path.read_bytes() for path in files if path.exists()}
        named = history.named_objects()
        found = {finding.object_name for finding in history.audit()}

        assert before == []
        sizes = {path.name: size for path, size in named.items()}
        for path in (path for path in files if left.get(path) != whole[path]):
            if path.parent.name in ("snapshot", "changelog"):
                # A snapshot that is gone names nothing any more; a load goes around it. A changelog
                # that is gone is missing if an older one is there.
                assert not path.exists() or str(path) in found
            elif path.name in sizes:
                is_whole = path.exists() and path.stat().st_size == sizes[path.name]
                assert is_whole or str(path) in found
        history.rig.crash()


@settings(max_examples=EXAMPLES)
@given(steps=STEPS, damages=DAMAGES, checkpoint_format=st.sampled_from([1, 2]))
def test_a_repaired_store_goes_on_and_the_next_load_needs_no_repair(
    steps: list[Writes | str], damages: list[Damage], checkpoint_format: int
) -> None:
    """The commit after the repair takes a snapshot under a name that is free."""
    with tempfile.TemporaryDirectory(prefix="cairn-damage-") as folder:
        history = DamagedHistory(Path(folder), checkpoint_format)
        history.run([{b"first": b"row"}, *steps])
        for kind, *how in damages:
            history.damage("sst" if kind == "changelog" else kind, *how)  # type: ignore[arg-type]

        if history.restart(history.newest)["repairs"]:
            history.rig.maintain()  # perhaps before the next commit: never of damaged objects
        history.commit({b"new": b"row"})
        assert history.rig.maintain()["snapshot_version"] == history.newest
        again = history.restart(history.newest)

        assert history.rig.contents(0, history.newest) == history.rows[-1]
        assert again["repairs"] == 0
        history.rig.crash()
