"""The command `cairn`: its standard output for shells, its errors for people."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click
import pytest
from click.testing import CliRunner, Result

import cairn
from cairn.cli.main import COMMANDS, main

Run: TypeAlias = Callable[..., Result]


def test_jar_prints_the_path_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`spark-submit --jars $(cairn jar)` takes every word of the output as a jar."""
    jar = tmp_path / "cairn-shim-4.2.jar"
    jar.touch()
    monkeypatch.setattr("cairn.jar.BUILT", tmp_path / "absent")
    monkeypatch.setattr("cairn.jar.PACKAGED", tmp_path)

    result = CliRunner().invoke(main, ["jar", "--spark", "4.2"])

    assert result.exit_code == 0
    assert result.stdout == f"{jar}\n"


def test_jar_prints_the_bytes_of_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The shell passes them on; the name of a folder need not be UTF-8."""
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    (folder / "cairn-shim-4.2.jar").touch()
    monkeypatch.setattr("cairn.jar.BUILT", tmp_path / "absent")
    monkeypatch.setattr("cairn.jar.PACKAGED", folder)

    result = CliRunner().invoke(main, ["jar", "--spark", "4.2"])

    assert result.stdout_bytes == bytes(folder) + b"/cairn-shim-4.2.jar\n"


def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No traceback where the user can correct the fault; the shell reads an empty output."""
    monkeypatch.setattr("cairn.jar.BUILT", tmp_path / "absent")
    monkeypatch.setattr("cairn.jar.PACKAGED", tmp_path / "absent")

    result = CliRunner().invoke(main, ["jar"])

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: [CAIRN_CONFIG]")


@pytest.mark.parametrize(
    "arguments",
    [["show", "SAMPLE", "--store", "total"], ["--version"], ["--help"], ["completion", "bash"]],
)
def test_a_full_disk_is_one_line(sample: str, arguments: list[str]) -> None:
    """`cairn show … > file` on a full disk must say so, and not be taken for a fault of Cairn's."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(  # noqa: S603 - the command under test
            [sys.executable, "-m", "cairn", *(one.replace("SAMPLE", sample) for one in arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.startswith("Error: the output cannot be written: [Errno 28]")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls", "SAMPLE"],
        ["show", "SAMPLE", "--store", "total"],
        ["verify", "SAMPLE"],
        ["undo-repartition", "SAMPLE"],
        ["conf"],
        ["jar"],
        ["completion", "bash"],
        ["show", "--help"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_a_closed_output_is_one_line(sample: str, arguments: list[str]) -> None:
    """A service may have closed standard output: who gets nothing must not be told "done"."""
    done = _with_closed(">&-", *(one.replace("SAMPLE", sample) for one in arguments))

    assert done.returncode == 1
    assert done.stderr == "Error: the output cannot be written: [Errno 9] Bad file descriptor\n"


def test_a_file_needs_no_standard_output(sample: str, tmp_path: Path) -> None:
    """Nor does it need standard error, where progress would be."""
    file = str(tmp_path / "x.parquet")

    done = _with_closed(">&- 2>&-", "show", sample, "--store", "total", "--to", file)

    assert done.returncode == 0
    assert Path(file).stat().st_size > 0


def test_rows_come_without_standard_error(sample: str) -> None:
    """A closed one is no reason to fail."""
    done = _with_closed("2>&-", "show", sample, "--store", "total", "-o", "csv")

    assert done.returncode == 0
    assert done.stdout.startswith("customer,")


def _with_closed(closed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose shell closes a stream."""
    command = [sys.executable, "-m", "cairn", *arguments]
    return subprocess.run(  # noqa: S603 - the command under test
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )


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


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_one_says_itself(name: str) -> None:
    """The list has its own words, so that it needs no import: they begin alike."""
    command = main.get_command(click.Context(main), name)

    assert command is not None
    assert command.name == name
    assert COMMANDS[name].split()[0] == (command.help or "").split()[0]


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ("'--help'", {}),
        ("'show', '--help'", {}),
        ("", {"_CAIRN_COMPLETE": "bash_complete", "COMP_WORDS": "cairn sh", "COMP_CWORD": "1"}),
    ],
    ids=["help", "help of a command", "completion"],
)
def test_help_imports_no_library_of_data(arguments: str, environment: dict[str, str]) -> None:
    """Help and completion must answer at once; these libraries take half a second."""
    program = (
        "import sys\nfrom cairn.cli.main import main\n"
        f"try:\n    main([{arguments}], prog_name='cairn')\n"
        "finally:\n    print(*sys.modules, file=sys.stderr)"
    )

    done = subprocess.run(  # noqa: S603 - the program above
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "show" in done.stdout
    modules = set(done.stderr.split())
    assert "cairn.cli.main" in modules
    assert not modules & {"pyarrow", "numpy", "boto3", "rocksdict", "duckdb", "py4j"}


def test_conf_prints_arguments_for_spark_submit(run: Run) -> None:
    """`spark-submit $(cairn conf) job.py`: each line is two words."""
    done = run("conf", "workers=2", "--conf", "spark.master=yarn")

    words = done.stdout.split()
    assert done.exit_code == 0
    assert set(words[::2]) == {"--conf"}
    settings = dict(word.split("=", 1) for word in words[1::2])
    job = {"spark.master": "yarn"}
    assert settings == cairn.spark_conf(job, workers=2)
    assert json.loads(run("conf", "-o", "json").stdout) == cairn.spark_conf()


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["localDir=/a b"], 2, "-o properties"),
        (["wokers=2"], 1, "workers"),
        (["workers"], 2, "name=value"),
    ],
)
def test_conf_refuses_what_a_shell_or_cairn_would_not_take(
    run: Run, arguments: list[str], code: int, word: str
) -> None:
    """A value with a space would become two arguments of spark-submit."""
    done = run("conf", *arguments)

    assert (done.exit_code, done.stdout) == (code, "")
    assert word in done.stderr


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("/a b", "/a b"),
        ("/a\nspark.master local\t", r"/a\u000aspark.master local\u0009"),
        ("a\\b", r"a\\b"),
        ("=:a", r"\=:a"),
        ("ä\N{GRINNING FACE}", r"\u00e4\ud83d\ude00"),
    ],
)
def test_properties_are_what_java_reads(run: Run, value: str, shown: str) -> None:
    """A new line in a value must not become another setting of the job."""
    done = run("conf", f"localDir={value}", "-o", "properties")

    assert done.exit_code == 0
    name = "spark.sql.streaming.stateStore.cairn.localDir"
    assert [line for line in done.stdout.splitlines() if name in line] == [f"{name} {shown}"]
    assert len(done.stdout.splitlines()) == len(cairn.spark_conf(localDir=value))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run: Run, shell: str) -> None:
    """The script asks the command itself what fits."""
    done = run("completion", shell)

    assert done.exit_code == 0
    assert f"_CAIRN_COMPLETE={shell}_complete" in done.stdout
