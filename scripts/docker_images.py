"""Builds the images of the cluster: cairn-spark:local, cairn-demo:local and cairn-minio:test.

Usage: docker_images.py    needs a Docker engine; `make image` makes what it needs first

The base is Debian's public image. Where it cannot be pulled, the base is made by debootstrap (as
root), and the packages come from a wheelhouse that this Python makes. `CAIRN_BASE_IMAGE` names
another base; it must be Debian 12.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / ".build"
OWN_WHEEL = BUILD / "image" / "own-wheel"
PUBLIC_BASE = "debian:bookworm-slim"
LOCAL_BASE = "cairn-base:bookworm"
SPARK_IMAGE = "cairn-spark:local"
DEMO_IMAGE = "cairn-demo:local"
MINIO_IMAGE = "cairn-minio:test"
# The Python of Debian 12: the wheelhouse must be made by the same version.
DEBIAN_PYTHON = (3, 11)
PACKAGES = ("pyspark", "pandas", "protobuf", "rich")


class ImageError(Exception):
    """An image cannot be built; the message says what to do."""


def build_images() -> None:
    """Build the three images, or use those whose content has not changed.

    Raises:
        ImageError: no base can be had, or a program that builds one is missing.
        CalledProcessError: a step failed; its output is on the terminal.
    """
    base = find_base()
    with tempfile.TemporaryDirectory(prefix="cairn-image-") as name:
        context = Path(name)
        is_offline = base == LOCAL_BASE or "PIP_NO_INDEX" in os.environ
        fill_context(context, is_offline=is_offline)
        arguments = ["--build-arg", f"BASE={base}"]
        arguments += ["--build-arg", "PIP_NO_INDEX=1"] if is_offline else []
        for target, image in (("spark", SPARK_IMAGE), ("demo", DEMO_IMAGE)):
            print(f"Building {image}", flush=True)
            _docker("build", "--quiet", "--target", target, "--tag", image, *arguments, name)
    with tempfile.TemporaryDirectory(prefix="cairn-image-") as name:
        print(f"Building {MINIO_IMAGE}", flush=True)
        shutil.copy(ROOT / "docker" / "minio" / "Dockerfile", name)
        shutil.copy(BUILD / "tools" / "minio", Path(name, "minio"))
        Path(name, "minio").chmod(0o755)
        _docker("build", "--quiet", "--tag", MINIO_IMAGE, name)


def find_base() -> str:
    """Return the base image: the one that is named, the public one, else one made here."""
    named = os.environ.get("CAIRN_BASE_IMAGE")
    if named:
        return named
    for image in (PUBLIC_BASE, LOCAL_BASE):
        if _has(image):
            return image
    pulled = subprocess.run(
        ["docker", "pull", "--quiet", PUBLIC_BASE], capture_output=True, text=True, check=False
    )
    if pulled.returncode == 0:
        return PUBLIC_BASE
    print(f"{PUBLIC_BASE} cannot be pulled: {pulled.stderr.strip()}", flush=True)
    make_local_base()
    return LOCAL_BASE


def make_local_base() -> None:
    """Make Debian 12's minimal system by debootstrap, and import it.

    Raises:
        ImageError: it needs root, or debootstrap is missing.
    """
    archive = BUILD / "image" / "base.tar"
    if not archive.exists():
        if os.geteuid() != 0:
            raise ImageError(
                f"without {PUBLIC_BASE}, the base is made by debootstrap as root. Next: run this "
                "as root, or name a base of Debian 12 in CAIRN_BASE_IMAGE"
            )
        install_program("debootstrap")
        print("Making a base by debootstrap (two minutes, once)", flush=True)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="cairn-base-") as name:
            folder = Path(name, "root")
            _run("debootstrap", "--variant=minbase", "bookworm", str(folder))
            hidden = archive.with_suffix(".new")
            _run("tar", "-C", str(folder), "-cf", str(hidden), ".")
        hidden.rename(archive)
    _docker("import", str(archive), LOCAL_BASE)


def fill_context(context: Path, *, is_offline: bool) -> None:
    """Fill the context of the Dockerfile.

    Args:
        context: an empty folder.
        is_offline: whether the build cannot reach the package index, so that it needs all wheels.
    """
    shutil.copy(ROOT / "docker" / "Dockerfile", context)
    wheels = context / "wheels"
    wheels.mkdir()
    if is_offline:
        for path in make_wheelhouse().glob("*.whl"):
            _link(path, wheels)
    for path in OWN_WHEEL.glob("cairn_state-*.whl"):
        _link(path, wheels)
    shutil.copy(ROOT / "python" / "constraints.txt", wheels)
    jars = context / "s3a-jars"
    jars.mkdir()
    for path in (BUILD / "s3a-jars").glob("*.jar"):
        _link(path, jars)
    flights = context / "flights"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples" / "flights", flights, ignore=ignored)
    shutil.copytree(BUILD / "flights", flights / "data")


def make_wheelhouse() -> Path:
    """Return a folder with the wheels of all packages, made once per `constraints.txt`.

    Raises:
        ImageError: this Python has another version than the image's.
    """
    if sys.version_info[:2] != DEBIAN_PYTHON:
        raise ImageError(
            f"the image has Python 3.11 and this is {sys.version.split()[0]}, whose wheels do not "
            "fit. Next: make PYTHON=python3.11 ..."
        )
    constraints = ROOT / "python" / "constraints.txt"
    folder = BUILD / "image" / "wheels"
    made_for = folder / "constraints.txt"
    if made_for.exists() and made_for.read_bytes() == constraints.read_bytes():
        return folder
    print("Making the wheelhouse (half a minute, once)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    [own] = OWN_WHEEL.glob("cairn_state-*.whl")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    _run(*command, "-c", str(constraints), "--wheel-dir", str(folder), str(own), *PACKAGES)
    # The context takes Cairn's own wheel from where it is built.
    (folder / own.name).unlink()
    shutil.copy(constraints, made_for)
    return folder


def install_program(name: str) -> None:
    """Install a program by apt-get if it is missing and this is root.

    Raises:
        ImageError: it is missing, and it cannot be installed here.
    """
    if shutil.which(name):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ImageError(f"{name} is missing. Next: sudo apt-get install {name}")
    print(f"Installing {name} by apt-get", flush=True)
    _run("apt-get", "update", "-qq")
    _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", name)


def _link(path: Path, folder: Path) -> None:
    try:
        (folder / path.name).hardlink_to(path.resolve())
    except OSError:
        shutil.copy(path, folder)


def _has(image: str) -> bool:
    inspect = ["docker", "image", "inspect", image]
    return subprocess.run(inspect, capture_output=True, check=False).returncode == 0


def _docker(*arguments: str) -> None:
    # The network of this machine: a build reaches what this machine reaches. No container stays,
    # also if a step fails.
    always = ("--network", "host", "--force-rm") if arguments[0] == "build" else ()
    _run("docker", arguments[0], *always, *arguments[1:])


def _run(*command: str) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        print(done.stdout[-6000:], flush=True)
        done.check_returncode()


if __name__ == "__main__":
    try:
        build_images()
    except (ImageError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
