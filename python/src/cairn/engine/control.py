"""The control channel: one method that takes JSON and returns JSON.

Layer: engine.  Spec: docs/protocol.md#control-calls.

Only the Python server listens, on loopback, with a token; the JVM opens no port. Py4J would put the
arguments of a failed call and a traceback into its answer. Therefore ``call`` never raises, and no
message contains a secret.
"""

from __future__ import annotations

import json
import logging
import socket
from typing import TYPE_CHECKING

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from cairn.clock import SYSTEM_CLOCK
from cairn.errors import CairnError, ProtocolError, unexpected

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.protocol.calls import Answer, Json

_LOG = logging.getLogger(__name__)
_LISTEN_POLL_S = 0.001
_BACKLOG = 128


class ControlEntry:
    """The object that the JVM calls. Py4J calls it in several threads: ``run`` must be thread-safe.

    Args:
        run: runs a method with its arguments and returns the answer.
    """

    def __init__(self, run: Callable[[str, Json], Answer]) -> None:
        self._run = run

    def call(self, method: str, arguments: str) -> str:
        """Run a method and return ``{"ok": …}`` or ``{"error": …}``; never raises."""
        try:
            return json.dumps({"ok": self._run(method, json.loads(arguments)).to_json()})
        except CairnError as failure:
            return json.dumps({"error": failure.to_dict()})
        except (KeyError, TypeError, ValueError) as failure:
            _LOG.exception("%s failed", method)
            # The text may contain arguments, and thereby secrets: only the kind is sent.
            error: CairnError = ProtocolError(
                f"{method} failed on its arguments: {type(failure).__name__}"
            )
            return json.dumps({"error": error.to_dict()})
        except Exception as failure:  # noqa: BLE001 - it never raises
            _LOG.exception("%s failed", method)
            return json.dumps({"error": unexpected(failure).to_dict()})

    class Java:
        """Tells Py4J which Java interface this object implements."""

        implements = ("io.cairn.spark.engine.EngineEntry",)


def serve(entry: ControlEntry, token: str) -> tuple[ClientServer, int]:
    """Listen on a free port of loopback; return the server and its port."""
    # Below the level warning, Py4J logs each command with its arguments.
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
    # Py4J only binds the socket here; its thread listens later, with a backlog of five. Before that
    # every connection is refused, and a backlog of five refuses some of many concurrent tasks.
    while not listening.server_socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        SYSTEM_CLOCK.sleep(_LISTEN_POLL_S)
    listening.server_socket.listen(_BACKLOG)
    return server, int(listening.get_listening_port())
