"""Parity: what a user sees under Cairn is what a user sees under Spark's own provider."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
