"""Fails on a module over 400 lines or a function over 60, in Python and in Java.

A file that is long for a reason is named in ALLOWED with it. Functions: the lines from its
signature to its end, less the docstring in Python.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

MODULE_LINES = 400
FUNCTION_LINES = 60
ROOT = Path(__file__).resolve().parents[1]

# path -> why it may be longer
ALLOWED: dict[str, str] = {}

# A Java method or constructor by google-java-format's shape: indented by one class level or more,
# a signature that ends in an opening brace, and its closing brace at the same indentation.
_JAVA_METHOD = re.compile(
    r"^(?P<indent> {2,})(?!(?:if|for|while|switch|try|catch|do|else|return|new|synchronized)\b)"
    r"(?:[\w<>\[\],.?@&]+ )*(?P<name>\w+)\([^;{]*\)[^;{=]*\{$",
    re.MULTILINE,
)


def python_functions(text: str) -> list[tuple[str, int]]:
    """Return name and length of every function."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                first = node.body[0]
                lines -= (first.end_lineno or first.lineno) - first.lineno + 1
            found.append((node.name, lines))
    return found


def java_functions(text: str) -> list[tuple[str, int]]:
    """Return name and length of every method."""
    found = []
    for match in _JAVA_METHOD.finditer(text):
        end = text.find(f"\n{match['indent']}}}", match.end())
        if end >= 0:
            found.append((match["name"], text.count("\n", match.start(), end) + 2))
    return found


def faults(path: Path) -> list[str]:
    """Say what in one file is too long."""
    name = path.relative_to(ROOT).as_posix()
    if name in ALLOWED:
        return []
    text = path.read_text()
    functions = python_functions(text) if path.suffix == ".py" else java_functions(text)
    found = [
        f"{name}: {function} has {lines} lines (at most {FUNCTION_LINES})"
        for function, lines in functions
        if lines > FUNCTION_LINES
    ]
    modules = text.count("\n")
    if modules > MODULE_LINES:
        found.append(f"{name}: {modules} lines (at most {MODULE_LINES})")
    return found


def main() -> None:
    """Check every source file that git knows or would know."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.java"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in sorted(set(names.splitlines()))]
    found = [fault for path in paths if path.is_file() for fault in faults(path)]
    stale = [f"{name}: in ALLOWED, but not there" for name in ALLOWED if not (ROOT / name).exists()]
    print("\n".join([*found, *stale]) or f"{len(paths)} files within their sizes")
    sys.exit(1 if found or stale else 0)


if __name__ == "__main__":
    main()
