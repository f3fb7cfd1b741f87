"""What the libraries under an SSH connection raise, in words that say what to do."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from paramiko import (
    AuthenticationException,
    BadHostKeyException,
    ChannelException,
    PKey,
    SSHException,
)
from paramiko.auth_strategy import AuthFailure
from paramiko.ssh_exception import IncompatiblePeer, NoValidConnectionsError

from fabric_plan.errors import FabricPlanError, TransportError
from fabric_plan.transport.known_hosts import KnownKey, fingerprint
from fabric_plan.transport.ssh_auth import tried_keys


class ShownKeyError(SSHException):
    """The server showed a key of a type for which nothing is known."""

    def __init__(self, key: PKey) -> None:
        super().__init__("the host key is not known")
        self.key = key


@dataclass(frozen=True, slots=True)
class Hop:
    """A server on the way to a node, the node itself at the end: what is said of it in errors.

    `known` are the lines of known_hosts that mean it, found under `known_as`; `files` those looked into.
    """

    node: str
    host: str
    port: int
    user: str
    jump: bool
    known: tuple[KnownKey, ...]
    known_as: str
    files: tuple[str, ...]
    limit_s: float

    @property
    def words(self) -> str:
        """The server as a person writes it."""
        return f"{'jump host ' if self.jump else ''}{self.host} port {self.port}"


def explain(error: Exception, hop: Hop) -> FabricPlanError:
    """Return the one error that the user reads for what happened while connecting to `hop`."""
    if isinstance(error, FabricPlanError):
        return error
    if isinstance(error, (BadHostKeyException, ShownKeyError)):
        return _host_key(error.key, hop)
    if isinstance(error, AuthFailure):
        return _refused(hop, tried_keys(error))
    message, hint = _plain(error, hop)
    return TransportError(message, where=hop.node, hint=hint)


def _plain(error: Exception, hop: Hop) -> tuple[str, str | None]:
    late = f"no answer from {hop.words} within {hop.limit_s:g} s"
    if isinstance(error, socket.gaierror):
        return f"{hop.host} is no name that can be resolved ({error.strerror})", "mgmt: is the node's address"
    if isinstance(error, NoValidConnectionsError):
        reasons = {str(getattr(one, "strerror", None) or one) for one in error.errors.values()}
        return (
            f"cannot connect to {hop.words}: {', '.join(sorted(reasons))}",
            "is the SSH server running there?",
        )
    if isinstance(error, TimeoutError):
        return late, "is the node up, and its address right?"
    if isinstance(error, ChannelException):
        return f"the jump host before {hop.words} cannot reach it: {error.text}", None
    if isinstance(error, IncompatiblePeer):
        return f"{hop.words} offers no algorithm that is known here: {error}", None
    if isinstance(error, AuthenticationException):
        return f"{hop.words} broke off while {hop.user} logged in: {error}", None
    if isinstance(error, SSHException):
        words = str(error)
        if "banner" in words:
            return (
                f"{hop.words} did not greet as an SSH server does within {hop.limit_s:g} s",
                "does `ssh` get further?",
            )
        if "No existing session" in words or "imeout" in words:
            return late, "does `ssh` get further?"
        return f"{hop.words}: {words}", None
    if isinstance(error, EOFError):
        return f"{hop.words} closed the connection", "does it allow one more connection (MaxStartups)?"
    if isinstance(error, OSError):
        return f"cannot connect to {hop.words}: {error.strerror or error}", None
    # A server that breaks the protocol makes the libraries fail anywhere.
    return f"{hop.words} said what makes no sense ({type(error).__name__}: {error})", None


def _refused(hop: Hop, tried: Sequence[str]) -> TransportError:
    keys = "; ".join(tried) or "there is no key to try"
    port = f" -p {hop.port}" if hop.port != 22 else ""
    return TransportError(
        f"{hop.words} refused the user {hop.user} (tried: {keys})",
        where=hop.node,
        hint=f"`ssh-copy-id{port} {hop.user}@{hop.host}`, or name user and key in ~/.ssh/config",
    )


def _host_key(shown: PKey, hop: Hop) -> TransportError:
    """Return the error for a key that may not be trusted: unknown, changed or revoked."""
    key, kind = shown.asbytes(), shown.get_name()
    revoked = [known for known in hop.known if known.marker == "@revoked" and known.key == key]
    plain = [known for known in hop.known if not known.marker]
    port = f" -p {hop.port}" if hop.port != 22 else ""
    if revoked:
        return TransportError(
            f"the host key of {hop.words} is revoked in {revoked[0].place} ({kind} {fingerprint(key)})",
            where=hop.node,
            hint="somebody may stand in between: ask who revoked it",
            id="host-key-revoked",
        )
    if not plain:
        certified = any(known.marker == "@cert-authority" for known in hop.known)
        return TransportError(
            f"the host key of {hop.words} is not known ({kind} {fingerprint(key)})",
            where=hop.node,
            hint=f"host certificates are not read here: add the key itself to {hop.files[0]}"
            if certified
            else f"log in once with `ssh{port} {hop.user}@{hop.host}` and compare that fingerprint; "
            f"it goes into {hop.files[0]}",
            id="host-key-unknown",
        )
    same = [known for known in plain if known.type == kind] or plain
    forget = f"ssh-keygen -f {shlex.quote(same[0].file)} -R {shlex.quote(hop.known_as)}"
    return TransportError(
        f"the host key of {hop.words} has changed: it shows {kind} {fingerprint(key)}, but {same[0].place} "
        f"has {same[0].type} {fingerprint(same[0].key)}",
        where=hop.node,
        hint=f"if the node was installed anew: `{forget}`, then log in once with ssh; if not, somebody may "
        "stand in between",
        id="host-key-changed",
    )
