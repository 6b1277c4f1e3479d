"""Warns about long files and long lists of arguments in Python and Java; fails on very long files.

A Java override has the arguments of the overridden method, and a record is data: both may have any
number of arguments.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from java_source import code_of

WARN_LINES = 500
FAIL_LINES = 900
WARN_ARGUMENTS = 6
ROOT = Path(__file__).resolve().parents[1]

_JAVA_ARGUMENT = r"(?:final\s+|@\w+\s+)*[\w.]+(?:<[\w\s.,?<>\[\]]*>)?(?:\[\])*(?:\.\.\.)?\s+\w+"
_JAVA_FUNCTION = re.compile(
    rf"(?P<before>[^;{{}}]*\s)(?P<name>\w+)\s*"
    rf"\(\s*(?P<first>{_JAVA_ARGUMENT})(?P<others>(?:\s*,\s*{_JAVA_ARGUMENT})*)\s*\)"
)


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of arguments of every function, without self and cls."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            yield node.name, sum(one.arg not in {"self", "cls"} for one in arguments)


def java_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of arguments of every method that overrides nothing."""
    for match in _JAVA_FUNCTION.finditer(code_of(text)):
        if not re.search(r"@Override\b|\brecord\s+$", match["before"]):
            others = re.findall(rf",\s*{_JAVA_ARGUMENT}", match["others"])
            yield match["name"], 1 + len(others)


def main() -> None:
    """Check every source file that git tracks or would add."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.java"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in sorted(set(names.splitlines())) if (ROOT / name).is_file()]
    fails = False
    for path in paths:
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        lines = text.count("\n")
        fails |= lines > FAIL_LINES
        if lines > WARN_LINES:
            verdict = "error" if lines > FAIL_LINES else "warning"
            print(f"{verdict}: {name}: {lines} lines (advice {WARN_LINES}, limit {FAIL_LINES})")
        functions = python_functions if path.suffix == ".py" else java_functions
        for function, count in functions(text):
            if count > WARN_ARGUMENTS:
                print(
                    f"warning: {name}: {function} has {count} arguments (advice {WARN_ARGUMENTS})"
                )
    print(f"{len(paths)} files checked")
    sys.exit(1 if fails else 0)


if __name__ == "__main__":
    main()
