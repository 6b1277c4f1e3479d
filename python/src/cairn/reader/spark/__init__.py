"""Spark's own files of a checkpoint: logs, operators, schemas, and compressed streams."""
