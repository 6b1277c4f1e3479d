"""Large buffers that were freed go back to the system, also after still larger ones."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# The bytes of the buffers that are not of the heap, after a larger buffer was freed.
_PROGRAM = """
import ctypes, sys
from cairn.memory import give_back_buffers
class Use(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Use
if sys.argv[1:] == ["bounded"]:
    give_back_buffers()
del (larger := [bytearray(24 << 20)])[:]
before = library.mallinfo2().e
buffer = bytearray(8 << 20)
print(library.mallinfo2().e - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this threshold")
def test_a_buffer_after_a_larger_one_is_not_of_the_heap() -> None:
    """In the heap it would leave a gap: processes that move stores grew fourfold so."""
    for arguments, expected in (([], 0), (["bounded"], 8 << 20)):
        command = [sys.executable, "-c", _PROGRAM, *arguments]
        done = subprocess.run(  # noqa: S603 - this interpreter
            command, capture_output=True, text=True, check=True
        )
        assert int(done.stdout) // (1 << 20) == expected >> 20, arguments
