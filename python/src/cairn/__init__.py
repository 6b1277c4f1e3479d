"""Cairn: a state store for Spark Structured Streaming, kept by RocksDB in Python, durable on S3.

The public surface; every name here is one that users type.  Spec: README.md, docs/configuration.md.
"""

from cairn.jar import jar_path
from cairn.spark_conf import spark_conf

__all__ = ["__version__", "jar_path", "spark_conf"]

__version__ = "0.1.0"
