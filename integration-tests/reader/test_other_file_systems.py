"""The reader and the command on a file system that only Hadoop reaches, through a JVM of their own.

`viewfs` needs no server: its mount table leads to the sample checkpoint.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import cairn
from cairn.cli.main import main
from cairn.errors import SchemeError
from harness.spark import REPOSITORY

SAMPLE = REPOSITORY / "examples" / "sample-checkpoint"
LINK = "fs.viewfs.mounttable.default.link./shop"
URL = "viewfs:///shop"


def _jvms() -> str:
    listing = ["ps", "-eo", "pid,args"]
    lines = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    return "\n".join(line for line in lines if "cairn.spark.engine.FileServer" in line)


def test_a_checkpoint_is_read_through_hadoop() -> None:
    """The rows are those of the folder; the JVM ends with the checkpoint."""
    before = _jvms()
    options = {"hadoop_conf": {LINK: f"file://{SAMPLE}"}}

    with cairn.open_checkpoint(URL, storage_options=options) as remote:
        rows = remote.state(operator=0, store="total").to_table()
    with cairn.open_checkpoint(str(SAMPLE)) as local:
        expected = local.state(operator=0, store="total").to_table()

    assert rows.equals(expected)
    assert _jvms() == before


def test_the_command_takes_hadoops_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From HADOOP_CONF_DIR, or as options."""
    (tmp_path / "core-site.xml").write_text(
        f"<configuration><property><name>{LINK}</name><value>file://{SAMPLE}</value></property>"
        "</configuration>"
    )
    by_option = CliRunner().invoke(
        main, ["ls", URL, "--batches", "-o", "json", "--hadoop-conf", f"{LINK}=file://{SAMPLE}"]
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    by_file = CliRunner().invoke(main, ["ls", URL, "--batches", "-o", "json"])

    assert len(json.loads(by_option.stdout)) == 9
    assert by_file.stdout == by_option.stdout


def test_a_scheme_that_hadoop_lacks_is_an_error() -> None:
    """It names the scheme, and how to add a jar."""
    with pytest.raises(SchemeError, match="nosuch"):
        cairn.open_checkpoint("nosuch://host/x")
