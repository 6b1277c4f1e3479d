"""Check: what was looked at, what was found, and the cure.

Layer: doctor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: stable: scripts may look for it.
        status: ``problem``: it would stop a job, or a command that needs it; ``warning``: it may,
            or something is slower or less safe than it could be.
        found: what is there.
        cure: what to do; empty if nothing is.
    """

    name: str
    status: Status
    found: str
    cure: str = ""


def ok(name: str, found: str) -> Check:
    """Return a check without a finding."""
    return Check(name, "ok", found)


def warning(name: str, found: str, cure: str) -> Check:
    """Return a warning."""
    return Check(name, "warning", found, cure)


def problem(name: str, found: str, cure: str) -> Check:
    """Return a problem."""
    return Check(name, "problem", found, cure)
