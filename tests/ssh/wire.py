"""A stretch of wire to a node's SSH port that a test can freeze or cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from tests.ssh.nodes import LOOPBACK

DEADLINE_S = 60.0


class Wire:
    """Forwards connections on `port` to `to`; once frozen, both sides stay open and nothing passes."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = int(self._server.getsockname()[1])
        self._frozen = threading.Event()
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Wire:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()

    def freeze_when(self, ready: Callable[[], bool]) -> None:
        """Let nothing pass from the moment that `ready` is true."""
        _wait(ready)
        self._frozen.set()

    def cut_when(self, ready: Callable[[], bool]) -> None:
        """Close both sides once `ready` is true."""
        _wait(ready)
        self.cut()

    def cut(self) -> None:
        """Close both sides of every connection."""
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
                node = socket.create_connection((LOOPBACK, self._to))
            except OSError:
                return
            self._sockets += [client, node]
            for a, b in ((client, node), (node, client)):
                threading.Thread(target=self._pass, args=(a, b), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if self._frozen.is_set():
                    continue
                sink.sendall(data)
        except OSError:
            return


def _wait(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.01)
