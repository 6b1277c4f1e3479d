"""Recovery: whatever dies, the query goes on with the rows it would have given."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
