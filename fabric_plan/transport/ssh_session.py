"""An SSH connection through Fabric: every hop's host key checked, login by key alone, every wait bounded."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from paramiko import Channel, SSHException, Transport

from fabric_plan.errors import FabricPlanError, TransportError
from fabric_plan.transport.base import Limits, Target
from fabric_plan.transport.exchange import Exchange, Rights
from fabric_plan.transport.ssh_route import Route, find_route

# A wait is cut into slices of this length, to look at the clocks in between.
SLICE_S = 0.5
PIECE_BYTES = 1 << 16

# The libraries log with tracebacks; what matters of it becomes an error of ours.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def open_session(target: Target, config: str, rights: Rights, limits: Limits) -> Session:
    """Return an authenticated connection, by the text of an SSH configuration. Raises `TransportError`."""
    route = find_route(target, config, limits)
    abandoned = threading.Event()

    def work() -> Session:
        session = Session(target, route.open(limits.dead_s), rights, limits, route)
        if abandoned.is_set():
            session.close()
        return session

    try:
        return _within(route.limit_s, work)
    except Empty:
        abandoned.set()
        raise TransportError(
            f"connecting to {route.hops[-1].words} took more than {route.limit_s:g} s",
            where=target.name,
            hint="does the name service answer, and the SSH agent?",
        ) from None


def _within(limit_s: float, work: Callable[[], Session]) -> Session:
    """Return what `work` returns, or raise what it raises; `Empty` when it takes longer than `limit_s`."""
    outcome: SimpleQueue[Session | Exception] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put(work())
        except Exception as error:  # raised again in the caller's thread
            outcome.put(error)

    threading.Thread(target=run, daemon=True, name="connecting").start()
    result = outcome.get(timeout=limit_s)
    if isinstance(result, Exception):
        raise result
    return result


class Session:
    """An authenticated SSH connection; each call is one channel of it."""

    def __init__(
        self,
        target: Target,
        transport: Transport,
        rights: Rights,
        limits: Limits,
        route: Route,
    ) -> None:
        self.target = target
        self._transport = transport
        self._rights = rights
        self._limits = limits
        self._route = route

    def call(self, verb: str, request: Mapping[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Run a verb of the node program; see `Connection.call`."""
        exchange = Exchange(self.target.name, verb, request, self._rights)
        try:
            with self._start(exchange.command, limit_s) as channel:
                return exchange.run(_ChannelPipe(channel, self.target, self._limits, limit_s))
        except TransportError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection and those to its jump hosts."""
        self._route.close()

    @contextmanager
    def _start(self, command: str, limit_s: float) -> Iterator[Channel]:
        """Start a command; the library waits for the server's word without a limit, so the clock closes."""
        clock = threading.Timer(min(limit_s, self._limits.dead_s), self._transport.close)
        clock.daemon = True
        clock.start()
        try:
            channel = self._transport.open_session(timeout=limit_s)
            channel.exec_command(command)
        except (SSHException, EOFError, OSError) as error:
            late = not clock.is_alive()
            raise TransportError(
                f"the connection is dead: nothing started within {clock.interval:g} s"
                if late
                else f"the connection broke before the node program started: {error or 'it was closed'}",
                where=self.target.name,
                hint="is the node still up?",
            ) from None
        finally:
            clock.cancel()
        try:
            yield channel
        finally:
            with suppress(SSHException, EOFError, OSError):
                channel.close()


class _ChannelPipe:
    """The streams of a command over SSH."""

    def __init__(self, channel: Channel, target: Target, limits: Limits, limit_s: float) -> None:
        self._channel = channel
        self._target = target
        self._limits = limits
        self._limit_s = limit_s
        self._began = self._heard = time.monotonic()
        self._pulse: threading.Thread | None = None
        channel.settimeout(SLICE_S)

    def send(self, data: bytes) -> None:
        """Write all of `data`; what the command says when it stops reading is worth more than an error."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._channel.send(rest[:PIECE_BYTES].tobytes()) :]
            except TimeoutError:
                self._look_at_the_clocks()
            except OSError:
                return

    def receive(self) -> tuple[bytes, bytes]:
        """Return what came on either stream; both empty at the end."""
        channel = self._channel
        while True:
            ended = channel.eof_received or channel.closed
            out = channel.recv(PIECE_BYTES) if channel.recv_ready() else b""
            err = channel.recv_stderr(PIECE_BYTES) if channel.recv_stderr_ready() else b""
            if out or err:
                self._heard = time.monotonic()
                return out, err
            if ended:
                if not channel.get_transport().is_active():
                    raise self._error("the connection broke in the middle", "apply again: it looks first")
                return b"", b""
            select.select([channel], [], [], SLICE_S)
            self._look_at_the_clocks()

    def _look_at_the_clocks(self) -> None:
        now = time.monotonic()
        if now - self._began > self._limit_s:
            raise self._error(
                f"no answer within {self._limit_s:g} s", "the connection lives: something hangs on the node"
            )
        silent = now - self._heard
        if silent > self._limits.dead_s:
            raise self._error(
                f"the connection is dead: not a sign of life for {silent:.0f} s", "is the node still up?"
            )
        if silent > self._limits.pulse_s and self._pulse is None:
            self._pulse = threading.Thread(target=self._beat, daemon=True, name="pulse")
            self._pulse.start()

    def _beat(self) -> None:
        """Ask the server for a sign of life until the channel is closed; any answer is one."""
        while not self._channel.closed:
            transport = self._channel.get_transport()
            try:
                transport.global_request("keepalive@openssh.com", wait=True)
            except (SSHException, EOFError, OSError):
                return
            if not transport.is_active():
                return
            self._heard = time.monotonic()
            time.sleep(self._limits.pulse_s / 2)

    def _error(self, message: str, hint: str) -> FabricPlanError:
        return TransportError(message, where=self._target.name, hint=hint)
