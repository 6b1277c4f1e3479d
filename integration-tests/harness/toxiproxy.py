"""A Toxiproxy server before one other server: it delays, cuts and refuses connections.

It works on connections and bytes. `harness.tcp_proxy` works on single HTTP requests.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from harness.processes import end_child, free_port, server_environment, wait_until

BINARY = Path(__file__).resolve().parents[2] / ".build" / "tools" / "toxiproxy"
_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0
_NAME = "target"


class Toxiproxy:
    """The server with one proxy, up between ``__enter__`` and ``__exit__``.

    Args:
        target_url: the other server's ``http://host:port``.
        folder: an existing folder for its log.

    Attributes:
        url: the URL for clients.
    """

    def __init__(self, target_url: str, folder: Path) -> None:
        target = urlsplit(target_url)
        self._upstream = f"{target.hostname}:{target.port}"
        self._log = folder / "toxiproxy.log"
        self._api = f"http://127.0.0.1:{free_port()}"
        self._listen = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://{self._listen}"

    def add_toxic(self, name: str, kind: str, **attributes: int) -> None:
        """Add a toxic to the answers, such as ``latency`` with ``latency`` and ``jitter`` in ms."""
        toxic = {"name": name, "type": kind, "stream": "downstream", "attributes": attributes}
        self._call("POST", f"/proxies/{_NAME}/toxics", toxic)

    def remove_toxic(self, name: str) -> None:
        """Remove a toxic. Idempotent."""
        try:
            self._call("DELETE", f"/proxies/{_NAME}/toxics/{name}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def set_enabled(self, *, is_enabled: bool) -> None:
        """Refuse all connections, and close those that are open; or accept them again."""
        self._call("POST", f"/proxies/{_NAME}", {"enabled": is_enabled})

    def __enter__(self) -> Self:
        if not BINARY.is_file():
            raise FileNotFoundError(f"{BINARY} is missing: run `make toxiproxy`")
        api = urlsplit(self._api)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(BINARY), "-host", "127.0.0.1", "-port", str(api.port)],
                env=server_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to the caller, which ends the server
            )
        try:
            wait_until(self._answers, _START_TIMEOUT_S, "toxiproxy", self._text)
            proxy = {"name": _NAME, "listen": self._listen, "upstream": self._upstream}
            self._call("POST", "/proxies", proxy)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _answers(self) -> bool:
        try:
            self._call("GET", "/version")
        except OSError:
            return False
        return True

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._api + path, data, method=method)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310 - loopback
            return

    def _text(self) -> str:
        return self._log.read_text(errors="replace")

    def _stop(self) -> None:
        if self._process is not None:
            end_child(self._process, _STOP_TIMEOUT_S)
