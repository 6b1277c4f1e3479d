"""The Python of this process, and the packages that the wheel requires.

Layer: doctor.
"""

from __future__ import annotations

import platform
import re
import sys
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Final

from cairn.doctor.check import Check, ok, problem, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHEEL: Final = "cairn-state"
_PYTHON_MIN: Final = (3, 11)
_SYSTEM: Final = "Linux"
_DEVELOPMENT: Final = "dev"
_INSTALL: Final = f"install the package again: pip install --upgrade {_WHEEL}"

# As pip writes them: name[extras] specifiers; extra == "x". A wheel of Cairn has no other markers.
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*\(?(?P<bounds>[^;)]*)\)?"
    r"(?:;\s*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"])?",
    re.ASCII,
)
_BOUND = re.compile(r"(==|>=|<=|<|>|!=)\s*([\w.]+)", re.ASCII)
_PARTS = re.compile(r"\d+")


def check_python() -> Iterator[Check]:
    """Check the version of this Python and the system."""
    found = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if sys.version_info[:2] < _PYTHON_MIN:
        yield problem("python", found, "use Python 3.11 or newer, on driver and executors")
    else:
        yield ok("python", found)
    system = platform.system()
    shown = f"{system} {platform.release()}, {platform.machine()}"
    if system == _SYSTEM:
        yield ok("system", shown)
    else:
        yield problem("system", shown, "run jobs on Linux: the engine needs it")


def check_packages() -> Iterator[Check]:
    """Check that each required package is there, fits, and can be imported.

    An extra that is absent is no finding; one whose version does not fit is a warning.
    """
    try:
        requirements = metadata.requires(_WHEEL) or []
    except metadata.PackageNotFoundError:
        yield warning(
            "packages",
            f"{_WHEEL} is not installed here; the code is used from a folder",
            f"pip install {_WHEEL}, so that its packages are there in the right versions",
        )
        return
    for text in requirements:
        match = _REQUIREMENT.match(text)
        if match and match["extra"] != _DEVELOPMENT:
            yield from _check_package(match["name"], match["bounds"].strip(), match["extra"])


def _check_package(name: str, bounds: str, extra: str | None) -> Iterator[Check]:
    label = f"package {name}"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        if extra:
            yield ok(label, f"not installed; an extra: pip install '{_WHEEL}[{extra}]'")
        else:
            yield problem(label, f"not installed; {bounds} is required", _INSTALL)
        return
    if not fits(version, bounds):
        found = f"{version} is installed, {bounds} is required"
        cure = f"pip install '{name}{bounds}'"
        yield warning(label, found, cure) if extra else problem(label, found, cure)
        return
    failure = None if extra else _import_failure(name)
    if failure:
        yield problem(label, f"{version} cannot be imported: {failure}", _INSTALL)
    else:
        yield ok(label, version)


def fits(version: str, bounds: str) -> bool:
    """Return whether a version is within bounds such as ``>=4.1,<4.4``."""
    own = _numbers(version)
    return all(_is_within(own, sign, _numbers(bound)) for sign, bound in _BOUND.findall(bounds))


def _is_within(own: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    length = max(len(own), len(bound))
    left, right = (one + (0,) * (length - len(one)) for one in (own, bound))
    return {
        "==": left == right,
        "!=": left != right,
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
    }[sign]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version: of ``2.1.0rc1`` 2, 1, 0."""
    result = []
    for part in version.split("."):
        match = _PARTS.match(part)
        if not match:
            break
        result.append(int(match[0]))
        if match.end() < len(part):
            break
    return tuple(result)


def _import_failure(name: str) -> str | None:
    """Return why a package cannot be imported: a library of the system may be missing."""
    try:
        import_module(name.replace("-", "_"))
    except Exception as failure:  # noqa: BLE001 - whatever a package does when it is loaded
        return f"{type(failure).__name__}: {failure}"
    return None
