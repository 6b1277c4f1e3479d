"""The exit codes of all commands.

Layer: cli.  Spec: docs/commands.md.
"""

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended. DO NOT RENUMBER: scripts compare them."""

    OK = 0
    ERROR = 1
    USAGE = 2  # click's own
    FINDINGS = 3
    NOT_THERE = 4


MEANINGS = {
    Exit.OK: "It is done.",
    Exit.ERROR: "An error; standard error has one line with its code.",
    Exit.USAGE: "The command was called wrongly: an unknown option, a malformed value.",
    Exit.FINDINGS: "Something was found: differences (`diff`), faults (`verify`), problems "
    "(`doctor`, `import`), or a plan that needs `--apply`, so that nothing was changed.",
    Exit.NOT_THERE: "The location, batch, operator or store does not exist, or the key of `get`; "
    "or `bisect` has found no batch.",
}
