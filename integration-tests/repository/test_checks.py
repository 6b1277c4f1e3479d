"""The programs of `make check` find faults in small trees that have them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.spark import REPOSITORY

pytestmark = pytest.mark.tools

JAVA = "jvm-shim/src/main/java/io/cairn/spark"
PYTHON = "python/src/cairn"


def test_a_missing_formatter_is_no_passed_check(tmp_path: Path) -> None:
    """Code that nobody formatted went into main while `make check` said that all had passed."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    script = shutil.copy(REPOSITORY / "scripts" / "java_format.sh", scripts)

    done = subprocess.run([script, "--check"], capture_output=True, text=True, check=False)

    assert done.returncode == 3  # check.sh then prints NOT CHECKED
    assert "google-java-format is not installed" in done.stderr


def layers_of(folder: Path, files: dict[str, str]) -> tuple[int, str]:
    """Write the files and check their layers; return the exit code and the output."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    program = REPOSITORY / "scripts" / "check_layers.py"
    command = [sys.executable, str(program), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def java(package: str, name: str, body: str = "", imports: str = "") -> dict[str, str]:
    """Return a Java class as a file."""
    text = f"package io.cairn.spark.{package};\n{imports}\nclass {name} {{ {body} }}\n"
    return {f"{JAVA}/{package.replace('.', '/')}/{name}.java": text}


def test_a_tree_without_faults_passes(tmp_path: Path) -> None:
    """A name in a comment, a string or a link in Javadoc is not a use of a class."""
    downwards = "import io.cairn.spark.cache.memory.Slabs;\nimport java.util.Map;"
    entry = 'Map.Entry<String, String> one; String text = "Pool"; // Pool\n/** {@link Pool} */'
    files = {
        **java("cache", "Scan", "Slabs slabs; Entry entry;", downwards),
        **java("cache", "Entry"),
        **java("cache.memory", "Slabs", entry, "import java.util.Map;"),
        **java("cache.memory", "Pool", "Slabs slabs;"),
        **java("cache.memory", "Entry", "Pool pool;"),
        f"{PYTHON}/__init__.py": "from cairn.a import one\n",
        f"{PYTHON}/a.py": "from cairn import b\n",
        f"{PYTHON}/b.py": '"""Not cairn.a."""\n',
    }

    assert layers_of(tmp_path, files) == (0, "5 classes and 3 modules: no fault\n")


@pytest.mark.parametrize(
    "imported",
    ["import io.cairn.spark.cache.Scan;", "import static io.cairn.spark.cache.Scan.LIMIT;"],
)
def test_an_import_upwards_fails(tmp_path: Path, imported: str) -> None:
    """A lower package that imports a higher one cannot be read, or tested, without it."""
    files = {**java("cache", "Scan"), **java("cache.memory", "Slabs", imports=imported)}

    code, output = layers_of(tmp_path, files)

    assert code == 1
    assert "io.cairn.spark.cache.memory.Slabs imports io.cairn.spark.cache.Scan" in output


def test_a_package_in_no_layer_fails(tmp_path: Path) -> None:
    """Without a layer a new package would not be checked."""
    code, output = layers_of(tmp_path, java("helpers", "Text"))

    assert (code, output) == (1, "package helpers is in no layer\n")


def test_a_circle_in_one_java_package_is_shown_as_a_path(tmp_path: Path) -> None:
    """Within a package no import shows it: three files that need each other are one file."""
    files = {
        **java("cache", "A", "B b;"),
        **java("cache", "B", "C c() { return C.create(); }"),
        **java("cache", "C", "static C create() { return null; } A a;"),
        **java("cache", "Outside", "A a;"),
    }

    code, output = layers_of(tmp_path, files)

    path = " > ".join(f"io.cairn.spark.cache.{name}" for name in "ABCA")
    assert (code, output) == (1, f"circle: {path}\n")


def test_a_circle_of_python_types_is_shown_as_a_path(tmp_path: Path) -> None:
    """An import only for types couples modules too, and so does one inside a function."""
    files = {
        f"{PYTHON}/__init__.py": "",
        f"{PYTHON}/a.py": "if TYPE_CHECKING:\n    from cairn.b import B\n",
        f"{PYTHON}/b/__init__.py": "def f():\n    from .inner import C\n",
        f"{PYTHON}/b/inner.py": "from cairn import a\n",
    }

    code, output = layers_of(tmp_path, files)

    assert (code, output) == (1, "circle: cairn.a > cairn.b > cairn.b.inner > cairn.a\n")
