"""The programs of `make check` find faults in small trees that have them."""

from __future__ import annotations

import re
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


def privates_of(folder: Path, name: str, text: str) -> tuple[int, str]:
    """Write a test beside a class of Cairn's; check it and return the exit code and the output."""
    files = {
        f"{PYTHON}/store.py": """class Base:
    def __init__(self): self._left = 1
    def _count(self): ...
class Store(Base): ...
""",
        name: text,
    }
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    program = REPOSITORY / "scripts" / "check_privates.py"
    command = [sys.executable, str(program), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "store._left = 1  # noqa: SLF001 - a test cannot be there otherwise",
        "# ruff: noqa\nstore._left",
        "from cairn.store import _LIMIT",
        "from cairn.store import (\n    Store,\n    _LIMIT as LIMIT,\n)",
        "import cairn._store",
        "monkeypatch.setattr('cairn.store._LIMIT', 3)",
        "monkeypatch.setattr(store, '_LIMIT', 3)",
        "monkeypatch.setattr(f'{MODULE}._LIMIT', 3)",
        "monkeypatch.setattr(target=store, name='_LIMIT', value=3)",
        "mock.patch('cairn.store._LIMIT', 3)",
        "mock.patch.object(store, '_LIMIT', 3)",
        "mock.patch.multiple(store, _LIMIT=3)",
        "getattr(store, '_left')",
        "class Own(Store):\n    def _count(self): ...",
        "class Own(store.Base):\n    def left(self): return self._left",
        "class Kit(Store): ...\nclass Own(Kit):\n    def left(self): return self._left",
        "class Own(Store):\n    def count(self): return super()._count()",
        "def late(self):\n    self._left = 2",
    ],
)
def test_a_test_that_looks_into_private_parts_is_found(tmp_path: Path, text: str) -> None:
    """It binds how a thing is done, and says nothing of what it promises."""
    code, output = privates_of(tmp_path, "python/tests/unit/test_it.py", f"{text}\n")

    assert code == 1
    assert "python/tests/unit/test_it.py:" in output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("python/tests/property/test_it.py", "from cairn.store import _LIMIT"),
        ("python/tests/unit/test_it.py", "frame._jdf  # noqa: SLF001"),
        ("python/tests/unit/test_it.py", "monkeypatch.setattr('cairn.store.LIMIT', '_x')"),
        ("integration-tests/x/test_it.py", "class Own(Store):\n    def f(self): self._own = 1"),
        ("integration-tests/x/test_it.py", "import __future__\nfor _ in it: print(_.x, 'a._b')"),
        ("jvm-shim/src/main/java/A.java", 'A.class.getDeclaredField("x");'),
        ("jvm-shim/src/test/java/A.java", '// getDeclaredField("x")\nA.class.getFields();'),
        ("jvm-shim/src/test/java/A.java", 'TaskContextImpl.class.getDeclaredField("id");'),
    ],
)
def test_what_is_public_or_not_cairns_is_no_private_part(
    tmp_path: Path, name: str, text: str
) -> None:
    """A check that is wrong once is switched off."""
    code, output = privates_of(tmp_path, name, f"{text}\n")

    assert code == 0, output


@pytest.mark.parametrize("folder", ["jvm-shim/src/test", "jvm-shim/src/since-4.2/test"])
@pytest.mark.parametrize(
    "text",
    [
        'Field field = Store.class.getDeclaredField("x");\nfield.setAccessible(true);',
        'Method method =\n    Class.forName("Store")\n        .getDeclaredMethod("x");',
        "store.getClass().getDeclaredFields();",
        "MethodHandles.privateLookupIn(Store.class, lookup);",
    ],
)
def test_a_java_test_that_looks_into_private_parts_is_found(
    tmp_path: Path, folder: str, text: str
) -> None:
    """Tests are in the packages of what they test: what they need is visible there."""
    code, output = privates_of(tmp_path, f"{folder}/java/StoreTest.java", f"{text}\n")

    assert code == 1
    assert f"{folder}/java/StoreTest.java:" in output


