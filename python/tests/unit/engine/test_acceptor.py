"""Acceptor: what it does when another thread takes the descriptor that it gave up."""

from __future__ import annotations

import errno
import os
import socket
from typing import cast

from cairn.engine.acceptor import Acceptor


class FullSocket:
    """A listening socket with a connection, in a process without a free descriptor."""

    def accept(self) -> tuple[socket.socket, None]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_connection_for_which_there_is_no_descriptor_at_all_is_no_error() -> None:
    """Py4J's server ends at the first error of an accept; the worker would be deaf for good."""
    acceptor = Acceptor(cast("socket.socket", FullSocket()))

    assert [acceptor.accept_or_refuse() for _ in range(2)] == [None, None]
