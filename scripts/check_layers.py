"""Fails on a Java import that violates the layers, and on a circle in either language.

    check_layers.py            checks this repository
    check_layers.py <folder>   checks another folder of the same layout

In a circle each file needs the next one. All imports count, also those for types. In Java a use of
a class of the same package counts too, but not a link in Javadoc. import-linter checks the layers
of Python's packages (python/pyproject.toml).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from java_source import code_of

Graph = dict[str, set[str]]

JAVA_ROOT = "io.cairn.spark"
# The packages directly below each package, without the root's name; a package may import all
# packages below it. "" is the root.
BELOW: Graph = {
    "": {"extension", "session", "settings", "metadata", "minor"},
    "extension": {"session", "settings"},
    "metadata": {"errors"},
    "session": {"cache", "engine", "codec", "settings"},
    "cache": {"cache.memory", "protocol"},
    "engine": {"files", "protocol", "settings"},
    "files": {"protocol"},
    "codec": {"bytes", "minor"},
    "cache.memory": {"bytes"},
    "protocol": {"bytes"},
    "settings": {"bytes", "minor"},
    "bytes": {"errors"},
    "minor": set(),
    "errors": set(),
}


def package_of(name: str) -> str:
    """Return the package of a Java class as ``BELOW`` names it."""
    return name.rpartition(".")[0].removeprefix(JAVA_ROOT).removeprefix(".")


def all_below(package: str) -> set[str]:
    """Return ``package`` and all packages below it."""
    return {package}.union(*(all_below(one) for one in BELOW.get(package, ())))


def java_graph(*folders: Path) -> Graph:
    """Return the classes that each class needs, by full names; a file is its top-level class."""
    code = {
        ".".join(path.relative_to(folder).with_suffix("").parts): code_of(path.read_text())
        for folder in folders
        for path in folder.rglob("*.java")
        if path.name != "package-info.java"
    }
    return {name: _java_needs(name, text, code.keys() - {name}) for name, text in code.items()}


def _java_needs(name: str, code: str, others: set[str]) -> set[str]:
    named = {match[0] for match in re.finditer(rf"\b{re.escape(JAVA_ROOT)}(\.\w+)+", code)}
    found = {one for one in others if any(f"{path}.".startswith(f"{one}.") for path in named)}
    # Simple names that in this file mean classes of another package, or its own nested classes.
    taken = set(re.findall(r"^import (?:static )?[\w.]+\.(\w+);", code, re.MULTILINE))
    taken |= set(re.findall(r"\b(?:class|interface|enum|record) (\w+)", code))
    packages = {name.rpartition(".")[0], *re.findall(r"^import ([\w.]+)\.\*;", code, re.MULTILINE)}
    for one in others - found:
        package, _, simple = one.rpartition(".")
        if (
            package in packages
            and simple not in taken
            and re.search(rf"(?<![\w.]){simple}\b", code)
        ):
            found.add(one)
    return found


def upward_imports(graph: Graph) -> list[str]:
    """Return the imports of a Java graph that violate the layers."""
    packages = {package_of(name) for name in graph}
    unknown = [f"package {one} is in no layer" for one in sorted(packages - BELOW.keys())]
    return unknown + [
        f"{name} imports {other}, which is not in a package below"
        for name, others in sorted(graph.items())
        for other in sorted(others)
        if package_of(other) not in all_below(package_of(name))
    ]


def python_graph(folder: Path) -> Graph:
    """Return the modules that each module imports; a package is its ``__init__``."""
    trees = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        trees[module] = (
            module if is_package else ".".join(parts[:-1]),
            ast.parse(path.read_text()),
        )
    return {
        module: {_module_of(name, trees.keys()) for name in _imported(tree, package)} - {"", module}
        for module, (package, tree) in trees.items()
    }


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield all imported names in full; relative imports begin at ``package``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parts, *([node.module] if node.module else [])])
            base = base if node.level else node.module or ""
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _module_of(name: str, modules: Collection[str]) -> str:
    """Return the module that has ``name``: itself, or the nearest one above it, or none."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Graph) -> list[list[str]]:
    """Return a shortest circle for each file that is in a circle; each circle once."""
    found: dict[frozenset[str], list[str]] = {}
    for start in sorted(graph):
        paths = [[start]]
        seen: set[str] = set()
        for path in paths:  # grows while it is read: a breadth-first search
            if start in graph[path[-1]]:
                found.setdefault(frozenset(path), [*path, start])
                break
            new = sorted(graph[path[-1]] - seen)
            seen.update(new)
            paths += [[*path, one] for one in new]
    return list(found.values())


def _since(sources: Path, minor: Path) -> list[Path]:
    """Return the folders ``since-<minor>`` whose classes a minor has."""

    def number(folder: Path) -> list[int]:
        return [int(part) for part in folder.name.partition("-")[2].split(".")]

    return [one for one in sources.glob("since-*") if number(one) <= number(minor)]


def main() -> None:
    """Check both languages and print every fault."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    sources = root / "jvm-shim" / "src"
    main_java = sources / "main" / "java"
    # Each minor version of Spark has its own classes, and those of earlier ones, beside the shared.
    minors = [
        java_graph(main_java, *(folder / "java" for folder in (one, *_since(sources, one))))
        for one in sorted(sources.glob("spark-*"))
    ]
    minors = minors or [java_graph(main_java)]
    java = minors[-1]
    python = python_graph(root / "python" / "src")
    found = [fault for one in minors for fault in upward_imports(one)]
    found += [f"circle: {' > '.join(path)}" for one in (*minors, python) for path in circles(one)]
    faults = list(dict.fromkeys(found))
    print("\n".join(faults) or f"{len(java)} classes and {len(python)} modules: no fault")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
