"""What is fetched ahead for the keys that follow: when, how much, and when it goes."""

from __future__ import annotations

import struct

from cairn.transform.client import UNKNOWN, Reads


class Keys:
    """Stands for the client: keys 0, 1, ... whose item is their number."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.number = self.turn = self.chunk = 0
        self.fetched: list[range] = []

    def go_to(self, number: int) -> None:
        """Begin a key."""
        self.number = number
        self.turn += 1

    def read(self, what: int, name: str, user_key: bytes, count: int) -> tuple[int, bytes]:  # noqa: ARG002
        """Return the items of the present key and those that follow."""
        keys = range(self.number, min(self.number + count, self.count))
        self.fetched.append(keys)
        return len(keys), b"".join(struct.pack(">i", key) for key in keys)


def reads(keys: Keys) -> Reads:
    """Return the reads of one variable."""
    return Reads(
        keys,  # type: ignore[arg-type]
        0,
        "name",
        lambda data, place: (struct.unpack_from(">i", data, place)[0], place + 4),
    )


def test_a_processor_that_reads_each_key_gets_them_in_few_fetches() -> None:
    """Each fetch has four times as many keys as the one before, and not those behind the end."""
    keys = Keys(100)
    value = reads(keys)

    for number in range(100):
        keys.go_to(number)
        assert value.get() == value.get() == number

    assert list(map(len, keys.fetched)) == [1, 4, 16, 64, 15]


def test_a_processor_that_seldom_reads_fetches_little() -> None:
    """A read of the store that no one asked for costs time and evicts what others need."""
    keys = Keys(10_000)
    value = reads(keys)

    for number in range(0, 10_000, 50):
        keys.go_to(number)
        assert value.get() == number

    assert sum(map(len, keys.fetched)) < 1000


def test_what_was_fetched_goes_when_its_key_begins() -> None:
    """Also if the key does not read but only writes; a key that comes again is fetched again."""
    keys = Keys(10)
    value = reads(keys)
    for number in (0, 1):
        keys.go_to(number)
        value.get()

    keys.go_to(2)
    value.set(77)
    assert value.get() == 77
    keys.go_to(2)

    assert value.known() is UNKNOWN
    assert value.get() == 2
    assert keys.fetched[-1][0] == 2


def test_a_chunk_has_other_keys() -> None:
    """What the present key has stays; the items of the old chunk's numbers do not."""
    keys = Keys(10)
    value = reads(keys)
    for number in (0, 1):
        keys.go_to(number)
        value.get()
    value.set(77)

    keys.chunk += 1
    keys.number = 0

    assert value.get() == 77
    keys.go_to(2)
    assert value.known() is UNKNOWN
