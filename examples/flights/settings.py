"""Settings of the demo's Spark session: state store, checkpoint storage, a small machine."""

from __future__ import annotations

from pathlib import Path

PROVIDERS = ("cairn", "rocksdb", "hdfs")
STORAGES = ("disk", "minio", "hdfs")
SHUFFLE_PARTITIONS = 2

_STATE = "spark.sql.streaming.stateStore"
_SPARK_PACKAGE = "org.apache.spark.sql.execution.streaming.state"


def base_settings(scratch: Path) -> dict[str, str]:
    """Return the settings common to all providers; Spark's temporary files go to ``scratch``."""
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The demo runs for a few minutes; recovery should find snapshots and later changelogs.
        f"{_STATE}.maintenanceInterval": "10s",
        f"{_STATE}.minDeltasForSnapshot": "5",
    }


def provider_settings(provider: str, master: str = "local[2]") -> dict[str, str]:
    """Return the settings that select a state store."""
    if provider == "cairn":
        from cairn import spark_conf  # noqa: PLC0415 - Spark's own providers run without the jar

        return spark_conf({"spark.master": master})
    if provider == "rocksdb":
        return {
            f"{_STATE}.providerClass": f"{_SPARK_PACKAGE}.RocksDBStateStoreProvider",
            f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        }
    return {f"{_STATE}.providerClass": f"{_SPARK_PACKAGE}.HDFSBackedStateStoreProvider"}


def cluster_settings(master: str, driver_host: str) -> dict[str, str]:
    """Return the settings of a driver on a standalone cluster: what differs from a local one."""
    return {
        "spark.master": master,
        "spark.driver.host": driver_host,
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "true",
        # The driver waits so long for an executor whose machine is lost without a word.
        "spark.network.timeout": "60s",
    }


def s3_settings(
    endpoint_url: str, access_key: str, secret_key: str, s3a_jars: Path | None
) -> dict[str, str]:
    """Return the settings of ``s3a://``: Hadoop's client, the server's address, the credentials.

    ``s3a_jars`` is ``None`` where the client is among Spark's own jars.
    """
    jars = ("spark.driver.extraClassPath", "spark.executor.extraClassPath") if s3a_jars else ()
    return {
        **dict.fromkeys(jars, f"{s3a_jars}/*"),
        "spark.hadoop.fs.s3a.endpoint": endpoint_url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": access_key,
        "spark.hadoop.fs.s3a.secret.key": secret_key,
    }


def hdfs_settings() -> dict[str, str]:
    """Return the settings of ``hdfs://`` with one DataNode, which cannot have three copies."""
    return {"spark.hadoop.dfs.replication": "1"}


def write_properties(settings: dict[str, str], path: Path) -> None:
    """Write a properties file that only its owner can read: it may contain credentials."""
    path.touch(mode=0o600)
    path.write_text("".join(f"{key} {value}\n" for key, value in sorted(settings.items())))
