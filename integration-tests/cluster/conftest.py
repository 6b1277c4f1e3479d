"""Cluster: queries on a standalone Spark cluster whose parts are killed."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
