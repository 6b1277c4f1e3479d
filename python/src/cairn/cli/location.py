"""The storage of a checkpoint location for a command: S3, files, or a JVM for all other schemes.

Layer: cli.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cairn.errors import ConfigError, SchemeError
from cairn.jar import jar_path
from cairn.spark_minor import spark_jars
from cairn.storage.hadoop.server import FileServer
from cairn.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.storage.base import ObjectStore


@contextmanager
def open_location(
    url: str, s3: Mapping[str, str], hadoop_conf: Sequence[str], jars: Sequence[str]
) -> Iterator[ObjectStore]:
    """Yield the objects at ``url``.

    For a scheme that Cairn itself does not have, a JVM runs meanwhile, with Spark's jars and the
    settings in ``HADOOP_CONF_DIR``.

    Args:
        url: a folder or URL.
        s3: keys of ``S3Settings``.
        hadoop_conf: further settings of Hadoop, as ``name=value``.
        jars: jars of the file system that Spark does not have.

    Raises:
        ConfigError: a setting has no value, or there is no Spark or no Java.
        SchemeError: Hadoop does not have the scheme either.
    """
    try:
        store = open_store(url, s3)
    except SchemeError:
        with (
            FileServer(url, _class_path(jars), _conf(hadoop_conf)) as server,
            open_store(url, server.settings, server.connections) as remote,
        ):
            yield remote
    else:
        with store:
            yield store


def _class_path(jars: Sequence[str]) -> list[str]:
    folder = os.environ.get("HADOOP_CONF_DIR")
    return [
        *([folder] if folder else []),
        str(jar_path()),
        *jars,
        *(str(jar) for jar in spark_jars()),
    ]


def _conf(settings: Sequence[str]) -> dict[str, str]:
    conf = {}
    for setting in settings:
        name, has_value, value = setting.partition("=")
        if not has_value:
            raise ConfigError(
                f"--hadoop-conf {name} has no value", next_step="write --hadoop-conf name=value"
            )
        conf[name] = value
    return conf
