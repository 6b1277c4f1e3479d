"""The control channel: one method, JSON in, an envelope out.

Layer: engine.  Spec: docs/architecture.md#control-calls.

Only the Python server listens, on loopback, with a token; the JVM opens nothing. Py4J echoes what a
failing call was given and puts tracebacks into its answers: so ``call`` never raises, and no
secret is ever in a message.
"""

from __future__ import annotations

import json
import logging
import socket
from typing import TYPE_CHECKING, Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from cairn.clock import SYSTEM_CLOCK
from cairn.errors import CairnError, ProtocolError, unexpected

if TYPE_CHECKING:
    from collections.abc import Callable

    Method = Callable[[dict[str, Any]], dict[str, Any]]

_LOG = logging.getLogger(__name__)
_LISTEN_POLL_S = 0.001
_BACKLOG = 128


class ControlEntry:
    """What the JVM calls. Thread-safe as far as the methods are: Py4J has a thread a caller.

    Args:
        find: returns the method of a name, or raises ProtocolError.
    """

    def __init__(self, find: Callable[[str], Method]) -> None:
        self._find = find

    def call(self, method: str, arguments: str) -> str:
        """Run a method and return ``{"ok": …}`` or ``{"error": …}``; never raises."""
        try:
            found = self._find(method)
            return json.dumps({"ok": found(json.loads(arguments))})
        except CairnError as failure:
            return json.dumps({"error": failure.to_dict()})
        except (KeyError, TypeError, ValueError) as failure:
            _LOG.exception("%s failed", method)
            # The text may hold arguments, and those may hold secrets: the kind alone goes out.
            error: CairnError = ProtocolError(
                f"{method} failed on its arguments: {type(failure).__name__}"
            )
            return json.dumps({"error": error.to_dict()})
        except Exception as failure:  # noqa: BLE001 - the promise: never raises
            _LOG.exception("%s failed", method)
            return json.dumps({"error": unexpected(failure).to_dict()})

    class Java:
        """Tells Py4J which Java interface this object is."""

        implements = ("io.cairn.spark.engine.EngineEntry",)


def serve(entry: ControlEntry, token: str) -> tuple[ClientServer, int]:
    """Listen on a free port of loopback; return the server and its port."""
    # Py4J logs each command it receives, arguments and all, below warning.
    logging.getLogger("py4j").setLevel(logging.ERROR)
    server = ClientServer(
        java_parameters=JavaParameters(auth_token=token, auto_field=False, eager_load=False),
        python_parameters=PythonParameters(
            address="127.0.0.1",
            port=0,
            daemonize=True,
            daemonize_connections=True,
            auth_token=token,
        ),
        python_server_entry_point=entry,
    )
    listening = server.get_callback_server()
    # Py4J binds here and listens in its thread, with room for five: who is told the port too early
    # is refused, and so are many tasks that come at once.
    while not listening.server_socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        SYSTEM_CLOCK.sleep(_LISTEN_POLL_S)
    listening.server_socket.listen(_BACKLOG)
    return server, int(listening.get_listening_port())
