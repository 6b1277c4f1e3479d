"""Wheel and sdist: what they contain, that every build has the same bytes, and that they work."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pyspark
import pytest

from cairn.spark_minor import SUPPORTED
from harness.small_query import QUERY
from harness.spark import MINOR, REPOSITORY

VERSION = (REPOSITORY / "python/src/cairn/VERSION").read_text().strip()
JAR = f"cairn/jars/cairn-shim-{MINOR}.jar"
PYTHONS = ("3.11", "3.12", "3.13")
_LIMIT_S = 900
_SESSION = """
from pyspark.sql import SparkSession
import cairn

job = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
builder = SparkSession.builder
for key, value in {**job, **cairn.spark_conf(job)}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
print(cairn.__file__)
"""


def _run(*command: str | Path, folder: Path) -> str:
    """Run as a user does who has no checkout; return the output."""
    hidden = {"PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        command,
        cwd=folder,
        # The packages of this checkout, which a test may share, get no bytecode of other Pythons.
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def _copy(folder: Path, *parts: str) -> Path:
    """Copy these parts of the tree, without what git ignores, as a clone would have them."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *parts]
    names = subprocess.run(listing, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    for name in filter(None, names.stdout.split("\0")):
        if (REPOSITORY / name).exists():  # not deleted since the last commit
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name, follow_symlinks=False)
    return folder


def _build(folder: Path) -> tuple[Path, Path]:
    """Build the package of a copy; return the wheel and the sdist."""
    _copy(folder, "python/src", "python/*.*", "python/LICENSE", "README.md", "LICENSE")
    jar = folder / "python/src" / JAR
    jar.parent.mkdir()
    shutil.copyfile(REPOSITORY / "python/src" / JAR, jar)
    command = (sys.executable, "-m", "hatchling", "build", "--directory", folder / "dist")
    _run(*command, folder=folder / "python")
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and an sdist of the present tree, with the jar for the present Spark."""
    return _build(tmp_path_factory.mktemp("one"))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"cairn_state-{VERSION}.dist-info/METADATA").decode()
    return HeaderParser().parsestr(text)


def test_two_builds_have_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Nobody can check that a wheel was built from its tag if folder, clock or umask show in it."""
    before = os.umask(0o077)
    try:
        others = _build(tmp_path / "another folder")
    finally:
        os.umask(before)

    assert [_sha256(one) for one in built] == [_sha256(other) for other in others]


def test_the_sdist_builds_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    """`pip install --no-binary` takes it: without jars, README or LICENSE it would be a torso."""
    wheel, sdist = built
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    _run(sys.executable, "-m", "pip", "wheel", *options, sdist, folder=tmp_path)

    assert _sha256(tmp_path / wheel.name) == _sha256(wheel)


def test_both_have_what_a_user_needs(built: tuple[Path, Path]) -> None:
    """The licence demands its text; without py.typed no type checker sees the types."""
    wheel, sdist = built
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}

    package = {"cairn/py.typed", "cairn/VERSION", "cairn/prices.json", "cairn/settings.json", JAR}
    assert package | {f"cairn_state-{VERSION}.dist-info/licenses/LICENSE"} <= in_wheel
    assert {*(f"src/{name}" for name in package), "LICENSE", "README.md"} <= in_sdist
    assert {name.partition("/")[0] for name in in_wheel} == {
        "cairn",
        f"cairn_state-{VERSION}.dist-info",
    }


def test_the_package_index_accepts_them(built: tuple[Path, Path], tmp_path: Path) -> None:
    """It would refuse the upload, or show the README as plain text."""
    output = _run(sys.executable, "-m", "twine", "check", "--strict", *built, folder=tmp_path)

    assert output.count("PASSED") == len(built)


