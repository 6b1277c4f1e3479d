"""Spark sessions of the tests: one driver JVM, one session per query, any provider.

`SUBJECT` is the provider under test; its results must equal those of `CONTROL`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from harness.scala_programs import scala_jar

CAIRN = "io.cairn.spark.CairnStateStoreProvider"
CAIRN_FILES = "io.cairn.spark.CairnCheckpointFileManager"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EXTENSIONS = "io.cairn.spark.CairnExtensions"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

SUBJECT = os.environ.get("CAIRN_TEST_SUBJECT", CAIRN)
CONTROL = ROCKSDB

REPOSITORY = Path(__file__).resolve().parents[2]


def shim_jar(minor: str) -> Path:
    """Return the path of the jar for a minor version of Spark, where Gradle builds it."""
    return REPOSITORY / f"jvm-shim/build/{minor}/libs/cairn-shim-{minor}.jar"


# The Spark under test; `make shim` builds the jar for it.
MINOR = ".".join(pyspark.__version__.split(".")[:2])
# The variable selects another jar, so that `make shim` may run during the tests.
SHIM_JAR = Path(os.environ.get("CAIRN_TEST_SHIM_JAR", shim_jar(MINOR)))
S3A_JARS = REPOSITORY / ".build/s3a-jars"
STATE_STORE = "spark.sql.streaming.stateStore."
CAIRN_CONF = STATE_STORE + "cairn."
PROVIDER_CLASS = STATE_STORE + "providerClass"
FILE_MANAGER_CLASS = "spark.sql.streaming.checkpointFileManagerClass"
CHECKPOINT_FORMAT = STATE_STORE + "checkpointFormatVersion"

# A short test mostly waits for the JIT: the first compiler alone halves its time. The collector
# without threads of its own saves another tenth. With the first compiler alone, Java reserves 48 MB
# for compiled code, which many queries fill: then nothing is compiled any more.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# With assertions each commit says which keys its session has left, and the worker compares.
ASSERTIONS = "-ea:io.cairn.spark..."
OWN_OPTIONS = " ".join((*SHORT_LIVED, ASSERTIONS, "-XX:ReservedCodeCacheSize=256m", "-Xss2m"))
# Java ignores an archive that does not fit, and would say so on standard output.
CLASS_ARCHIVE = REPOSITORY / ".build" / "classes.jsa"
ARCHIVE_OPTIONS = f"-XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"
JVM_OPTIONS = f"{OWN_OPTIONS} {ARCHIVE_OPTIONS}" if CLASS_ARCHIVE.exists() else OWN_OPTIONS


def class_path() -> str:
    """Return the class path of a driver or executor: shim, `s3a://`, the tests' Scala programs."""
    if CAIRN == SUBJECT and not SHIM_JAR.exists():
        raise FileNotFoundError(f"{SHIM_JAR} is missing: run `make shim`")
    return os.pathsep.join(map(str, [SHIM_JAR, *s3a_jars(), scala_jar()]))


def s3a_jars() -> list[Path]:
    """Return the jars of `s3a://`; none if they are for another Hadoop than this Spark's."""
    jars = sorted(S3A_JARS.glob("*.jar"))
    (api,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    connector = api.name.replace("hadoop-client-api", "hadoop-aws")
    return jars if any(jar.name == connector for jar in jars) else []


def driver_conf(scratch: Path, master: str = "local[2,4]") -> dict[str, str]:
    """Return the settings of a driver JVM: loopback only, quiet, two partitions, no provider.

    A task has four attempts, as on a cluster; with `local[2]` the first failure ends the query.
    """
    return {
        "spark.master": master,
        "spark.app.name": "cairn-integration-tests",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": class_path(),
        "spark.driver.extraJavaOptions": f"{JVM_OPTIONS} -Djava.io.tmpdir={scratch}",
        "spark.driver.memory": "1g",
        # Static: all sessions have the rules; they leave the plans of other providers as they are.
        "spark.sql.extensions": EXTENSIONS,
        "spark.local.dir": str(scratch / "spark-local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.streaming.stopTimeout": "60s",
        STATE_STORE + "maintenanceInterval": "500ms",
        # Saves most of the time of a short query; stateful operators are not compiled anyway.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def provider_conf(provider: str, checkpoint_format: int = 1) -> dict[str, str]:
    """Return the settings of one query under a provider; Spark's own writes changelogs too."""
    files = {FILE_MANAGER_CLASS: CAIRN_FILES} if provider == CAIRN else {}
    return {
        **files,
        PROVIDER_CLASS: provider,
        CHECKPOINT_FORMAT: str(checkpoint_format),
        STATE_STORE + "minDeltasForSnapshot": "2",
        STATE_STORE + "rocksdb.changelogCheckpointing.enabled": "true",
    }


def s3a_conf(settings: Mapping[str, str]) -> dict[str, str]:
    """Return a job's Hadoop settings for an S3 server of the tests."""
    return {
        "fs.s3a.endpoint": settings["endpoint_url"],
        "fs.s3a.endpoint.region": settings["region"],
        "fs.s3a.access.key": settings["access_key"],
        "fs.s3a.secret.key": settings["secret_key"],
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }


# A driver that writes its class archive takes some seconds, on a busy machine a minute.
END_TIMEOUT_S = 120
_root: list[SparkSession] = []


@contextmanager
def running_driver() -> Iterator[None]:
    """Run the driver JVM that all tests of this Python process share.

    Engines inherit the environment of this process; `PYSPARK_PYTHON` is set to this Python.
    """
    # PySpark collects timestamps in the time zone of the process; recorded rows have them in UTC.
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    time.tzset()
    with tempfile.TemporaryDirectory(prefix="cairn-it-", ignore_cleanup_errors=True) as scratch:
        builder = SparkSession.builder
        for name, value in driver_conf(Path(scratch)).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        _root.append(session)
        try:
            yield
        finally:
            _root.clear()
            gateway = session.sparkContext._gateway  # noqa: SLF001 - to end the JVM too
            session.stop()
            gateway.shutdown()  # type: ignore[union-attr]
            gateway.proc.stdin.close()  # type: ignore[union-attr]
            gateway.proc.wait(timeout=END_TIMEOUT_S)  # type: ignore[union-attr]


def new_session(conf: Mapping[str, str]) -> SparkSession:
    """Return a new session with these settings in the shared driver JVM."""
    session = _root[0].newSession()
    for name, value in conf.items():
        session.conf.set(name, value)
    return session


def driver_jvm() -> Any:  # noqa: ANN401 - Py4J has no types
    """Return Py4J's view of the shared driver JVM."""
    return _root[0].sparkContext._jvm  # noqa: SLF001 - there is no public way


@contextmanager
def driver_log(class_name: str) -> Iterator[Any]:
    """Yield the warnings and errors that a class of the shared driver logs: a Java StringWriter."""
    log4j = driver_jvm().org.apache.logging.log4j
    text = driver_jvm().java.io.StringWriter()
    appender = (
        log4j.core.appender.WriterAppender.newBuilder().setName("test").setTarget(text).build()
    )
    appender.start()
    logger = log4j.LogManager.getLogger(class_name)
    level = logger.getLevel()
    logger.addAppender(appender)
    logger.setLevel(log4j.Level.WARN)
    try:
        yield text
    finally:
        logger.setLevel(level)
        logger.removeAppender(appender)
        appender.stop()


def driver_pid() -> int:
    """Return the process id of the shared driver JVM."""
    return int(driver_jvm().ProcessHandle.current().pid())
