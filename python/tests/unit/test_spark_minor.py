"""The jar is that of the Spark that will run; another Spark is refused with the ones that work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cairn import jar, spark_minor
from cairn.errors import ConfigError, SparkVersionError
from cairn.jar import jar_path
from cairn.spark_minor import SUPPORTED, installed_minor

ROOT = Path(__file__).resolve().parents[3]


def spark_in(folder: Path, version: str) -> Path:
    """Create a Spark of which only the name of one jar is there; return its home."""
    jars = folder / "jars"
    jars.mkdir(parents=True)
    (jars / f"spark-core_2.13-{version}.jar").touch()
    return folder


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Hide the installed Spark."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(spark_minor, "find_spec", lambda _: None)
    return monkeypatch


@pytest.mark.parametrize(
    ("version", "minor"), [("4.1.4", "4.1"), ("4.3.0", "4.3"), ("4.2.1-vendor-3", "4.2")]
)
def test_spark_home_decides(
    no_spark: pytest.MonkeyPatch, tmp_path: Path, version: str, minor: str
) -> None:
    """Both pyspark and spark-submit start the Spark in SPARK_HOME, if it is set."""
    no_spark.setenv("SPARK_HOME", str(spark_in(tmp_path, version)))

    assert installed_minor() == minor


@pytest.mark.parametrize("package", ["site-packages/pyspark", "spark/python/pyspark"])
def test_the_package_pyspark_is_next(
    no_spark: pytest.MonkeyPatch, tmp_path: Path, package: str
) -> None:
    """Its jars are inside the package, or beside the folder python of a distribution."""
    folder = tmp_path / package
    folder.mkdir(parents=True)
    spark_in(folder if package.startswith("site") else folder.parents[1], "4.2.0")
    spec = type("Spec", (), {"origin": str(folder / "__init__.py")})
    no_spark.setattr(spark_minor, "find_spec", lambda _: spec)
    no_spark.setenv("SPARK_HOME", str(tmp_path / "absent"))

    assert installed_minor() == "4.2"


@pytest.mark.parametrize("version", ["3.5.9", "4.0.1", "4.30.0", "5.0.0"])
def test_a_spark_without_a_jar_is_refused(
    no_spark: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    """Another jar would load, and fail in the first batch."""
    no_spark.setenv("SPARK_HOME", str(spark_in(tmp_path, version)))

    with pytest.raises(SparkVersionError, match=r"CAIRN_SPARK_VERSION.*4\.1, 4\.2, 4\.3"):
        jar_path()


def test_a_version_without_a_jar_is_refused() -> None:
    """`cairn jar --spark` takes what a user types."""
    for version in ("4.0", "4.30", "43"):
        with pytest.raises(SparkVersionError, match=f"no jar for Spark {re.escape(version)};"):
            jar_path(version)


@pytest.mark.usefixtures("no_spark")
def test_without_spark_the_error_names_the_ways() -> None:
    """A guess could be the wrong jar."""
    with pytest.raises(ConfigError, match=r"SPARK_HOME.*pyspark.*--spark"):
        installed_minor()


def test_each_minor_has_its_jar(no_spark: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One wheel has the jars of all minors side by side."""
    for minor in SUPPORTED:
        (tmp_path / f"cairn-shim-{minor}.jar").touch()
    no_spark.setattr("cairn.jar.PACKAGED", tmp_path)
    no_spark.setattr("cairn.jar.BUILT", tmp_path / "absent")

    jars = [f"cairn-shim-{minor}.jar" for minor in SUPPORTED]
    assert [jar_path(minor).name for minor in SUPPORTED] == jars
    # As `spark-submit --version` prints it.
    assert [jar_path(f"{minor}.0").name for minor in SUPPORTED] == jars


def test_the_supported_minors_are_those_that_are_built() -> None:
    """A minor in one list alone has a jar without support, or support without a jar."""
    sources = {one.name.removeprefix("spark-") for one in ROOT.glob("jvm-shim/src/spark-*")}
    others = {one.stem for one in ROOT.glob("python/minors/*.txt")}

    assert sources == set(SUPPORTED)
    assert len(others) == len(SUPPORTED) - 1
    assert others < set(SUPPORTED)


def test_the_package_may_be_right_below_the_root() -> None:
    """`pip install --target /deps` puts it there; an import must not look for parents beyond."""
    names: dict[str, object] = {"__name__": "cairn.jar", "__file__": "/cairn/jar.py"}

    exec(Path(jar.__file__).read_text(), names)  # noqa: S102 - the module itself

    assert names["PACKAGED"] == Path("/cairn/jars")
