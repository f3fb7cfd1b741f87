"""This machine as the node: the same exchange over pipes instead of a connection."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from fabric_plan.errors import TransportError
from fabric_plan.transport.base import Connection, Target
from fabric_plan.transport.exchange import Exchange, Rights

PIECE_BYTES = 1 << 16
GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Local:
    """The transport to the machine that this runs on; sudo is used as on a node."""

    rights: Rights = field(default_factory=Rights)

    def connect(self, target: Target) -> Connection:
        """Return the way to this machine; nothing is started before the first call."""
        return _LocalConnection(target, self.rights)


@dataclass(frozen=True, slots=True)
class _LocalConnection:
    target: Target
    rights: Rights

    def call(self, verb: str, request: Mapping[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Run a verb of the node program here; see `Connection.call`."""
        exchange = Exchange(self.target.name, verb, request, self.rights)
        process = subprocess.Popen(
            exchange.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            return exchange.run(_ProcessPipe(process, self.target.name, limit_s))
        finally:
            _end(process)

    def close(self) -> None:
        """Nothing stays open between calls."""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process: it goes by itself once its streams are closed, else by a signal to its session."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    for how in (None, signal.SIGTERM, signal.SIGKILL):
        try:
            if how is not None:
                os.killpg(process.pid, how)
            process.wait(timeout=GRACE_S)
        except (subprocess.TimeoutExpired, PermissionError):
            continue  # a process of root's under sudo takes the signal from sudo alone
        return


class _ProcessPipe:
    """The streams of a process, none of them waited for beyond the limit."""

    def __init__(self, process: subprocess.Popen[bytes], node: str, limit_s: float) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._in, self._out, self._err = process.stdin, process.stdout, process.stderr
        self._open: list[IO[bytes]] = [self._out, self._err]
        self._node = node
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s
        os.set_blocking(self._in.fileno(), False)

    def send(self, data: bytes) -> None:
        """Write all of `data`, as fast as it is read."""
        rest = memoryview(data)
        while rest:
            _, ready, _ = select.select([], [self._in], [], self._left())
            try:
                rest = rest[os.write(self._in.fileno(), rest[:PIECE_BYTES]) if ready else 0 :]
            except BrokenPipeError:
                return

    def receive(self) -> tuple[bytes, bytes]:
        """Return what came on either stream; both empty at the end."""
        while self._open:
            ready, _, _ = select.select(self._open, [], [], self._left())
            pieces = {stream: os.read(stream.fileno(), PIECE_BYTES) for stream in ready}
            self._open = [stream for stream in self._open if pieces.get(stream) != b""]
            if any(pieces.values()):
                return pieces.get(self._out, b""), pieces.get(self._err, b"")
        return b"", b""

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TransportError(
                f"no answer within {self._limit_s:g} s",
                where=self._node,
                hint="something hangs on this machine",
            )
        return left
