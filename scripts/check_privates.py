"""Fails on a test that looks into private parts of Cairn, or of other tests.

    check_privates.py            checks this repository
    check_privates.py <folder>   checks another folder of the same layout

Python: a private name has one leading underscore. No test, and no kit of tests, imports it, uses it
on another object, names it to ``setattr``, ``getattr`` or a patch, or uses or overrides that of a
class of Cairn's in a subclass. Java: no test asks a class for its declared members, which is how
one gets a private one. A comment excuses nothing, as ``noqa`` excuses a finding of ruff.

``python/tests/property`` may do all that: it compares what is inside with a model. What other
libraries have no public way to is listed below.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from java_source import code_of

PRODUCT = "python/src/cairn"
PYTHON_TESTS = ("python/tests", "integration-tests")
EXEMPT = "python/tests/property"
JAVA_TESTS = ("jvm-shim/src/*/test", "jvm-shim/src/test", "integration-tests")

# Of PySpark: its JVM, plans and queries there, and the file manager of a session.
FOREIGN = {"_gateway", "_jdf", "_jsq", "_jvm", "_streamingCheckpointManager"}
# Public in spite of their underscore: of os, and of named tuples.
PUBLIC = {"_exit", "_asdict", "_fields", "_make", "_replace"}
# Of Spark: the number of a task, and the names of its settings for RocksDB.
FOREIGN_CLASSES = {"TaskContextImpl", "RocksDBConf$"}

_BY_NAME = {"setattr", "getattr", "hasattr", "delattr", "attrgetter", "methodcaller", "patch"}
_OF_PATCH = {"object", "dict", "multiple"}
_NAMING_KEYWORDS = {"target", "name", "attribute", "in_dict"}
_DECLARED = re.compile(
    r"(?:\b(?P<of>[\w$]+)\s*\.\s*class\s*)?\.\s*(?P<call>getDeclared\w+|privateLookupIn)\s*\("
)


def is_private(name: str) -> bool:
    """Return whether ``name`` is private to a module or a class."""
    is_dunder = name.startswith("__")
    return name.startswith("_") and name != "_" and not is_dunder and name not in PUBLIC | FOREIGN


@dataclass
class Class:
    """A class of Python: the names of its bases, and its own private names."""

    bases: set[str] = field(default_factory=set)
    privates: set[str] = field(default_factory=set)


def classes_of(tree: ast.AST) -> dict[str, Class]:
    """Return the classes of a module by their names; nested ones too."""
    return {
        node.name: Class({_last_name(base) for base in node.bases}, set(_privates_of(node)))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def _privates_of(of: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(of):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from [name] * is_private(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                yield from [name] * is_private(name)
    for node in of.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield from [name] * is_private(name)


def _last_name(node: ast.expr) -> str:
    """Return ``C`` of ``C``, ``module.C`` and ``C[T]``."""
    match node:
        case ast.Subscript(value=of):
            return _last_name(of)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


class Findings(ast.NodeVisitor):
    """Collects line and name of each private part that a Python test looks into.

    Args:
        product: the classes of Cairn.
        tests: those of all tests.

    Attributes:
        found: the lines and names.
    """

    def __init__(self, product: dict[str, Class], tests: dict[str, Class]) -> None:
        self.found: list[tuple[int, str]] = []
        self._product = product
        self._tests = tests
        # The names that the class around inherits from Cairn; None: there is no class, and `self`
        # is an object like any other, as in a function that replaces a method.
        self._inherited: set[str] | None = None
        self._is_in_class_body = False

    def visit_ClassDef(self, node: ast.ClassDef) -> None:  # noqa: D102 - ast's
        before = self._inherited, self._is_in_class_body
        self._inherited, self._is_in_class_body = self._inherited_by(node.name), True
        self.generic_visit(node)
        self._inherited, self._is_in_class_body = before

    def _inherited_by(self, name: str) -> set[str]:
        """Return the private names of all classes of Cairn's above one of the tests'."""
        left, seen, names = {name}, set[str](), set[str]()
        while left:
            one = left.pop()
            seen.add(one)
            if one in self._product and one not in self._tests:
                names |= self._product[one].privates
            known = self._tests.get(one) or self._product.get(one) or Class()
            left |= known.bases - seen
        return names

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:  # noqa: D102 - ast's
        before = self._inherited, self._is_in_class_body
        if self._is_in_class_body:
            self._note(node.lineno, *(self._inherited or set()) & {node.name})
        elif node.args.args and node.args.args[0].arg in {"self", "cls"}:
            self._inherited = None
        self._is_in_class_body = False
        self.generic_visit(node)
        self._inherited, self._is_in_class_body = before

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: D102 - ast's
        match node.value:
            case ast.Name(id="self" | "cls") if self._inherited is not None:
                self._note(node.lineno, *self._inherited & {node.attr})
            case _:
                self._note(node.lineno, node.attr)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:  # noqa: D102 - ast's
        for one in node.names:
            self._note(node.lineno, *one.name.split("."))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: D102 - ast's
        self._note(node.lineno, *(node.module or "").split("."), *(one.name for one in node.names))

    def visit_Call(self, node: ast.Call) -> None:  # noqa: D102 - ast's
        name = _last_name(node.func)
        is_of_patch = name in _OF_PATCH and isinstance(node.func, ast.Attribute)
        if name in _BY_NAME or is_of_patch:
            # A text names all by itself: behind it is the value.
            is_text = bool(node.args) and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
            naming = node.args[: 1 if is_text else 2]
            naming += [one.value for one in node.keywords if one.arg in _NAMING_KEYWORDS]
            for part in (part for one in naming for part in ast.walk(one)):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    self._note(node.lineno, *part.value.split("."))
        if name == "multiple":
            self._note(node.lineno, *(one.arg for one in node.keywords if one.arg))
        self.generic_visit(node)

    def _note(self, line: int, *names: str) -> None:
        self.found += [(line, name) for name in names if is_private(name)]


def java_findings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and call of each use of declared members in a Java test."""
    code = code_of(text)
    for match in _DECLARED.finditer(code):
        if match["of"] not in FOREIGN_CLASSES:
            yield code.count("\n", 0, match.start("call")) + 1, match["call"]


def main(root: Path) -> None:
    """Check the tests below ``root``."""
    trees = {
        path: ast.parse(path.read_text())
        for folder in PYTHON_TESTS
        for path in sorted((root / folder).rglob("*.py"))
        if not path.is_relative_to(root / EXEMPT)
    }
    product: dict[str, Class] = {}
    for path in (root / PRODUCT).rglob("*.py"):
        for name, found in classes_of(ast.parse(path.read_text())).items():
            known = product.setdefault(name, Class())
            known.bases |= found.bases
            known.privates |= found.privates
    java = [path for folder in JAVA_TESTS for path in sorted(root.glob(f"{folder}/**/*.java"))]
    faults = []
    for path, tree in trees.items():
        findings = Findings(product, classes_of(tree))
        findings.visit(tree)
        faults += [(path, line, f"the private name {name}") for line, name in findings.found]
    for path in java:
        faults += [(path, line, name) for line, name in java_findings(path.read_text())]
    for path, line, what in faults:
        print(f"error: {path.relative_to(root)}:{line}: a test uses {what}")
    if not faults:
        print(f"{len(trees)} files of Python and {len(java)} of Java: no fault")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
