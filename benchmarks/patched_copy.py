"""Built copies of the product below .build/ablation: one as it is, the others each with a patch.

A copy has the committed sources of the product, its own shim jar if the patch changes Java, and a
virtual environment whose only packages are the copy's ``cairn`` and those of this environment.
It is built again only if the committed sources or the patch have changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from driver import MINOR, REPOSITORY, pyspark_jars

COPIES = REPOSITORY / ".build" / "ablation"
# All that the jar and the package are made of.
PRODUCT = ("python/src", "jvm-shim/src", "build.gradle", "settings.gradle", "LICENSE")
# The shim reads these two files of the package, too.
_OF_JAR = (
    "jvm-shim/",
    "build.gradle",
    "settings.gradle",
    "python/src/cairn/settings.json",
    "python/src/cairn/VERSION",
)
_CHANGED_FILE = re.compile(r"^diff --git a/(\S+) b/", re.MULTILINE)


class CopyError(Exception):
    """A copy could not be made; the message says what to do."""


@dataclass(frozen=True)
class BuiltCopy:
    """A built copy.

    Attributes:
        digest: changes with the sources and the patch.
        python: Python that finds the copy's package.
        shim_jar: the copy's jar, or that of the unpatched copy.
    """

    digest: str
    python: Path
    shim_jar: Path


def digest_of(patch: Path | None) -> str:
    """Return the digest of the committed sources and of a patch."""
    command = ["git", "rev-parse", *(f"HEAD:{name}" for name in PRODUCT)]
    ids = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True).stdout
    return hashlib.sha256(ids + (patch.read_bytes() if patch else b"")).hexdigest()


def check_patch(patch: Path, folder: Path = REPOSITORY) -> None:
    """Check that a patch applies to a folder.

    Raises:
        CopyError: it does not.
    """
    _apply(patch, folder, "--check")


def changes_jar(patch: Path) -> bool:
    """Return whether a patch changes a file that the jar is made of."""
    return any(name.startswith(_OF_JAR) for name in _CHANGED_FILE.findall(patch.read_text()))


def build(name: str, patch: Path | None, unpatched: BuiltCopy | None = None) -> BuiltCopy:
    """Return a built copy; it is built if there is none of these sources and this patch.

    Args:
        name: its folder below ``COPIES``.
        patch: what is changed in it.
        unpatched: the copy without a patch, whose jar is used if the patch changes no Java.

    Raises:
        CopyError: the patch does not apply, or the sources do not compile with it.
    """
    folder, digest = COPIES / name, digest_of(patch)
    own_jar = folder / "jvm-shim" / "build" / MINOR / "libs" / f"cairn-shim-{MINOR}.jar"
    has_own_jar = unpatched is None or (patch is not None and changes_jar(patch))
    jar = own_jar if unpatched is None or has_own_jar else unpatched.shim_jar
    copy = BuiltCopy(digest, folder / ".venv" / "bin" / "python", jar)
    stamp = folder / "built"
    if stamp.exists() and stamp.read_text() == digest:
        return copy
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _export(folder)
    if patch is not None:
        _apply(patch, folder)
    if unpatched is not None and patch is not None and has_own_jar and _changes_java_alone(patch):
        _recompile(name, folder, unpatched.shim_jar, own_jar)
    elif has_own_jar:
        _build_jar(name, folder)
    _make_environment(folder, copy.python)
    stamp.write_text(digest)
    return copy


def _export(folder: Path) -> None:
    archive = ["git", "archive", "HEAD", *PRODUCT]
    packed = subprocess.run(archive, cwd=REPOSITORY, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)


def _apply(patch: Path, folder: Path, *options: str) -> None:
    # Below a repository that it finds, git would silently leave out files that are not there.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", *options, str(patch.resolve())]
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode:
        message = (
            f"{patch.name} does not apply to the sources:\n{done.stderr.rstrip()}\n"
            "Next: make its change again by hand in a clean work tree, and write the patch anew "
            f"with `git diff > {patch}`; or delete it and its entry, if the mechanism is gone."
        )
        raise CopyError(message)


def _build_jar(name: str, folder: Path) -> None:
    command = ["gradle", "--no-daemon", "--console=plain", "-q", f"-PsparkJars={pyspark_jars()}"]
    _run(name, folder, [*command, "jar"])


def _run(name: str, folder: Path, command: list[str]) -> None:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        message = f"the sources of {name} do not compile:\n{last}\nNext: read {folder}"
        raise CopyError(message)


def _changes_java_alone(patch: Path) -> bool:
    """Return whether all changes of a patch that concern the jar are in Java sources."""
    names = [name for name in _CHANGED_FILE.findall(patch.read_text()) if name.startswith(_OF_JAR)]
    return all(name.endswith(".java") for name in names)


def _recompile(name: str, folder: Path, unpatched_jar: Path, own_jar: Path) -> None:
    """Make a copy's jar from the unpatched one: its Java classes are compiled again.

    This takes a sixth of the time of Gradle, which would compile Scala anew, too. A class that the
    patch deletes stays in the jar.
    """
    classes = folder / "classes"
    classes.mkdir()
    class_path = os.pathsep.join([str(unpatched_jar), f"{pyspark_jars()}/*"])
    options = [
        "-g",
        "-nowarn",
        "-proc:none",
        "--release",
        "17",
        "-d",
        str(classes),
        "-cp",
        class_path,
    ]
    _run(name, folder, ["javac", *options, *map(str, _java_sources(folder))])
    own_jar.parent.mkdir(parents=True)
    shutil.copyfile(unpatched_jar, own_jar)
    _run(name, folder, ["jar", "--update", "--file", str(own_jar), "-C", str(classes), "."])


def _java_sources(folder: Path) -> list[Path]:
    """Return the Java sources of the minor version of Spark, as build.gradle selects them."""
    names = ["main", f"spark-{MINOR}"]
    for path in (folder / "jvm-shim" / "src").glob("since-*"):
        since = path.name.removeprefix("since-")
        if [*map(int, since.split("."))] <= [*map(int, MINOR.split("."))]:
            names.append(path.name)
    folders = [folder / "jvm-shim" / "src" / name / "java" for name in names]
    return [source for one in folders for source in sorted(one.rglob("*.java"))]


def _make_environment(folder: Path, python: Path) -> None:
    home = folder / ".venv"
    venv.create(home, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(home)})
    # Files *.pth in a folder that is named in one are not read: `cairn` is the copy's.
    paths = [str(folder / "python" / "src"), sysconfig.get_path("purelib")]
    (Path(packages) / "copy.pth").write_text("\n".join(paths) + "\n")
    command = [str(python), "-c", "import cairn; print(cairn.__file__)"]
    found = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    if not found.startswith(str(folder)):
        message = f"{python} finds cairn in {found.strip()}, not in {folder}"
        raise CopyError(message)
