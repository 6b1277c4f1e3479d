"""What the demo's session is configured with: state store, checkpoint storage, a small machine."""

from __future__ import annotations

from pathlib import Path

from harness.minio import MinioProcess

PROVIDERS = ("cairn", "rocksdb", "hdfs")
SHUFFLE_PARTITIONS = 2

_STATE = "spark.sql.streaming.stateStore"
_SPARK_PACKAGE = "org.apache.spark.sql.execution.streaming.state"


def base_settings(scratch: Path) -> dict[str, str]:
    """Return what every provider runs with; ``scratch`` takes all that Spark leaves behind."""
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
        # Snapshots within a demo of some minutes: recovery takes one, and changelogs after it.
        f"{_STATE}.maintenanceInterval": "10s",
        f"{_STATE}.minDeltasForSnapshot": "5",
    }


def provider_settings(provider: str) -> dict[str, str]:
    """Return what turns a state store on, over Spark's defaults."""
    if provider == "cairn":
        from cairn import spark_conf  # noqa: PLC0415 - Spark's own providers run without the jar

        return spark_conf({"spark.master": "local[2]"})
    if provider == "rocksdb":
        return {
            f"{_STATE}.providerClass": f"{_SPARK_PACKAGE}.RocksDBStateStoreProvider",
            f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        }
    return {f"{_STATE}.providerClass": f"{_SPARK_PACKAGE}.HDFSBackedStateStoreProvider"}


def s3_settings(server: MinioProcess, s3a_jars: Path) -> dict[str, str]:
    """Return what ``s3a://`` needs: Hadoop's client and where the server is."""
    return {
        "spark.driver.extraClassPath": f"{s3a_jars}/*",
        "spark.hadoop.fs.s3a.endpoint": server.endpoint_url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": server.access_key,
        "spark.hadoop.fs.s3a.secret.key": server.secret_key,
    }


def write_properties(settings: dict[str, str], path: Path) -> None:
    """Write a properties file that only its owner reads: secrets stay off the command line."""
    path.touch(mode=0o600)
    lines = (f"{key} {value}\n" for key, value in sorted(settings.items()))
    path.write_text("".join(lines))
