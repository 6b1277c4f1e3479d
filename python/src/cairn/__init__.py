"""Cairn: a state store for Spark Structured Streaming: RocksDB in Python, durable on S3.

The public surface; users type every name here.  Spec: README.md, docs/configuration.md; for the
errors docs/troubleshooting.md, for the state reader docs/reader.md.
"""

from cairn.applying import apply_in_arrow_with_state
from cairn.changing import gc, repair, restore
from cairn.correcting import erase, export, import_state
from cairn.errors import CairnError, ConfigError
from cairn.jar import jar_path
from cairn.moving import clone, migrate, repartition
from cairn.opening import open_checkpoint
from cairn.release import RELEASE as __version__  # noqa: N811 - the name that Python's tools read
from cairn.savepoints import create_savepoint, delete_savepoint, list_savepoints
from cairn.spark_conf import spark_conf
from cairn.transform.chunk import Chunk

__all__ = [
    "CairnError",
    "Chunk",
    "ConfigError",
    "__version__",
    "apply_in_arrow_with_state",
    "clone",
    "create_savepoint",
    "delete_savepoint",
    "erase",
    "export",
    "gc",
    "import_state",
    "jar_path",
    "list_savepoints",
    "migrate",
    "open_checkpoint",
    "repair",
    "repartition",
    "restore",
    "spark_conf",
]
