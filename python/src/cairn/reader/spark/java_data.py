"""Numbers and texts as Java's ``DataOutputStream`` writes them.

Layer: reader.spark. Numbers are big-endian.

    utf   := u16be n  modified_utf_8[n]
    texts := i32be count  utf*count        ; one text, in parts that may end inside a character

Modified UTF-8 is UTF-8 but for two things: the character U+0000 is C0 80, and a character above
U+FFFF is its two surrogates, of three bytes each.
"""

from __future__ import annotations

from cairn.errors import CorruptError

# Bytes that begin no character in modified UTF-8, though some do in UTF-8.
_FOREIGN_BYTES = frozenset(range(0xF0, 0x100))


class JavaData:
    """Bytes that are read from their start.

    Every method raises CorruptError if the bytes end before what it reads, or are not that.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all bytes have been read."""
        return self._at == len(self._data)

    def read_short(self) -> int:
        """Return a number of 2 bytes."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def read_int(self) -> int:
        """Return a number of 4 bytes."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def read_utf(self) -> str:
        """Return a text with a length of 2 bytes before it."""
        return _whole_characters(self._read_part())

    def read_texts(self) -> str:
        """Return a text that is stored in parts."""
        count = self.read_int()
        if count < 0:
            raise CorruptError("a text has a negative number of parts")
        return _whole_characters("".join([self._read_part() for _ in range(count)]))

    def _read_part(self) -> str:
        data = self._take(int.from_bytes(self._take(2), "big"))
        if data.isascii():
            return data.decode("ascii")
        if not _FOREIGN_BYTES.isdisjoint(data):
            raise CorruptError("a text is not in Java's modified UTF-8")
        try:
            return data.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CorruptError("a text is not in Java's modified UTF-8") from error

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise CorruptError(f"the bytes end at {len(self._data)}, inside a field")
        found = self._data[self._at : end]
        self._at = end
        return found


def _whole_characters(text: str) -> str:
    """Return the text with each pair of surrogates as the character that it means."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise CorruptError("a text has half of a character") from error
