"""HeapDump: finds text that the objects of some classes hold, in the heap of a JVM.

Format: HPROF 1.0.2, as `jcmd <pid> GC.heap_dump` writes it: live objects only.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_TEXT, _LOADED_CLASS = 0x01, 0x02
_SEGMENTS = {0x0C, 0x1C}
_CLASS, _INSTANCE, _OBJECTS, _PRIMITIVES = 0x20, 0x21, 0x22, 0x23
# Bytes after the tag of each kind of root.
_ROOTS = {0xFF: 8, 1: 16, 2: 16, 3: 16, 4: 12, 5: 8, 6: 12, 7: 8, 8: 16}
_REFERENCE = 2
_SIZES = {_REFERENCE: 8, 4: 1, 5: 2, 6: 4, 7: 8, 8: 1, 9: 2, 10: 4, 11: 8}
# Whoever has one of these has the whole JVM.
_HAVE_ALL = ("java.lang.Class", "java.lang.Thread", "java.lang.ref.", "jdk.internal.")
_FORMS = ("ascii", "utf-16-le", "utf-16-be")
_id = struct.Struct(">Q").unpack_from
_count = struct.Struct(">I").unpack_from
_short = struct.Struct(">H").unpack_from
_header = struct.Struct(">BII")


def write_heap_dump(pid: int, path: Path) -> None:
    """Write the live objects of a JVM of this user into a new file."""
    java = shutil.which("java")
    assert java
    jcmd = Path(java).resolve().with_name("jcmd")
    command = [str(jcmd), str(pid), "GC.heap_dump", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class HeapDump:
    """The objects of a dump.

    Args:
        path: of the dump.
        roots: prefix of the classes whose objects and static fields are searched from.
    """

    def __init__(self, path: Path, roots: str) -> None:
        self._data = path.read_bytes()
        self._prefix = roots
        self._texts: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._objects: dict[int, int] = {}  # where the record of an object is, by its id
        self._supers: dict[int, int] = {}
        self._fields: dict[int, list[int]] = {}  # the types of a class's own fields
        self._roots: list[tuple[int, str]] = []
        self._read()

    def contains(self, text: str) -> bool:
        """Whether the text is anywhere in the heap."""
        return any(text.encode(form) in self._data for form in _FORMS)

    def paths_to(self, text: str, foreign: tuple[str, ...]) -> list[str]:
        """Return, as names of classes, one path to each array that has a text, from the roots.

        Args:
            text: ASCII, anywhere in an array of bytes or characters.
            foreign: prefixes of classes whose objects are not followed.
        """
        needles = [text.encode(form) for form in _FORMS]
        seen = {identity for identity, _ in self._roots}
        ahead = list(self._roots)
        found = []
        while ahead:
            identity, path = ahead.pop()
            at = self._objects.get(identity)
            if at is None:
                continue
            if self._data[at] == _PRIMITIVES:
                end = self._end_of_array(at)
                if any(self._data.find(needle, at, end) >= 0 for needle in needles):
                    found.append(path)
                continue
            name = self._name_at(at)
            if name.startswith((*foreign, *_HAVE_ALL)):
                continue
            for reference in self._references(at):
                if reference and reference not in seen:
                    seen.add(reference)
                    ahead.append((reference, f"{path} > {name}"))
        return found

    def _name_at(self, at: int) -> str:
        start = at + (13 if self._data[at] == _INSTANCE else 17)
        return self._names.get(_id(self._data, start)[0], "?").lstrip("[L")

    def _end_of_array(self, at: int) -> int:
        return at + 18 + _SIZES[self._data[at + 17]] * int(_count(self._data, at + 13)[0])

    def _references(self, at: int) -> list[int]:
        """Return the ids that an instance or an array of objects has."""
        data = self._data
        if data[at] == _OBJECTS:
            return list(struct.unpack_from(f">{_count(data, at + 13)[0]}Q", data, at + 25))
        found, field = [], at + 25
        of_class = _id(data, at + 13)[0]
        while of_class in self._fields:
            for kind in self._fields[of_class]:
                if kind == _REFERENCE:
                    found.append(_id(data, field)[0])
                field += _SIZES[kind]
            of_class = self._supers[of_class]
        return found

    def _read(self) -> None:
        data = self._data
        at = data.find(b"\0") + 1 + 4 + 8
        while at < len(data):
            tag, _, length = _header.unpack_from(data, at)
            at += _header.size
            if tag == _TEXT:
                self._texts[_id(data, at)[0]] = data[at + 8 : at + length].decode(errors="replace")
            elif tag == _LOADED_CLASS:
                name = self._texts.get(_id(data, at + 16)[0], "?")
                self._names[_id(data, at + 4)[0]] = name.replace("/", ".")
            elif tag in _SEGMENTS:
                self._read_segment(at, at + length)
            at += length

    def _read_segment(self, at: int, end: int) -> None:
        data, objects = self._data, self._objects
        ours = {one for one, name in self._names.items() if name.startswith(self._prefix)}
        while at < end:
            tag = data[at]
            if tag == _CLASS:
                at = self._read_class(at, ours)
                continue
            if tag in _ROOTS:
                at += 1 + _ROOTS[tag]
                continue
            identity = _id(data, at + 1)[0]
            objects[identity] = at
            if tag == _INSTANCE:
                if _id(data, at + 13)[0] in ours:
                    self._roots.append((identity, ""))
                at += 25 + _count(data, at + 21)[0]
            elif tag == _OBJECTS:
                at += 25 + 8 * _count(data, at + 13)[0]
            else:
                at = self._end_of_array(at)

    def _read_class(self, at: int, ours: set[int]) -> int:
        """Read a class, with its static fields; return the end of the record."""
        data = self._data
        of_class = _id(data, at + 1)[0]
        self._supers[of_class] = _id(data, at + 13)[0]
        at += 1 + 8 + 4 + 6 * 8 + 4
        (constants,) = _short(data, at)
        at += 2
        for _ in range(constants):
            at += 3 + _SIZES[data[at + 2]]
        (statics,) = _short(data, at)
        at += 2
        for _ in range(statics):
            if data[at + 8] == _REFERENCE and of_class in ours:
                self._roots.append((_id(data, at + 9)[0], f"static {self._names[of_class]}"))
            at += 9 + _SIZES[data[at + 8]]
        (fields,) = _short(data, at)
        at += 2
        self._fields[of_class] = [data[at + 9 * number + 8] for number in range(fields)]
        return at + 9 * int(fields)
