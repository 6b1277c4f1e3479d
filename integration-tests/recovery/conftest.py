"""Recovery: after the kill of any process the query continues with the right rows."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