def decisions_of(folder: Path, statuses: dict[str, str]) -> tuple[int, str]:
    """Write decisions, and an index that has 0001-a.md; check it and return code and output."""
    (folder / "docs" / "adr").mkdir(parents=True)
    for name, status in statuses.items():
        text = f"# {int(name[:4])}. About it\n\nStatus: {status}\n\n## Context\n"
        (folder / "docs" / "adr" / name).write_text(text)
    row = "| [1](0001-a.md) | About it | accepted |\n"
    (folder / "docs" / "adr" / "README.md").write_text(f"# Decisions\n\n{row}")
    (folder / "scripts").mkdir()
    program = shutil.copy(REPOSITORY / "scripts" / "adr_index.py", folder / "scripts")
    command = [sys.executable, str(program), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("statuses", "fault"),
    [
        ({"0001-a.md": "accepted"}, None),
        ({"0001-a.md": "accepted", "0002-b.md": "accepted"}, "0002-b.md must have one row"),
        ({"0002-b.md": "accepted"}, "0001-a.md does not exist"),
        ({"0001-a.md": "accepted", "0003-c.md": "accepted"}, "no decision has the numbers [2]"),
        ({"0001-a.md": "rejected"}, "is not up to date"),
        ({"0001-a.md": "obsolete"}, "0001-a.md: its status must match"),
        ({"0001-a.md": "superseded by [ADR 2](0002-b.md)"}, "links to no such decision: ADR 2"),
    ],
)
def test_the_index_of_decisions_is_as_their_files_are(
    tmp_path: Path, statuses: dict[str, str], fault: str | None
) -> None:
    """A reader who takes a superseded decision for the present one builds on sand."""
    code, output = decisions_of(tmp_path, statuses)

    assert code == (fault is not None)
    assert (fault or "as their files are") in output


def links_of(folder: Path, page: str) -> tuple[int, str]:
    """Check a tree of two pages; return the exit code and the output."""
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    (folder / "docs").mkdir()
    (folder / "docs" / "other.md").write_text("# A `code` title\n## Same\n## Same\n")
    (folder / "page.md").write_text(page)
    program = REPOSITORY / "scripts" / "check_links.py"
    command = [sys.executable, str(program), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def test_links_that_lead_to_a_file_and_a_heading_pass(tmp_path: Path) -> None:
    """Links in code are text, and other sites are not asked."""
    page = (
        "# Here\n[a](docs/other.md#a-code-title) [b](docs/other.md#same-1)\n"
        "[c](#here) [`d`](https://x.example/) `[e](nowhere)`\n```\n[f](nowhere)\n```\n"
    )

    assert links_of(tmp_path, page)[0] == 0


@pytest.mark.parametrize(
    "link",
    ["[a](docs/nowhere.md)", "[`a`](docs/other.md#other)", "[a](#there)", '<img src="x.svg">'],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, link: str) -> None:
    """A heading that was renamed sends readers to the top of a page, without a word."""
    code, output = links_of(tmp_path, f"# Here\n{link}\n")

    assert code == 1
    assert "page.md: " in output
    assert "leads nowhere" in output


@pytest.mark.parametrize(
    ("link", "code"),
    [("other.html#here", 0), ("https://x.example/", 0), ("other.html#there", 1), ("no.html", 1)],
)
def test_a_link_of_the_site_that_leads_nowhere_is_found(
    tmp_path: Path, link: str, code: int
) -> None:
    """What is right in the repository can be wrong on the site: its pages have other names."""
    (tmp_path / "page.html").write_text(f'<a href="{link}">a</a>')
    (tmp_path / "other.html").write_text('<h2 id="here">Here</h2>')
    program = REPOSITORY / "scripts" / "site_pages.py"

    command = [sys.executable, str(program), "check", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == code, done.stdout + done.stderr


def test_the_links_of_copied_pages_lead_to_pages_or_to_the_repository() -> None:
    """A link to a source file has no page on the site."""
    program = REPOSITORY / "scripts" / "site_pages.py"
    subprocess.run([sys.executable, str(program), "pages"], check=True)
    copied = REPOSITORY / ".build" / "site-pages"

    operations = (copied / "docs" / "operations.md").read_text("utf-8")
    assert "](../SECURITY.md#" in operations
    assert re.search(r"\]\(https://[^)]+/tree/main/docker\)", operations)
    assert (copied / "docs" / "images" / "rates-dark.svg").is_file()
