"""Faults: each bad input or broken part leads to one clear error, or to the right rows."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
