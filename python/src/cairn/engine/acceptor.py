"""Accepts connections, also when the process can open no more files.

Layer: engine. Used for the sockets of both channels.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from cairn.clock import SYSTEM_CLOCK
from cairn.errors import OpenFilesError, open_files_error

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_GREETING_S = 0.2
_GREETING_BYTES = 4096
_REST_S = 0.05


class Acceptor:
    """Accepts the connections of a listening socket.

    A connection that has no descriptor stays in the queue: the listening socket stays readable, so
    that a loop over it would not rest, and the peer would wait in vain. So one descriptor is kept
    in reserve. It is given to that connection, which is refused and closed.

    Args:
        listening: the socket.
        refusal: returns the bytes that tell a peer why it is refused.
    """

    def __init__(
        self,
        listening: socket.socket,
        refusal: Callable[[OpenFilesError], bytes] = lambda _: b"",
    ) -> None:
        self._socket = listening
        self._refusal = refusal
        self._reserve: int | None = _open_any()

    def accept_or_refuse(self) -> socket.socket | None:
        """Return a new connection; ``None``: it was refused, or waits on. One thread at a time.

        REQUIRES: the socket does not block, or has a connection.

        Raises:
            OSError: there is none, or the socket is closed.
        """
        try:
            return self._socket.accept()[0]
        except OSError as failure:
            error = open_files_error(failure)
            if error is None:
                raise
        if self._reserve is not None:
            os.close(self._reserve)
        try:
            accepted, _ = self._socket.accept()
        except OSError as failure:
            if open_files_error(failure) is None:
                raise
            # Another thread has taken the descriptor: the caller comes again, but not at once.
            SYSTEM_CLOCK.sleep(_REST_S)
            return None
        finally:
            self._reserve = _open_any()
        if self._reserve is not None:
            return accepted  # another file was closed meanwhile
        _LOG.error("a connection is refused: %s", error)
        with accepted, suppress(OSError):
            self._tell(accepted, self._refusal(error))
        self._reserve = _open_any()
        return None

    @staticmethod
    def _tell(refused: socket.socket, reason: bytes) -> None:
        if reason:
            # A peer that still sends its greeting after the end would not read why.
            refused.settimeout(_GREETING_S)
            refused.recv(_GREETING_BYTES)
            refused.sendall(reason)


def _open_any() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # another thread took it: tried again at the next refusal
        return None
