"""An SSH connection through Fabric: every hop's host key checked, login by key alone, every wait bounded."""

from __future__ import annotations

import logging
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import fabric
from fabric.connection import derive_shorthand
from paramiko import Channel, MissingHostKeyPolicy, PKey, SSHClient, SSHException, Transport
from paramiko.config import SSHConfig
from paramiko.pkey import UnknownKeyType

from fabric_plan.errors import FabricPlanError, TransportError
from fabric_plan.transport.base import Target
from fabric_plan.transport.exchange import Exchange, Rights
from fabric_plan.transport.known_hosts import DEFAULT_PORT, KnownKey, known_keys, lookup_names
from fabric_plan.transport.ssh import Limits
from fabric_plan.transport.ssh_auth import Keys
from fabric_plan.transport.ssh_errors import Hop, ShownKeyError, explain

# Best first; paramiko asks the server for the type of the first key that it is given for a host.
KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
SYSTEM_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
# A wait is cut into slices of this length, to look at the clocks in between.
SLICE_S = 0.5
PIECE_BYTES = 1 << 16
# Connecting has three parts of `Limits.connect_s` each (TCP, the server's greeting, login) for every hop.
PARTS = 3

# The libraries log with tracebacks; what matters of it becomes an error of ours.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def open_session(target: Target, config: SSHConfig, rights: Rights, limits: Limits) -> Session:
    """Return an authenticated connection. Raises `TransportError`."""
    settings = fabric.Config(
        lazy=True,  # no file of Fabric's own: ours and OpenSSH's are enough
        ssh_config=config,
        overrides={"authentication": {"strategy_class": Keys}},
    )
    try:
        route = _route(target.host, target.user, target.port, settings, limits)
    except (ValueError, KeyError, SSHException) as error:
        raise TransportError(
            f"the SSH configuration makes no sense for {target.host}: {error}",
            where=target.name,
            hint=f"`ssh -G {target.host}` shows what it says",
        ) from None
    chain = list(_chain(route))[::-1]
    hops = [_prepare(connection, target.name, connection is not route) for connection in chain]
    limit_s = sum(PARTS * hop.limit_s for hop in hops)
    abandoned = threading.Event()

    def work() -> Session:
        for connection, hop in zip(chain, hops, strict=True):
            try:
                connection.open()
                _check_login(connection.transport, hop)
            except Exception as error:
                _close(chain)
                raise explain(error, hop) from None
            connection.transport.set_keepalive(int(limits.dead_s))
        if abandoned.is_set():
            _close(chain)
        return Session(target, route.transport, rights, limits, lambda: _close(chain))

    try:
        return _within(limit_s, work)
    except Empty:
        abandoned.set()
        raise TransportError(
            f"connecting to {hops[-1].words} took more than {limit_s:g} s",
            where=target.name,
            hint="does the name service answer, and the SSH agent?",
        ) from None


def _route(
    host: str,
    user: str | None,
    port: int | None,
    settings: fabric.Config,
    limits: Limits,
    through: fabric.Connection | None = None,
    seen: tuple[str, ...] = (),
) -> fabric.Connection:
    """Return the connection to a host with its jump hosts in place, none of them opened.

    Fabric's own reading of ``ProxyJump`` takes ``none`` for a host, and lets no two servers share an address.
    A host on its own way to itself is left out, as OpenSSH does for a jump set under ``Host *``.
    """
    options = settings.base_ssh_config.lookup(host)
    jumps = options.get("proxyjump", "none")
    gateway: fabric.Connection | str | bool = through or options.get("proxycommand") or False
    if through is None and jumps.lower() != "none":
        previous: fabric.Connection | None = None
        for jump in jumps.split(","):
            place = derive_shorthand(jump.strip().removeprefix("ssh://"))
            if place["host"] not in (*seen, host):
                previous = _route(
                    place["host"], place["user"], place["port"], settings, limits, previous, (*seen, host)
                )
        gateway = previous or gateway
    limit_s = _seconds(options.get("connecttimeout"), limits.connect_s)
    parts = {f"{part}_timeout": limit_s for part in ("banner", "auth", "channel")}
    connection = fabric.Connection(
        host,
        user=user,
        port=port,
        config=settings,
        gateway=gateway,
        forward_agent=False,
        connect_timeout=1,
        connect_kwargs=parts,
    )
    connection.connect_timeout = limit_s  # the constructor cuts fractions off
    return connection


def _seconds(written: str | None, otherwise: float) -> float:
    """Return a time of the SSH configuration in seconds (``90``, ``1m30s``)."""
    parts = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s?)?", (written or "").lower())
    if not written or parts is None:
        return otherwise
    return 60.0 * int(parts[1] or 0) + int(parts[2] or 0) or otherwise


def _chain(connection: fabric.Connection) -> Iterator[fabric.Connection]:
    """Yield a connection and its jump hosts, the node first."""
    while isinstance(connection, fabric.Connection):
        yield connection
        connection = connection.gateway


def _prepare(connection: fabric.Connection, node: str, jump: bool) -> Hop:
    """Give a connection the keys that its server may show, and return what is known of that server."""
    ssh_config = connection.ssh_config
    names = lookup_names(connection.host, connection.port, ssh_config.get("hostkeyalias"))
    files = tuple(
        file
        for option, default in (("userknownhostsfile", USER_FILES), ("globalknownhostsfile", SYSTEM_FILES))
        for file in ssh_config.get(option, default).split()
        if file.lower() != "none"
    )
    known = known_keys(files, names)
    hop = Hop(
        node=node,
        host=connection.host,
        port=connection.port,
        user=connection.user,
        jump=jump,
        known=known,
        known_as=names[0],
        files=files or ("~/.ssh/known_hosts",),
        limit_s=float(connection.connect_timeout),
    )
    _trust(connection.client, hop)
    return hop


def _trust(client: SSHClient, hop: Hop) -> None:
    """Let the client accept the known keys alone."""
    client.set_missing_host_key_policy(_Reject())
    revoked = {known.key for known in hop.known if known.marker == "@revoked"}
    good = [known for known in hop.known if not known.marker and known.key not in revoked]
    name = hop.host if hop.port == DEFAULT_PORT else f"[{hop.host}]:{hop.port}"
    for known in sorted(good, key=_rank):
        if known.type in KEY_TYPES:
            try:
                key = PKey.from_type_string(known.type, known.key)
            except (SSHException, UnknownKeyType, ValueError):
                continue  # a line that is damaged trusts nobody
            client.get_host_keys().add(name, known.type, key)


def _rank(known: KnownKey) -> int:
    return KEY_TYPES.index(known.type) if known.type in KEY_TYPES else len(KEY_TYPES)


class _Reject(MissingHostKeyPolicy):
    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
        raise ShownKeyError(key)


def _check_login(transport: Transport, hop: Hop) -> None:
    if not transport.is_authenticated():
        raise TransportError(
            f"{hop.words} wants more than a key from {hop.user}",
            where=hop.node,
            hint="a second factor cannot be asked for here: let this key do, or go through a jump host",
        )


def _close(chain: list[fabric.Connection]) -> None:
    for connection in reversed(chain):
        connection.client.close()


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
        close: Callable[[], None],
    ) -> None:
        self.target = target
        self._transport = transport
        self._rights = rights
        self._limits = limits
        self._close = close

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
        self._close()

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
            raise TransportError(
                f"the connection broke before the node program started: {error or 'it was closed'}",
                where=self.target.name,
            ) from None
        finally:
            clock.cancel()
        try:
            yield channel
        finally:
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
