"""The way to a server as the SSH configuration has it: jump hosts, a proxy command, trusted host keys."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import fabric
from fabric.connection import derive_shorthand
from paramiko import MissingHostKeyPolicy, PKey, SSHClient, SSHException, Transport
from paramiko.config import SSHConfig
from paramiko.pkey import UnknownKeyType

from fabric_plan.errors import TransportError
from fabric_plan.transport.base import Limits, Target
from fabric_plan.transport.known_hosts import DEFAULT_PORT, KnownKey, known_keys, lookup_names
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
# Connecting has three parts of one limit each (TCP, the server's greeting, login) for every hop.
PARTS = 3
REAP_S = 2.0


@dataclass(slots=True)
class Route:
    """Connections from here to a node, the first jump host first, with what errors say of each; none is open
    before `open`.
    """

    chain: list[fabric.Connection]
    hops: list[Hop]
    proxies: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def limit_s(self) -> float:
        """How long opening all of it may take, in seconds."""
        return sum(PARTS * hop.limit_s for hop in self.hops)

    def open(self, keepalive_s: float) -> Transport:
        """Connect and log in hop by hop, and return the connection to the node. Raises `TransportError`."""
        for connection, hop in zip(self.chain, self.hops, strict=True):
            try:
                command = connection.ssh_config.get("proxycommand")
                if command and not connection.gateway:
                    connection.connect_kwargs["sock"] = self._proxy(command)
                connection.open()
                _check_login(connection.transport, hop)
            except Exception as error:
                self.close()
                raise explain(error, hop) from None
            connection.transport.set_keepalive(max(1, int(keepalive_s)))
        transport: Transport = self.chain[-1].transport
        return transport

    def close(self) -> None:
        """Close every connection, the node's first."""
        for connection in reversed(self.chain):
            connection.client.close()
        while self.proxies:
            process = self.proxies.pop()
            try:
                process.wait(timeout=REAP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _proxy(self, command: str) -> socket.socket:
        """Start a ``ProxyCommand`` and return a socket to it; paramiko's own never sees its end."""
        ours, theirs = socket.socketpair()
        with theirs:
            words, end = ["/bin/sh", "-c", f"exec {command}"], theirs.fileno()
            self.proxies.append(
                subprocess.Popen(words, stdin=end, stdout=end, stderr=subprocess.DEVNULL, bufsize=0)
            )
        return ours


def find_route(target: Target, config: str, limits: Limits) -> Route:
    """Return the way to `target` by the text of an SSH configuration, in which its own user and port win.

    Raises `TransportError` where that makes no sense.
    """
    own = [f"Host {target.host}"]
    own += [f"Port {target.port}"] if target.port is not None else []
    own += [f"User {target.user}"] if target.user is not None else []
    settings = fabric.Config(
        lazy=True,  # no file of Fabric's own: ours and OpenSSH's are enough
        ssh_config=SSHConfig.from_text("\n".join([*own, "Host *", config])),
        overrides={"authentication": {"strategy_class": Keys}},
    )
    try:
        chain = list(_chain(_connection(target.host, settings, limits)))[::-1]
    except (ValueError, KeyError, SSHException) as error:
        raise TransportError(
            f"the SSH configuration makes no sense for {target.host}: {error}",
            where=target.name,
            hint=f"`ssh -G {target.host}` shows what it says",
        ) from None
    return Route(chain, [_prepare(one, target.name, one is not chain[-1]) for one in chain])


def _connection(
    host: str,
    settings: fabric.Config,
    limits: Limits,
    *,
    user: str | None = None,
    port: int | None = None,
    through: fabric.Connection | None = None,
    seen: tuple[str, ...] = (),
) -> fabric.Connection:
    """Return the connection to a host with its jump hosts in place, none of them opened.

    Fabric's own reading of ``ProxyJump`` takes ``none`` for a host, and lets no two servers share an address.
    A host on its own way to itself is left out, as OpenSSH does for a jump set under ``Host *``.
    """
    options = settings.base_ssh_config.lookup(host)
    jumps = options.get("proxyjump", "none")
    if through is None and jumps.lower() != "none":
        for jump in jumps.split(","):
            place = derive_shorthand(jump.strip().removeprefix("ssh://"))
            if place["host"] not in (*seen, host):
                through = _connection(
                    place["host"],
                    settings,
                    limits,
                    user=place["user"],
                    port=place["port"],
                    through=through,
                    seen=(*seen, host),
                )
    limit_s = _seconds(options.get("connecttimeout"), limits.connect_s)
    connection = fabric.Connection(
        host,
        user=user,
        port=port,
        config=settings,
        gateway=through or False,
        forward_agent=False,
        connect_timeout=1,
        connect_kwargs={f"{part}_timeout": limit_s for part in ("banner", "auth", "channel")},
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
