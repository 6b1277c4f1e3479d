"""Cluster: the same query on a standalone Spark cluster whose parts die."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
