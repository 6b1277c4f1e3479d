"""Folders of sockets beside other programs' files, and what is left of workers that were killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cairn.socket_folder import SocketFolder

# Kills this process at one call of a function, before or after it is executed.
KILL_AT = """
import os, signal, sys
from pathlib import Path
import {module}
real = {module}.{function}

def kill(*arguments, **options):
    if {is_before}:
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
    return result

{module}.{function} = kill
from cairn.socket_folder import SocketFolder
SocketFolder(Path(sys.argv[1]))
"""


def names(parent: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(path.name for path in parent.iterdir())


def test_the_folder_is_for_this_user_alone(tmp_path: Path) -> None:
    """Whoever may write into it could answer in the worker's place."""
    (tmp_path / "sockets").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "sockets")

    one = SocketFolder(tmp_path / "link")

    assert one.socket_path.parent.stat().st_mode & 0o777 == 0o700
    one.remove()
    one.close()
    assert not names(tmp_path / "sockets")


@pytest.mark.parametrize(
    ("module", "function", "is_before"),
    [
        ("tempfile", "mkdtemp", False),
        ("fcntl", "flock", True),
        ("fcntl", "flock", False),
        ("os.path", "samestat", False),
    ],
)
def test_a_folder_of_a_worker_that_was_killed_in_its_start_is_removed(
    tmp_path: Path, module: str, function: str, *, is_before: bool
) -> None:
    """If its executor is killed too, only the next worker can remove it."""
    program = KILL_AT.format(module=module, function=function, is_before=is_before)
    command = [sys.executable, "-c", program, str(tmp_path)]
    killed = subprocess.run(command, check=False)  # noqa: S603 - this file's own program
    left = names(tmp_path)

    one = SocketFolder(tmp_path)

    assert killed.returncode < 0
    assert len(left) == 1
    assert names(tmp_path) == [one.socket_path.parent.name]
    one.remove()
    one.close()


def test_a_folder_of_a_worker_that_runs_or_starts_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker must not take its socket, nor make it start in a folder that is gone."""
    running = SocketFolder(tmp_path)
    make, others = tempfile.mkdtemp, [running]

    def start_another(**options: Any) -> str:  # noqa: ANN401 - those of mkdtemp
        folder = str(make(**options))
        monkeypatch.undo()
        others.append(SocketFolder(tmp_path))
        return folder

    # Another worker starts after the folder was made, and before its lock is held.
    monkeypatch.setattr(tempfile, "mkdtemp", start_another)
    starting = SocketFolder(tmp_path)

    folders = [one.socket_path.parent for one in (*others, starting)]
    assert len(set(folders)) == 3
    assert all(folder.is_dir() for folder in folders)
    for one in (*others, starting):
        one.remove()
        one.close()


def test_nothing_but_a_socket_is_removed(tmp_path: Path) -> None:
    """The parent may be `/tmp`: what has such a name may be anyone's."""
    precious, linked = tmp_path / "cairn-socket-precious", tmp_path / "cairn-socket-linked"
    precious.mkdir(mode=0o700)
    (precious / "s").write_text("not a socket")
    linked.symlink_to(precious)
    dead = tmp_path / "cairn-socket-dead"
    dead.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(dead / "s"))

    one = SocketFolder(tmp_path)

    assert (precious / "s").read_text() == "not a socket"
    assert linked.is_symlink()
    assert not dead.exists()
    one.remove()
    one.close()


def test_a_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of two users have one `/tmp`."""
    theirs = tmp_path / "cairn-socket-theirs"
    theirs.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    SocketFolder(tmp_path).remove()

    assert theirs.exists()
