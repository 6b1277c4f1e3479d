"""open_location: the objects of a checkpoint location, outside Spark: for the reader, for commands.

Layer: location (above storage, below reader and cli).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cairn.errors import ConfigError, SchemeError
from cairn.jar import jar_path
from cairn.spark_minor import spark_jars
from cairn.storage.hadoop.server import FileServer
from cairn.storage.hadoop.store import HadoopStore
from cairn.storage.open import open_store

if TYPE_CHECKING:
    from cairn.storage.base import ObjectStore

HADOOP_CONF = "hadoop_conf"
JARS = "jars"


def open_location(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """Return the objects at ``url``; the caller closes them.

    For a scheme that Cairn itself does not have, a JVM runs until they are closed, with Spark's
    jars and the settings in ``HADOOP_CONF_DIR``.

    Args:
        url: a folder or URL.
        options: keys of ``S3Settings``. For other schemes ``hadoop_conf``, a mapping of Hadoop's
            settings, and ``jars``, the jars of the file system that Spark does not have.

    Raises:
        ConfigError: an option is malformed, or has no effect on this storage, or there is no Spark
            or no Java.
        SchemeError: Hadoop does not have the scheme either.
    """
    of_s3 = dict(options or {})
    conf = _conf(of_s3.pop(HADOOP_CONF, {}))
    jars = _jars(of_s3.pop(JARS, ()))
    try:
        store = open_store(url, of_s3)
    except SchemeError:
        return _ServedStore(FileServer(url, _class_path(jars), conf))
    if conf or jars:
        store.close()
        raise ConfigError(
            f"{HADOOP_CONF} and {JARS} have no effect on this storage, which needs no Hadoop",
            object_name=url,
            next_step="leave them out",
        )
    return store


def applicable(url: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return those of several locations' options that have an effect at one of them."""
    scheme = url.partition(":")[0].lower() if ":" in url.partition("/")[0] else ""
    found = dict(options or {})
    if scheme in {"s3", "s3a", "s3n"}:
        return {name: value for name, value in found.items() if name not in {HADOOP_CONF, JARS}}
    if scheme in {"", "file", "memory"}:
        return {}
    return {name: value for name, value in found.items() if name in {HADOOP_CONF, JARS}}


class _ServedStore(HadoopStore):
    """The objects at the URL of a JVM of their own, which ends with them."""

    def __init__(self, server: FileServer) -> None:
        self._server = server.__enter__()
        try:
            super().__init__(server.url, server.settings, server.connections)
        except BaseException:
            server.__exit__()
            raise

    def close(self) -> None:
        """End the JVM."""
        if not self._is_closed:
            super().close()
            self._server.__exit__()


def _conf(settings: object) -> dict[str, str]:
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{HADOOP_CONF} is no mapping of names to values")
    return {str(name): str(value) for name, value in settings.items()}


def _jars(jars: object) -> list[str]:
    if isinstance(jars, str) or not isinstance(jars, Iterable):
        raise ConfigError(f"{JARS} is no list of paths")
    return [str(jar) for jar in jars]


def _class_path(jars: Iterable[str]) -> list[str]:
    folder = os.environ.get("HADOOP_CONF_DIR")
    return [
        *([folder] if folder else []),
        str(jar_path()),
        *jars,
        *(str(jar) for jar in spark_jars()),
    ]
