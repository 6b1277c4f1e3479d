"""The command `cairn`: its standard output for shells, its errors for people."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import cairn
from cairn.cli.main import main


def test_jar_prints_the_path_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`spark-submit --jars $(cairn jar)` takes every word of the output as a jar."""
    jar = tmp_path / "cairn-shim-4.2.jar"
    jar.touch()
    monkeypatch.setattr("cairn.jar._BUILT", tmp_path / "absent")
    monkeypatch.setattr("cairn.jar._PACKAGED", tmp_path)

    result = CliRunner().invoke(main, ["jar", "--spark", "4.2"])

    assert result.exit_code == 0
    assert result.stdout == f"{jar}\n"


def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No traceback where the user can correct the fault; the shell reads an empty output."""
    monkeypatch.setattr("cairn.jar._BUILT", tmp_path / "absent")
    monkeypatch.setattr("cairn.jar._PACKAGED", tmp_path / "absent")

    result = CliRunner().invoke(main, ["jar"])

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: [CAIRN_CONFIG]")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["undo-repartition", ""], "checkpointLocation"),
        (["undo-repartition", "s3a://b/x", "--s3-endpoint", "minio:9000"], "https://host"),
        (["undo-repartition", "hdfs://h/x", "--jar", "/nowhere.jar"], "/nowhere.jar"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], word: str) -> None:
    """The exit code 2 is that of all commands which were called wrongly."""
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 2
    assert word in result.stderr


def test_the_package_runs_as_the_command() -> None:
    """Executors often have no folder of scripts on PATH."""
    done = subprocess.run(
        [sys.executable, "-m", "cairn", "--version"], capture_output=True, text=True, check=True
    )

    assert done.stdout == CliRunner().invoke(main, ["--version"]).stdout


def test_version_is_that_of_the_package() -> None:
    """Bug reports quote it."""
    result = CliRunner().invoke(main, ["--version"])

    assert cairn.__version__ in result.stdout