def test_every_link_of_its_page_leads_to_a_file(built: tuple[Path, Path]) -> None:
    """A relative link leads nowhere on the package index."""
    metadata = _metadata(built[0])
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)|\b(?:href|src|srcset)=\"([^\"\s]+)", text)
    targets = [first or second for first, second in links]
    of_repository = (
        rf"{re.escape(urls['Source'])}/(?:blob|raw|tree)/v{re.escape(VERSION)}/([^#]+).*"
    )
    files = [re.fullmatch(of_repository, target) for target in [*targets, *urls.values()]]
    names = [match[1] for match in files if match]

    assert [one for one in targets if not one.startswith(("https://", "#"))] == []
    assert {"docs", "CHANGELOG.md", "docs/configuration.md"} <= set(names)
    assert [name for name in names if not (REPOSITORY / name).exists()] == []


def test_its_page_names_what_the_code_supports(built: tuple[Path, Path]) -> None:
    """The extra must not install a Spark for which the wheel has no jar."""
    metadata = _metadata(built[0])
    classifiers = metadata.get_all("Classifier", [])
    spark = [one for one in metadata.get_all("Requires-Dist", []) if "extra == 'spark'" in one]
    major, last = map(int, SUPPORTED[-1].split("."))

    assert spark == [f"pyspark<{major}.{last + 1},>={SUPPORTED[0]}; extra == 'spark'"]
    assert {f"Programming Language :: Python :: {one}" for one in PYTHONS} <= set(classifiers)


def _interpreter(minor: str) -> str:
    """Return a Python of this minor that can create virtual environments; skip without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(f"python{minor}")
    found = [*pyenv.glob(f"versions/{minor}.*/bin/python"), *([Path(on_path)] if on_path else [])]
    question = "import ensurepip, sys; print('{}.{}'.format(*sys.version_info))"
    for python in (Path(sys.executable), *found):
        asked = subprocess.run(
            [python, "-c", question], capture_output=True, text=True, check=False
        )
        if asked.stdout.strip() == minor:
            return str(python)
    pytest.skip(f"no Python {minor} with ensurepip on PATH or in {pyenv}/versions")


@pytest.mark.slow
@pytest.mark.parametrize("minor", PYTHONS)
def test_the_installed_wheel_runs_a_query(
    built: tuple[Path, Path], tmp_path: Path, minor: str
) -> None:
    """In a checkout a dependency or a file that the wheel lacks is not missed."""
    environment = tmp_path / "environment"
    _run(_interpreter(minor), "-m", "venv", environment, folder=tmp_path)
    python = environment / "bin" / "python"
    # 400 MB of jars and pure Python, which fit every minor. pip does not see this Spark, so that it
    # never uninstalls it.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "pyspark").symlink_to(Path(pyspark.__file__).parent)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    constraints = REPOSITORY / "python" / "constraints.txt"
    _run(*pip, "-c", constraints, built[0], folder=tmp_path)
    (tmp_path / "job.py").write_text(_SESSION + QUERY)

    output = _run(python, "job.py", folder=tmp_path)

    assert output.strip() == str(packages / "cairn" / "__init__.py")
    assert list((tmp_path / "checkpoint").glob("state/0/*/**/changelog/*.arrow"))


@pytest.mark.slow
def test_a_jar_built_in_another_folder_has_the_same_bytes(tmp_path: Path) -> None:
    """The wheel has the jars inside: if their bytes change, so do the wheel's."""
    parts = ("build.gradle", "settings.gradle", "jvm-shim", "LICENSE", "python/src")
    folder = _copy(tmp_path / "another folder", *parts)
    spark_jars = (REPOSITORY / ".build/stamps/spark-jars").read_text().strip()
    options = ("--no-daemon", "--console=plain", "-q", f"-PsparkJars={spark_jars}")

    _run("gradle", *options, f"-Ppython={sys.executable}", "jar", folder=folder)

    jar = folder / f"jvm-shim/build/{MINOR}/libs/cairn-shim-{MINOR}.jar"
    assert _sha256(jar) == _sha256(REPOSITORY / "python/src" / JAR)
