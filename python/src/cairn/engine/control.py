"""The control channel: one method that takes JSON and returns JSON.

Layer: engine.  Spec: docs/protocol.md#control-calls.

Only the Python server listens, on loopback, with a token; the JVM opens no port. Py4J would put the
arguments of a failed call and a traceback into its answer. Therefore ``call`` never raises, and no
message contains a secret.
"""

from __future__ import annotations

import json
import logging
import select
import socket
from typing import TYPE_CHECKING, Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from cairn.clock import SYSTEM_CLOCK
from cairn.engine.acceptor import Acceptor
from cairn.engine.jobs import Jobs, answer_of
from cairn.errors import DataError, ProtocolError
from cairn.format.fields import as_int, as_object

if TYPE_CHECKING:
    from cairn.engine.jobs import Run
    from cairn.protocol.calls import Json
    from cairn.storage.progress import Activity

_LISTEN_POLL_S = 0.001
_BACKLOG = 128


class ControlEntry:
    """The object that the JVM calls. Py4J calls it in several threads: ``run`` must be thread-safe.

    Args:
        run: runs a method with its arguments and returns the answer.
        activity: the worker's.
    """

    def __init__(self, run: Run, activity: Activity) -> None:
        self._jobs = Jobs(run, activity)
        self._activity = activity

    def call(self, method: str, arguments: str) -> str:
        """Run a method and return ``{"ok": …}``, ``{"error": …}`` or ``{"running": …}``.

        Never raises. Spec: docs/protocol.md#calls.
        """
        return json.dumps(answer_of(method, lambda: self._called(method, arguments)))

    def _called(self, method: str, arguments: str) -> Json:
        try:
            return self._answer(method, dict(as_object(json.loads(arguments), "arguments")))
        except DataError as error:
            raise ProtocolError(f"a call has a wrong argument: {error.message}") from None

    def _answer(self, method: str, arguments: dict[str, Any]) -> Json:
        if method == "activity":
            return {"ok": {"moved": self._activity.count}}
        number = as_int(arguments.pop("job"), "job")
        if method == "cancel":
            self._jobs.cancel(number)
            return {"ok": {}}
        wait_s = as_int(arguments.pop("answer_within_ms"), "answer_within_ms") / 1000
        if method == "await":
            return self._jobs.wait(number, wait_s)
        return self._jobs.begin(number, method, arguments, wait_s)

    class Java:
        """Tells Py4J which Java interface this object implements."""

        implements = ("io.cairn.spark.engine.EngineEntry",)


class _ControlSocket:
    """The listening socket as Py4J uses it: an error of ``accept`` would end Py4J's server."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._acceptor = Acceptor(listening)

    def accept(self) -> tuple[socket.socket, None]:
        """Return the next connection that is not refused."""
        while True:
            select.select([self._socket], [], [])
            accepted = self._acceptor.accept_or_refuse()
            if accepted is not None:
                return accepted, None

    def __getattr__(self, name: str) -> object:
        return getattr(self._socket, name)


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
    listening.server_socket = _ControlSocket(listening.server_socket)
    return server, int(listening.get_listening_port())
