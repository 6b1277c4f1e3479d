"""The command's JVM: what it prints, and when it is stopped. A script stands for Java."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from cairn.errors import ConfigError
from cairn.protocol.calls import start_answer
from cairn.storage.hadoop import server
from cairn.storage.hadoop.server import FileServer

ANSWER = start_answer({"file_system": 1}).decode()
_FOR_EVER = "exec sleep 600\n"
_FAR_LESS_S = 20  # than that: the program was ended, and did not end itself


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the Java that the command runs; the test writes it."""
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    return program


def test_lines_that_the_jvm_prints_before_the_answer_are_no_answer(java: Path) -> None:
    """HotSpot writes its own warnings to the same stream; an agent in it may log in JSON."""
    java.write_text(
        "#!/bin/sh\necho '[0.001s][warning] cpuset'\n"
        "echo '{\"level\": \"info\"}'\nprintf 'no end of line'\n"
        f"echo '{ANSWER}'\nexec cat\n"
    )

    with FileServer("hdfs://host/x", []) as running:
        assert running.settings["file_system"] == "1"


def test_a_jvm_that_never_answers_is_ended(
    java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A command that hangs without a word cannot be helped."""
    monkeypatch.setattr(server, "TIMEOUT_MS", 1000)
    pid = tmp_path / "pid"
    java.write_text(f"#!/bin/sh\necho $$ >'{pid}'\necho 'no class found' >&2\n{_FOR_EVER}")
    began = time.monotonic()

    with pytest.raises(ConfigError, match="no class found"), FileServer("hdfs://host/x", []):
        pass

    assert not Path(f"/proc/{int(pid.read_text())}").exists()
    assert time.monotonic() - began < _FAR_LESS_S


def test_a_jvm_that_does_not_end_is_killed(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is done by then: the command must not fail."""
    monkeypatch.setattr(server, "STOP_TIMEOUT_S", 0.1)
    java.write_text(f"#!/bin/sh\necho '{ANSWER}'\n{_FOR_EVER}")
    began = time.monotonic()

    with FileServer("hdfs://host/x", []) as running:
        pid = running.pid

    assert not Path(f"/proc/{pid}").exists()
    assert time.monotonic() - began < _FAR_LESS_S


def test_a_folder_that_can_have_no_socket_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a socket has at most 108 bytes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 100)))

    with pytest.raises(ConfigError, match="TMPDIR"), FileServer("hdfs://host/x", []):
        pass
