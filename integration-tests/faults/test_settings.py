"""A wrong setting, Python or directory leads to one clear error; once corrected, the query runs."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from cairn.release import RELEASE
from harness.clear_errors import assert_clear
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import CAIRN_CONF, REPOSITORY, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

Make = Callable[[dict[str, str]], Run]


@pytest.fixture
def run_with(tmp_path: Path) -> Make:
    """Return a function that creates runs on one checkpoint, each with its own settings."""
    events = Events(tmp_path / "input")
    events.add_files(0, 2)

    def make(conf: dict[str, str]) -> Run:
        return Run(BY_NAME["totals_complete"], events, str(tmp_path / "cp"), SUBJECT, conf=conf)

    return make


def failure_of(run: Run) -> str:
    """Run to the failure; return its message."""
    with pytest.raises(StreamingQueryException) as failure:
        run.advance()
    return str(failure.value)


def python_without_rocksdict(folder: Path) -> str:
    """Create a Python with all packages of this one, except rocksdict."""
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith("rocksdict"):
            (packages / entry.name).symlink_to(entry)
    return python_with(folder, packages, REPOSITORY / "python" / "src")


def python_with(folder: Path, *packages: Path) -> str:
    """Create a Python that finds the packages of these folders, in this order."""
    venv.create(folder / "venv", symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "venv" / "lib" / version / "site-packages"
    (site / "others.pth").write_text("".join(f"{path}\n" for path in packages))
    return str(folder / "venv" / "bin" / "python")


def python_with_release(folder: Path, release: str) -> str:
    """Create a Python whose package cairn is a copy that says it is of another release."""
    package = REPOSITORY / "python" / "src" / "cairn"
    shutil.copytree(package, folder / "cairn", ignore=shutil.ignore_patterns("jars"))
    (folder / "cairn" / "VERSION").write_text(release)
    return python_with(folder, folder, Path(sysconfig.get_path("purelib")))


def python_in_a_strange_place(folder: Path) -> str:
    """Create a Python that prints, and starts beside modules with the names of others."""
    folder.mkdir()
    for name in ("secrets", "email", "types", "queue", "logging", "numpy"):
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} of the job')\n")
    program = folder / "python"
    program.write_text(
        f"#!/bin/sh\ncd {folder}\necho activating environment\n"
        f'PYTHONPATH=:{folder} exec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("localDri", "/nowhere", "localDir"),
        ("workerMemory", "a lot", "workerMemory"),
        ("workers", "0", "workers"),
        ("orphanGraceMs", "-1", "orphanGraceMs"),
        ("s3.credentials", "guess", "s3.credentials"),
    ],
)
def test_a_wrong_setting_is_named(run_with: Make, name: str, value: str, named: str) -> None:
    """If a misspelled setting is ignored, the job runs with defaults."""
    message = failure_of(run_with({CAIRN_CONF + name: value}))

    assert_clear(message, "CAIRN_CONFIG", named)


def test_a_query_runs_once_its_setting_is_corrected(run_with: Make) -> None:
    """A refused start must leave nothing in the checkpoint that prevents the next start."""
    failure_of(run_with({CAIRN_CONF + "localDri": "/nowhere"}))
    corrected = run_with({})

    corrected.advance()

    assert corrected.record.rows[corrected.record.last_batch]


def test_a_missing_python_is_named(run_with: Make) -> None:
    """Images of executors often lack the driver's Python: the error must name the path."""
    message = failure_of(run_with({CAIRN_CONF + "python": "/nowhere/python3"}))

    assert_clear(message, "CAIRN_PYTHON", "/nowhere/python3")


def test_a_program_other_than_python_is_named(run_with: Make) -> None:
    """A wrapper script that ends at once must not look like a crash of the engine."""
    message = failure_of(run_with({CAIRN_CONF + "python": "/bin/false"}))

    assert "/bin/false" in message
    assert_clear(message, "CAIRN_WORKER_START", "/bin/false")


def test_the_error_of_a_python_without_rocksdict_says_what_to_install(
    run_with: Make, tmp_path: Path
) -> None:
    """The package is missing on the executors, where the job's author does not see it."""
    message = failure_of(
        run_with({CAIRN_CONF + "python": python_without_rocksdict(tmp_path / "py")})
    )

    assert_clear(message, "CAIRN_PYTHON", "rocksdict", "pip install")


def test_what_is_beside_the_job_does_not_stop_the_query(run_with: Make, tmp_path: Path) -> None:
    """People name scripts after what they do, and wrappers of Python tell what they do."""
    run = run_with({CAIRN_CONF + "python": python_in_a_strange_place(tmp_path / "job")})

    run.advance()

    assert run.record.rows[run.record.last_batch]


def test_a_package_of_another_release_is_refused_before_a_row_is_written(
    run_with: Make, tmp_path: Path
) -> None:
    """An image of the executors keeps an old package, and the driver sends a new jar."""
    old = python_with_release(tmp_path / "old", "0.0.9")

    message = failure_of(run_with({CAIRN_CONF + "python": old}))

    assert_clear(message, "CAIRN_RELEASE", "0.0.9", RELEASE)
    assert not list((tmp_path / "cp").rglob("*.arrow"))
    corrected = run_with({})
    corrected.advance()
    assert corrected.record.rows[corrected.record.last_batch]


def test_a_file_system_of_the_job_s_settings_is_used(run_with: Make, tmp_path: Path) -> None:
    """The state must be where Spark's own files are, also if a setting decides where that is."""
    run = run_with({"fs.viewfs.mounttable.here.link./cp": f"file://{tmp_path}/mounted"})
    (tmp_path / "mounted").mkdir()
    run.checkpoint = "viewfs://here/cp/query"

    run.advance()

    assert list((tmp_path / "mounted" / "query" / "state").rglob("*.arrow"))
    assert run.record.rows[run.record.last_batch]


def test_a_local_directory_that_cannot_be_written_is_named(run_with: Make, tmp_path: Path) -> None:
    """A misspelled path, or one of another machine, must be found at the start."""
    (tmp_path / "file").write_text("in the way")
    message = failure_of(run_with({CAIRN_CONF + "localDir": str(tmp_path / "file" / "below")}))

    assert "below" in message
    assert_clear(message, "CAIRN_CONFIG", "below", "localDir")
