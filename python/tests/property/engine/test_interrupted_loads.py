"""Loads are interrupted at random: the next one uses what they left, and gives exactly the rows."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from history import History
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cairn.errors import CairnError, CancelledError, UnavailableError
from cairn.storage.local import LocalStore
from cairn.storage.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 5
KEYS = st.integers(0, 30).map(lambda n: b"k%d" % n)
WRITES = st.dictionaries(KEYS, st.none() | st.binary(min_size=1, max_size=40), min_size=1)
STEPS = st.lists(WRITES | st.sampled_from(["snapshot", "snapshot"]), min_size=4, max_size=16)
FOLLOW_UPS = ["nothing", "snapshot", "restart"]
INTERRUPTIONS = st.lists(
    st.tuples(
        st.integers(0, 1000),  # the version, from the newest one
        st.sampled_from([1, 1, 2, 2, 3, 4, 6, 9]),  # the read that fails
        st.sampled_from(["unavailable", "cancelled"]),
        st.sampled_from(FOLLOW_UPS),  # what follows
    ),
    min_size=3,
    max_size=8,
)


@contextmanager
def failing_at(number: int, how: str, progress: Progress) -> Iterator[None]:
    """Make the read of this number fail, and those after it; or cancel the load there."""
    originals = {name: getattr(LocalStore, name) for name in ("get", "get_start", "download")}
    count = 0

    def patched(name: str) -> Any:  # noqa: ANN401 - a method
        def read(self: LocalStore, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as it
            nonlocal count
            count += 1
            if count >= number:
                if how == "unavailable":
                    raise UnavailableError("the storage is gone")
                progress.cancel()
            return originals[name](self, *arguments, **named)

        return read

    for name in originals:
        setattr(LocalStore, name, patched(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(LocalStore, name, original)


def test_a_load_after_an_interrupted_one_gives_the_rows() -> None:
    """What an interrupted load leaves must never become other rows, now or in a later snapshot."""
    happened: Counter[tuple[str, str]] = Counter()
    check_loads(happened)
    kinds = product(("UnavailableError", "CancelledError"), FOLLOW_UPS)
    assert {*happened} == {*kinds}


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(STEPS, INTERRUPTIONS, st.sampled_from([1, 2]))
@example(
    [{b"k%d" % n: b"x"} for n in range(5)] + ["snapshot", {b"k0": None}, {b"k1": b"y"}],
    [
        (n, 1, how, follow_up)
        for n, (how, follow_up) in enumerate(product(["unavailable", "cancelled"], FOLLOW_UPS))
    ],
    2,
)
def check_loads(
    happened: Counter[tuple[str, str]],
    steps: list[Any],
    interruptions: list[tuple[int, int, str, str]],
    checkpoint_format: int,
) -> None:
    """Interrupt loads; count how those failed that did, and what followed them."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), checkpoint_format)
        try:
            history.run(steps)
            for at, number, how, follow_up in interruptions:
                version = history.newest - at % (history.newest + 1)
                progress = Progress()
                with failing_at(number, how, progress):
                    try:
                        history.load(version, progress)
                    except CairnError as failure:
                        assert isinstance(failure, (UnavailableError, CancelledError))  # noqa: PT017
                        happened[type(failure).__name__, follow_up] += 1
                if follow_up == "snapshot":
                    history.rig.maintain(cleanup=False)
                elif follow_up == "restart":
                    history.restart(version)
                history.load(version)
                assert history.rig.contents(0, version) == history.rows[version]
            history.load(history.newest)
            history.commit({b"k0": b"last"})
            history.rig.maintain(cleanup=False)
            for version in range(1, history.newest + 1):
                history.restart(version)
                assert history.rig.contents(0, version) == history.rows[version]
        finally:
            history.rig.crash()
