"""What a user is owed when something fails: one error of ours, with what, where and what next."""

from __future__ import annotations

import re

from harness.spark import CAIRN, SUBJECT

_CODE = re.compile(r"\[(CAIRN_[A-Z_]+)\]")
_CONTEXT = 600


def assert_clear(message: str, code: str, *names: str) -> None:
    """Assert that a failure is one of ours with this code, names these things and a next step.

    Spark repeats a task's error; all codes in a message must be this one. Under another subject
    than Cairn an error suffices.
    """
    assert message, "nothing failed"
    if SUBJECT != CAIRN:
        return
    found = _CODE.search(message)
    assert found, f"no error of ours in: {message[:2000]}"
    told = message[found.start() : found.start() + _CONTEXT].partition("\n")[0]
    assert set(_CODE.findall(message)) == {code}, f"expected {code}: {told}"
    for name in (*names, "Next:"):
        assert name in told, f"{name!r} is not named: {told}"
