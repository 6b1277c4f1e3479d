"""A JVM that serves files, and HDFS behind it: errors, another user, silence, the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from cairn.cli.main import main
from cairn.errors import (
    AccessError,
    ConditionalPutUnsupportedError,
    ConfigError,
    ForeignObjectError,
    SchemeError,
    UnavailableError,
)
from cairn.jar import jar_path
from cairn.spark_minor import spark_jars
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.hadoop.server import FileServer
from cairn.storage.open import open_store
from harness.hdfs import hadoop_server

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.storage.base import ObjectStore
    from harness.hdfs import MiniHdfs

pytestmark = pytest.mark.hdfs


@pytest.fixture
def store(hdfs: MiniHdfs, hdfs_files: FileServer) -> Iterator[ObjectStore]:
    """An empty store on HDFS."""
    url = f"{hdfs.url}/{uuid.uuid4().hex}"
    with open_store(url, hdfs_files.settings, hdfs_files.connections) as opened:
        yield opened


def test_a_file_in_the_place_of_a_folder_is_named(store: ObjectStore) -> None:
    """A checkpoint inside another program's file is no fault that a retry corrects."""
    store.put("a", b"1")

    with pytest.raises(ForeignObjectError, match="in the place of"):
        store.put("a/b", b"2")


@pytest.mark.slow
def test_a_file_is_not_replaced_where_a_rename_is_a_copy(gs_files: FileServer) -> None:
    """Two attempts of format 1 could both believe that they replaced a third one's changelog."""
    root = f"{gs_files.url}/{uuid.uuid4().hex}"
    with open_store(root, gs_files.settings, gs_files.connections) as store:
        store.put_if_absent("changelog/1.arrow", b"an attempt's")

        with pytest.raises(ConditionalPutUnsupportedError, match="has no atomic rename"):
            store.put_if_match("changelog/1.arrow", b"ours", store.get("changelog/1.arrow").etag)

        assert store.get("changelog/1.arrow").data == b"an attempt's"


def test_another_user_is_denied_by_name(
    hdfs: MiniHdfs, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error must say that the right is missing, not that the file is."""
    store.put("x", b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")

    with (
        hadoop_server(hdfs.url) as server,
        open_store(store.url, server.settings, server.connections) as other,
    ):
        assert other.get("x").data == b"1"
        with pytest.raises(AccessError, match="stranger") as raised:
            other.put("y", b"2")

    assert raised.value.object_name is not None
    assert raised.value.object_name.startswith(store.url)


def test_a_silent_file_system_is_an_error_in_time_and_works_afterwards(
    hdfs: MiniHdfs, hdfs_files: FileServer, store: ObjectStore
) -> None:
    """A NameNode in a long pause must not hold the task for as long."""
    store.put("x", b"1")
    impatient = {**hdfs_files.settings, "timeout_ms": "1000"}
    os.kill(hdfs.pid, signal.SIGSTOP)
    try:
        with (
            open_store(store.url, impatient, hdfs_files.connections) as waiting,
            pytest.raises(UnavailableError, match="within 1000 ms"),
        ):
            waiting.put("y", b"2")
    finally:
        os.kill(hdfs.pid, signal.SIGCONT)

    assert store.get("x").data == b"1"
    store.put("y", b"3")
    assert store.get("y").data == b"3"


def test_the_command_reaches_hdfs(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The settings come from HADOOP_CONF_DIR, as for Hadoop's own commands."""
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>x:///</value></property>"
        "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    store.put("offsets/0", b"not a log")

    found = CliRunner().invoke(main, ["undo-repartition", store.url])
    refused = CliRunner().invoke(main, ["undo-repartition", "nosuch://host/x"])
    wrong = CliRunner().invoke(
        main, ["undo-repartition", store.url, "--hadoop-conf", "dfs.replication"]
    )

    assert "has no unfinished repartition" in found.output
    assert "[CAIRN_SCHEME]" in refused.output
    assert "nosuch" in refused.output
    assert wrong.exit_code == 2
    assert "'dfs.replication' has no value" in wrong.output


def test_a_class_path_without_the_shim_is_named() -> None:
    """The message has Java's own words."""
    with pytest.raises(ConfigError, match="FileServer"), FileServer("hdfs://host/x", ["none.jar"]):
        pass


def test_a_jvm_that_has_ended_is_an_error_in_time(hdfs: MiniHdfs) -> None:
    """The command must not wait for a JVM that the kernel has killed."""
    with hadoop_server(hdfs.url) as server:
        with open_store(f"{hdfs.url}/x", server.settings, server.connections) as store:
            list(store.list(""))
        os.kill(server.pid, signal.SIGKILL)
        settings = {**server.settings, "timeout_ms": "1000"}

        with (
            open_store(f"{hdfs.url}/x", settings, server.connections) as store,
            pytest.raises(UnavailableError),
        ):
            store.put("x", b"1")


# Serves a folder, says what is beside its socket, and ends: killed, if the third argument says so.
SERVE = """
import os, signal, sys
from pathlib import Path
from cairn.storage.hadoop.server import FileServer
from cairn.storage.open import open_store
with FileServer(sys.argv[1], sys.argv[2].split(os.pathsep)) as server:
    with open_store(sys.argv[1], server.settings, server.connections) as store:
        store.put("x", b"1")
    print(*(path.name for path in Path(os.environ["TMPDIR"]).glob("cairn-*")))
    print(server.pid, flush=True)
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_command_removes_the_socket_of_one_that_was_killed(
    hdfs: MiniHdfs, tmp_path: Path
) -> None:
    """A command that is killed again and again must not fill the folder of temporary files."""
    jars = os.pathsep.join(str(jar) for jar in [jar_path(), *spark_jars()])
    arguments = [sys.executable, "-c", SERVE, f"{hdfs.url}/{uuid.uuid4().hex}", jars]
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}

    def run(end: str) -> tuple[int, list[str]]:
        done = subprocess.run(  # noqa: S603 - this file's own program
            [*arguments, end], env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        folders, _ = done.stdout.splitlines()
        return done.returncode, folders.split()

    killed, of_killed = run("killed")
    left = [path.name for path in (tmp_path / "tmp").glob("cairn-*")]
    code, of_next = run("ended")

    assert killed == -signal.SIGKILL
    assert left == of_killed
    assert code == 0
    assert len(of_next) == 1
    assert of_next != of_killed
    assert not list((tmp_path / "tmp").glob("cairn-*"))


def test_an_unknown_scheme_needs_no_connection() -> None:
    """The error comes before a request could hang."""
    with pytest.raises(SchemeError):
        open_store("hdfs://host/x", {}, StorageConnections())
