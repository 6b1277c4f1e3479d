"""Recovery: whichever process is killed, the query continues with the right rows."""

from harness.fixtures import driver, nothing_survives

__all__ = ["driver", "nothing_survives"]
