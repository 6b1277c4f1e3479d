"""`cairn.spark_conf`: one dictionary that turns Cairn on; unknown settings are refused."""

import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError

import cairn
from cairn import spark_conf as spark_conf_function
from cairn.errors import ConfigError

PREFIX = "spark.sql.streaming.stateStore."


class StartedJvm:
    """PySpark's view of a JVM that runs: what `cairn.spark_conf` asks it.

    Args:
        monkeypatch: gives the view to PySpark.
        has_jar: whether the JVM has Cairn's jar; an error: it has ended.
        settings: of `spark-submit`.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        has_jar: bool | Exception,
        settings: dict[str, str] | None = None,
    ) -> None:
        self._has_jar = has_jar
        pairs = [
            SimpleNamespace(_1=lambda name=name: name, _2=lambda value=value: value)
            for name, value in (settings or {}).items()
        ]
        spark = SimpleNamespace(util=SimpleNamespace(Utils=self))
        self.org = SimpleNamespace(apache=SimpleNamespace(spark=spark))
        self.SparkConf = lambda _: SimpleNamespace(getAll=lambda: pairs)
        monkeypatch.setattr("pyspark.SparkContext._gateway", object())
        monkeypatch.setattr("pyspark.SparkContext._jvm", self)

    def classIsLoadable(self, name: str) -> bool:  # noqa: N802 - Spark's name
        """Return whether the JVM has a class."""
        assert name == "io.cairn.spark.CairnStateStoreProvider"
        if isinstance(self._has_jar, Exception):
            raise self._has_jar
        return self._has_jar


@pytest.fixture(autouse=True)
def _an_installation_with_its_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A jar where Gradle builds it, and an environment that names no Python."""
    jar = tmp_path / "4.3" / "libs" / "cairn-shim-4.3.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    monkeypatch.setattr("cairn.jar.BUILT", tmp_path)
    monkeypatch.setattr("cairn.jar.installed_minor", lambda: "4.3")
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT", "MASTER"):
        monkeypatch.delenv(name, raising=False)


def test_a_session_gets_provider_format_and_jar() -> None:
    """Without one of the three the query would silently run on Spark's own store."""
    conf = spark_conf_function()

    assert conf[PREFIX + "providerClass"] == "io.cairn.spark.CairnStateStoreProvider"
    assert conf[PREFIX + "checkpointFormatVersion"] == "2"
    assert conf["spark.jars"] == str(cairn.jar_path())


def test_a_session_gets_the_file_manager_of_the_checkpoint() -> None:
    """Without it a small batch on S3 costs fifty requests for Spark's own files."""
    name = "spark.sql.streaming.checkpointFileManagerClass"

    assert spark_conf_function()[name] == "io.cairn.spark.CairnCheckpointFileManager"
    assert spark_conf_function({name: "org.example.Own"})[name] == "org.example.Own"


def test_the_jars_of_the_job_are_kept() -> None:
    """A job that names connectors by `spark.jars` still needs them."""
    conf = spark_conf_function({"spark.jars": "/kafka.jar,/more.jar"})

    assert conf["spark.jars"].split(",") == ["/kafka.jar", "/more.jar", str(cairn.jar_path())]


def test_a_submitted_job_keeps_the_jars_of_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that the job sets would replace that of --jars and --packages."""
    submit(monkeypatch, {})

    assert "spark.jars" not in spark_conf_function({"spark.jars": "/kafka.jar"})


def submit(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], *, has_jar: bool = True
) -> None:
    """Let `spark-submit` have started the JVM with these settings."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    StartedJvm(monkeypatch, has_jar=has_jar, settings=settings)


def test_a_submitted_job_keeps_the_settings_of_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session's settings replace those of the command: pods of 16 GB got 766 MB of overhead."""
    of_command = {
        "spark.master": "k8s://cluster",
        "spark.executor.memory": "16g",
        "spark.sql.extensions": "org.example.Own",
        PREFIX + "checkpointFormatVersion": "1",
        PREFIX + "cairn.workers": "1",
    }
    submit(monkeypatch, of_command)

    conf = spark_conf_function()

    assert conf["spark.executor.memoryOverhead"] == f"{math.ceil(16384 * 0.4) + 100 + 256}m"
    assert conf["spark.sql.extensions"] == "org.example.Own,io.cairn.spark.CairnExtensions"
    assert conf[PREFIX + "checkpointFormatVersion"] == "1"
    assert (
        spark_conf_function({"spark.master": "local"})
        .keys()
        .isdisjoint({"spark.executor.memoryOverhead"})
    )


