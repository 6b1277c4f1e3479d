"""SessionId: the number by which frames and control calls name a session.

Layer: protocol.  Spec: docs/protocol.md#sessions.

    session := u64 = instance << 32 | number
"""

from __future__ import annotations

from typing import NamedTuple

SESSION_NUMBER_BITS = 32
SESSION_NUMBERS = (1 << SESSION_NUMBER_BITS) - 1


class SessionId(NamedTuple):
    """An instance, unique in its JVM, and the number of one of its sessions; numbers ascend."""

    instance: int
    number: int

    @classmethod
    def unpack(cls, session: int) -> SessionId:
        """Return the two parts of a session's number on the wire."""
        return cls._make(divmod(session, 1 << SESSION_NUMBER_BITS))

    def pack(self) -> int:
        """Return the session's number on the wire."""
        return self.instance << SESSION_NUMBER_BITS | self.number
