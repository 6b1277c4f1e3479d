"""What an error must say to its user: what failed, where, and what to do next."""

from __future__ import annotations

import re

from harness.spark import CAIRN, SUBJECT

_CODE = re.compile(r"\[(CAIRN_[A-Z_]+)\]")
_CONTEXT = 600


def assert_clear(message: str, code: str, *names: str) -> None:
    """Assert that an error of Cairn has this code and contains these names and a next step.

    Spark repeats a task's error: all codes in the message must be this one. If the provider under
    test is not Cairn, any error is enough.
    """
    assert message, "nothing failed"
    if SUBJECT != CAIRN:
        return
    found = _CODE.search(message)
    assert found, f"no error of Cairn in: {message[:2000]}"
    error = message[found.start() : found.start() + _CONTEXT].partition("\n")[0]
    assert set(_CODE.findall(message)) == {code}, f"expected {code}: {error}"
    for name in (*names, "Next:"):
        assert name in error, f"{name!r} is missing in: {error}"
