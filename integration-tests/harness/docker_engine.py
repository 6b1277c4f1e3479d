"""Finds a Docker engine and builds the MinIO image of the tests in it.

The engine is the one of ``DOCKER_HOST`` or of the default socket; this module starts none.
"""

from __future__ import annotations

import io
import os
import socket
import tarfile
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound

REPOSITORY = Path(__file__).resolve().parents[2]
DEFAULT_MINIO_IMAGE = "cairn-minio:test"
_DEFAULT_SOCKET = "unix:///var/run/docker.sock"
_PING_TIMEOUT_S = 3


def engine_answers() -> bool:
    """Return whether a Docker engine answers a ping."""
    if not _socket_answers(os.environ.get("DOCKER_HOST") or _DEFAULT_SOCKET):
        return False
    try:
        client = docker.from_env(timeout=_PING_TIMEOUT_S)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except (DockerException, OSError):
        return False
    finally:
        client.close()


def _socket_answers(host: str) -> bool:
    """Return whether a server listens; without one, docker's client would leak its socket."""
    if not host.startswith("unix://"):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PING_TIMEOUT_S)
        try:
            probe.connect(host.removeprefix("unix://"))
        except OSError:
            return False
        return True


def ensure_minio_image(image: str, binary: Path | None) -> None:
    """Build the MinIO image of the tests if it is missing; Docker pulls other images itself.

    Args:
        image: its name; only ``DEFAULT_MINIO_IMAGE`` is built.
        binary: the static MinIO binary for the image.

    Raises:
        FileNotFoundError: the image must be built and there is no binary.
    """
    if image != DEFAULT_MINIO_IMAGE:
        return
    client = docker.from_env()
    try:
        try:
            client.images.get(image)
        except ImageNotFound:
            if binary is None:
                message = f"building {image} needs a minio binary. Next: make minio"
                raise FileNotFoundError(message) from None
            client.images.build(
                fileobj=_context(binary), custom_context=True, tag=image, rm=True, forcerm=True
            )
    finally:
        client.close()


def _context(binary: Path) -> io.BytesIO:
    """Return the build context as a tar: the Dockerfile and the binary."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(REPOSITORY / "docker" / "minio" / "Dockerfile", arcname="Dockerfile")
        tar.add(binary, arcname="minio", filter=_executable)
    archive.seek(0)
    return archive


def _executable(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mode = 0o755
    return info
