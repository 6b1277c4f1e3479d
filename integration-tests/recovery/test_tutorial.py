"""The commands and the program of docs/tutorial.md, run as a reader runs them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.processes import free_port
from harness.spark import REPOSITORY

TUTORIAL = (REPOSITORY / "docs" / "tutorial.md").read_text("utf-8")
ADDRESS = "127.0.0.1:9000"
LIMIT_S = 600


def blocks(language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TUTORIAL, re.DOTALL | re.MULTILINE)


def test_the_installation_has_verbs_of_make_and_the_package_with_its_spark() -> None:
    """The other test runs in the tests' own environment, which this block does not build."""
    verbs = re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    project = tomllib.loads((REPOSITORY / "python" / "pyproject.toml").read_text())["project"]
    (spark,) = [
        name for name in project["optional-dependencies"]["dev"] if name.startswith("pyspark==")
    ]

    make, *_, install = blocks("bash")[0].splitlines()

    assert set(make.split()[1:]) <= set(verbs)
    assert install == f"pip install ./python {spark}"


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_survives")
def test_the_query_of_the_tutorial_survives_its_kill(tmp_path: Path) -> None:
    """The first page that a user follows must not fail, nor show counts that are not so."""
    (tmp_path / ".build").mkdir()
    for name in ("tools", "s3a-jars"):
        (tmp_path / ".build" / name).symlink_to(REPOSITORY / ".build" / name)
    (program,) = blocks("python")
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "counts.py").write_text(program.replace(ADDRESS, address))
    script = "\n".join(["set -eu", *blocks("bash")[1:]]).replace(ADDRESS, address)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("PYTHONPATH", None)
    with (tmp_path / "output").open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = shell.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()

    printed = (tmp_path / "output").read_text()
    logs = "".join(
        path.read_text(errors="replace")[-3000:] for path in sorted(tmp_path.glob("*.log"))
    )
    assert code == 0, printed + logs
    lines = [
        line
        for name in ("counts.log", "again.log")
        for line in (tmp_path / name).read_text().splitlines()
        if line.startswith("batch ")  # what comes after them is of the end by SIGTERM
    ]
    assert set(lines) == {f"batch {n}: [{100 * (n + 1)}]" for n in range(len(set(lines)))}
    # What the page shows is what was printed.
    for line in "".join(blocks("text")).splitlines():
        assert line in lines
    assert re.search(r"^\d+ counts/state/0/0/changelog/1_u\w+\.arrow$", printed, re.MULTILINE)
