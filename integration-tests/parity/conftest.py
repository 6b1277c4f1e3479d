"""Parity: users see the same results under Cairn and under Spark's own provider."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
