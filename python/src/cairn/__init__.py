"""Cairn: a state store for Spark Structured Streaming: RocksDB in Python, durable on S3.

The public surface; users type every name here.  Spec: README.md, docs/configuration.md.
"""

from cairn.jar import jar_path
from cairn.release import RELEASE
from cairn.spark_conf import spark_conf

__all__ = ["__version__", "jar_path", "spark_conf"]

__version__ = RELEASE
