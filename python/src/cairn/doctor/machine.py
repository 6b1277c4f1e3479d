"""The machine: open files, temporary folders, sockets, local disks, Hadoop's settings.

Layer: doctor. The limits are those of this process: executors may be started with others.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from cairn.config import read_settings, size_bytes
from cairn.doctor.check import Check, ok, problem, warning
from cairn.socket_folder import SocketFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MIB: Final = 1 << 20
_FILES_PER_STORE: Final = 10
"""Six, and some SST files: docs/troubleshooting.md#cairn_open_files."""
_OTHER_FILES: Final = 256
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_DEFAULT_PARTITIONS: Final = 200
_SOCKET_PATH_BYTES: Final = 100
"""As the shim and the engine: sockaddr_un has 108 bytes."""
_TOO_FULL_BYTES: Final = 100 * _MIB
_NEARLY_FULL_BYTES: Final = 1024 * _MIB
_JAVA_TMP: Final = "/tmp"  # noqa: S108 - Java's own default; it does not read TMPDIR
_JAVA_OPTIONS: Final = ("spark.executor.extraJavaOptions", "spark.driver.extraJavaOptions")
_TMP_OPTION = re.compile(r"-Djava\.io\.tmpdir=(\S+)")
_HADOOP_FILES: Final = ("core-site.xml", "hdfs-site.xml")


def check_open_files(job: Mapping[str, str]) -> Iterator[Check]:
    """Check the hard limit, to which a worker raises its own, for one executor with all stores."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = job.get(_PARTITIONS, "")
    # Spark itself refuses what is no number, and those of more digits.
    partitions = int(text) if _NUMBER.fullmatch(text) else _DEFAULT_PARTITIONS
    needed = partitions * _FILES_PER_STORE + _OTHER_FILES
    shown = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        yield ok("open files", f"hard limit {shown}")
        return
    yield problem(
        "open files",
        f"the hard limit is {shown}; a worker that has the stores of {partitions} partitions "
        f"({_PARTITIONS}) needs about {needed}, of a join of state formats 1 and 2 four times that",
        "raise the hard limit where executors start: ulimit -n, LimitNOFILE of a service, nofile "
        "of a container; or use fewer partitions, or more workers",
    )


def check_folders(job: Mapping[str, str]) -> Iterator[Check]:
    """Check the folders of sockets and of local data, those of Java and of this Python."""
    java = Path(_java_tmp(job))
    folders = {"java.io.tmpdir": java, "TMPDIR": Path(tempfile.gettempdir())}
    for name, folder in folders.items():
        if name == "TMPDIR" and folder == java:
            continue
        yield from _check_socket(name, folder)
        yield from _check_space(name, folder, _NEARLY_FULL_BYTES)
    yield from _check_local_dir(job)


def _java_tmp(job: Mapping[str, str]) -> str:
    options = " ".join([*(job.get(name, "") for name in _JAVA_OPTIONS)])
    match = _TMP_OPTION.search(f"{options} {os.environ.get('JAVA_TOOL_OPTIONS', '')}")
    return match[1] if match else _JAVA_TMP


def _check_socket(name: str, parent: Path) -> Iterator[Check]:
    """Create a socket, as a worker does, and remove it."""
    cure = f"set {name} to a short path of a folder that can be written"
    if not parent.is_dir():
        yield problem(name, f"the folder {parent} does not exist", cure)
        return
    try:
        folder = SocketFolder(parent)
    except OSError as failure:
        yield problem(name, f"{parent} cannot be written: {failure.strerror}", cure)
        return
    try:
        size = len(os.fsencode(folder.socket_path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.bind(str(folder.socket_path))
        if size > _SOCKET_PATH_BYTES:
            text = f"the path of a socket in {parent} has {size} bytes, over {_SOCKET_PATH_BYTES}"
            yield problem(name, text, cure)
        else:
            yield ok(name, f"{parent}; the path of a socket has {size} bytes")
    except OSError as failure:
        yield problem(name, f"no socket can be created in {parent}: {failure}", cure)
    finally:
        folder.remove()
        folder.close()


def _check_space(name: str, folder: Path, wanted_bytes: int) -> Iterator[Check]:
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return  # a finding of another check
    found = f"{free // _MIB:,} MiB are free in {folder}"
    cure = "free some space, or name a folder on a larger disk"
    if free < _TOO_FULL_BYTES:
        yield problem(f"{name} space", found, cure)
    elif free < wanted_bytes:
        yield warning(
            f"{name} space", f"{found}, of {wanted_bytes // _MIB:,} that are wanted", cure
        )
    else:
        yield ok(f"{name} space", found)


def _check_local_dir(job: Mapping[str, str]) -> Iterator[Check]:
    """Check the folder of databases and of the SST cache."""
    table = read_settings()
    named = job.get(table.prefix + "localDir", "")
    of_spark = os.environ.get("SPARK_LOCAL_DIRS") or job.get("spark.local.dir") or _JAVA_TMP
    folder = Path(named or of_spark.split(",")[0])
    if named:
        yield from _check_owner(folder)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent  # Cairn creates it
    default = table.settings["localDiskBytes"].default
    wanted = size_bytes(job.get(table.prefix + "localDiskBytes", str(default)))
    yield from _check_space("localDir", folder, wanted or 0)


def _check_owner(folder: Path) -> Iterator[Check]:
    """Check what the engine demands of the folder: docs/adr/0033."""
    cure = "name a folder in it that does not exist: Cairn creates it"
    try:
        found = folder.lstat()
    except FileNotFoundError:
        yield ok("localDir", f"{folder} does not exist yet")
        return
    except OSError as failure:
        yield problem("localDir", f"{folder}: {failure.strerror}", cure)
        return
    others_write = stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(found.st_mode):
        yield problem("localDir", f"{folder} is a link, or no folder", cure)
    elif found.st_uid != os.geteuid():
        yield problem("localDir", f"{folder} belongs to another user", cure)
    elif others_write:
        yield problem("localDir", f"other users may write into {folder}", cure)
    else:
        yield ok("localDir", str(folder))


def check_hadoop() -> Iterator[Check]:
    """Check ``HADOOP_CONF_DIR``, if it is set."""
    name = "HADOOP_CONF_DIR"
    folder = os.environ.get(name)
    if not folder:
        yield ok(name, "not set; it is needed for hdfs and the like alone")
        return
    cure = "correct it, or unset it if no file system needs it"
    if not Path(folder).is_dir():
        yield problem(name, f"{folder} is no folder", cure)
        return
    files = [Path(folder, one) for one in _HADOOP_FILES]
    there = [file for file in files if file.is_file()]
    if not there:
        yield warning(name, f"{folder} has neither {' nor '.join(_HADOOP_FILES)}", cure)
        return
    for file in there:
        failure = _malformed(file)
        if failure:
            yield problem(name, f"{file}: {failure}", "correct the file: Hadoop cannot read it")
            return
    yield ok(name, ", ".join(map(str, there)))


def _malformed(file: Path) -> str | None:
    with suppress(FileNotFoundError):
        try:
            root = ET.parse(file).getroot()  # noqa: S314 - the user's own file
        except (ET.ParseError, OSError) as failure:
            return str(failure)
        if root.tag != "configuration":
            return f"its root is {root.tag}, not configuration"
    return None
