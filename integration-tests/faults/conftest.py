"""Faults: each bad input or broken part ends in one clear error, or in the right rows."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