def test_a_job_submitted_without_the_jar_says_what_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's class path is complete when the job begins: a class would be missing later."""
    submit(monkeypatch, {}, has_jar=False)

    with pytest.raises(ConfigError, match=r'without Cairn\'s jar.*--jars "\$\(cairn jar\)"'):
        spark_conf_function()


def test_an_earlier_session_without_the_jar_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`spark.jars` comes too late for a JVM that runs: the query would miss a class."""
    StartedJvm(monkeypatch, has_jar=False)

    with pytest.raises(ConfigError, match=r"earlier Spark session.*start Python again"):
        spark_conf_function()


def test_an_earlier_session_with_the_jar_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook calls it again."""
    StartedJvm(monkeypatch, has_jar=True)

    assert spark_conf_function()["spark.jars"] == str(cairn.jar_path())


def test_a_pyspark_that_starts_no_jvm_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of Spark Connect's client alone."""
    monkeypatch.delattr("pyspark.SparkContext")

    assert spark_conf_function()["spark.jars"] == str(cairn.jar_path())


def test_a_jvm_that_has_ended_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of it; the next session starts another one, or says why not."""
    StartedJvm(monkeypatch, has_jar=Py4JNetworkError("the JVM has ended"))

    assert spark_conf_function()["spark.jars"] == str(cairn.jar_path())


def test_the_job_s_own_choices_stay() -> None:
    """A query for the file sink needs checkpoint format 1; an engine may have its own Python."""
    job = {
        "spark.master": "local[2]",
        PREFIX + "checkpointFormatVersion": "1",
        PREFIX + "cairn.python": "/opt/engine/bin/python",
        PREFIX + "cairn.workers": "2",
    }

    conf = spark_conf_function(job, workers=3)

    assert conf[PREFIX + "checkpointFormatVersion"] == "1"
    assert conf[PREFIX + "cairn.python"] == "/opt/engine/bin/python"
    assert conf[PREFIX + "cairn.workers"] == "3"


def test_the_extensions_of_the_job_are_kept() -> None:
    """A job that uses Delta needs both; without Cairn's, keys are read one at a time."""
    alone = spark_conf_function()
    beside = spark_conf_function(
        {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"}
    )

    assert alone["spark.sql.extensions"] == "io.cairn.spark.CairnExtensions"
    assert beside["spark.sql.extensions"].split(",") == [
        "io.delta.sql.DeltaSparkSessionExtension",
        "io.cairn.spark.CairnExtensions",
    ]


def test_own_settings_go_under_the_prefix() -> None:
    """Names are those of docs/configuration.md, values what Spark writes."""
    conf = spark_conf_function(workers=2, **{"s3.pathStyle": True, "s3.region": None})

    assert conf[PREFIX + "cairn.workers"] == "2"
    assert conf[PREFIX + "cairn.s3.pathStyle"] == "true"
    assert PREFIX + "cairn.s3.region" not in conf


def test_an_unknown_setting_names_the_nearest_known_one() -> None:
    """A misspelt setting would be ignored silently until memory runs out."""
    with pytest.raises(ConfigError, match=r"cahceMemory is not a setting; .* is cacheMemory"):
        spark_conf_function(cahceMemory="1g")


def test_the_engine_runs_on_the_python_of_spark() -> None:
    """Its packages are installed there; another python3 on PATH may not have them."""
    conf = spark_conf_function({"spark.pyspark.python": "/opt/py/bin/python"})

    assert conf[PREFIX + "cairn.python"] == "/opt/py/bin/python"


def test_the_engine_runs_on_the_python_of_the_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's may have another path."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/driver/python")

    job = {"spark.executorEnv.PYSPARK_PYTHON": "/opt/py/bin/python", "spark.master": "yarn"}

    conf = spark_conf_function(job)
    local = spark_conf_function(job | {"spark.master": "local[2]"})

    assert conf[PREFIX + "cairn.python"] == "/opt/py/bin/python"
    assert local[PREFIX + "cairn.python"] == "/driver/python"


def test_a_local_master_runs_the_engine_on_this_python() -> None:
    """A notebook in a virtual environment has its packages there and nowhere else."""
    assert (
        spark_conf_function({"spark.master": "local[2]"})[PREFIX + "cairn.python"] == sys.executable
    )
    assert PREFIX + "cairn.python" not in spark_conf_function({"spark.master": "yarn"})


@pytest.mark.parametrize(
    ("job", "settings", "expected_mib"),
    [
        ({"spark.master": "yarn"}, {}, 384 + 100 + 256),
        ({"spark.master": "yarn", "spark.executor.memory": "8g"}, {}, 820 + 100 + 256),
        ({"spark.master": "k8s://https://host"}, {}, 410 + 100 + 256),
        ({"spark.master": "yarn", "spark.executor.memoryOverhead": "1g"}, {}, 1024 + 100 + 256),
        (
            {"spark.master": "yarn", "spark.executor.minMemoryOverhead": "4g"},
            {},
            4096 + 100 + 256,
        ),
        (
            {"spark.master": "k8s://https://host", "spark.kubernetes.memoryOverheadFactor": "0.8"},
            {},
            820 + 100 + 256,
        ),
        ({"spark.master": "yarn", "spark.executor.cores": "9"}, {}, 384 + 200 + 256),
        ({"spark.master": "yarn", "spark.executor.cores": "32"}, {}, 384 + 800 + 1024),
        ({"spark.master": "yarn"}, {"workers": 2, "workerMemory": "1g"}, 384 + 200 + 1024),
        ({"spark.master": "yarn", PREFIX + "cairn.workerMemory": "1g"}, {}, 384 + 100 + 1024),
    ],
)
def test_containers_get_memory_for_the_workers(
    job: dict[str, str], settings: dict[str, object], expected_mib: int
) -> None:
    """YARN and Kubernetes kill an executor whose overhead does not include the engine."""
    assert spark_conf_function(job, **settings)["spark.executor.memoryOverhead"] == (
        f"{expected_mib}m"
    )


def test_other_masters_keep_their_overhead() -> None:
    """Local and standalone masters have no container to enlarge."""
    assert "spark.executor.memoryOverhead" not in spark_conf_function({"spark.master": "local[2]"})


@pytest.mark.parametrize("size", ["536870912", "536870912b", "512m", "512MB", "512MiB"])
def test_sizes_may_have_binary_units(size: str) -> None:
    """The shim accepts the same spellings, so the overhead must not be refused for one of them."""
    job = {"spark.master": "yarn", "spark.executor.memory": "4g"}

    conf = spark_conf_function(job, workerMemory=size)

    assert conf["spark.executor.memoryOverhead"] == "1022m"


def test_a_malformed_size_is_refused() -> None:
    """A size like 0.5g would otherwise fail minutes later, on the cluster."""
    for size in ("0.5g", "9" * 5_000):
        with pytest.raises(ConfigError, match="workerMemory is not a size"):
            spark_conf_function({"spark.master": "yarn"}, workerMemory=size)


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        ({"spark.executor.cores": "four"}, {}),
        ({"spark.task.cpus": "0"}, {}),
        ({"spark.executor.memoryOverheadFactor": "10%"}, {}),
        ({"spark.executor.memoryOverheadFactor": "nan"}, {}),
        ({"spark.executor.memoryOverheadFactor": "inf"}, {}),
        ({"spark.executor.memoryOverheadFactor": "1e308"}, {}),
        ({}, {"workers": "many"}),
    ],
)
def test_a_malformed_number_is_refused(job: dict[str, str], settings: dict[str, object]) -> None:
    """The message of int() names neither the setting nor what to do."""
    (name,) = [*job, *settings]
    with pytest.raises(ConfigError, match=f"{name} is not a positive number"):
        spark_conf_function({"spark.master": "yarn", **job}, **settings)


def test_an_installation_without_the_jar_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without it the job would fail later, with a ClassNotFoundException of an executor."""
    monkeypatch.setattr("cairn.jar.BUILT", tmp_path / "absent")
    monkeypatch.setattr("cairn.jar.PACKAGED", tmp_path / "absent")

    with pytest.raises(ConfigError, match="no shim jar"):
        spark_conf_function()
