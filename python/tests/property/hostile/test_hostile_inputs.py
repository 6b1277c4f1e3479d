"""Bytes from outside end in what is promised: no crash, no hang, bounded memory, one clear error.

``make fuzz INPUTS=100000`` reads more of them; ``fuzz.py`` repeats a single one.
"""

from __future__ import annotations

from fuzz import fuzz, fuzz_target, shares_of

INPUTS = 2_000


def test_mutated_inputs_end_as_promised() -> None:
    """A damaged or hostile object, frame or call must not end the worker or its host."""
    findings = fuzz(seed=0, count=INPUTS)

    assert findings == []


def test_a_crash_a_wrong_error_and_memory_are_found() -> None:
    """A fuzzer that finds nothing would always pass."""
    findings = fuzz_target("faulty", seed=0, count=5)

    assert [(one.index, one.kind) for one in findings] == [
        (1, "error"),
        (2, "memory"),  # that is freed again
        (3, "memory"),
        (4, "crash (-6)"),
    ]
    assert "not promised" in findings[0].detail


def test_as_many_inputs_are_read_as_were_requested() -> None:
    """The number is reported."""
    for count in (2_000, 3_000, 100_000):
        assert sum(shares_of(count).values()) == count
    assert set(shares_of(1).values()) == {10}


def test_a_hang_is_found() -> None:
    """It would block the thread that serves all stores of a worker."""
    findings = fuzz_target("hanging", seed=3, count=3, hang_s=2)

    assert {one.kind for one in findings} == {"hang"}
