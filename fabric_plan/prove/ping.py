"""ICMP echo over raw sockets, one a namespace, many requests under way at once."""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from fabric_plan.prove.namespaces import Namespaces

HEADERS = 28  # IPv4 and ICMP

_WINDOW = 8  # requests a node has under way
_ATTEMPTS = 3
_PATIENCE = 1.0  # seconds for one attempt

_ECHO_REPLY, _UNREACHABLE, _ECHO, _EXCEEDED = 0, 3, 8, 11
_SOL_RAW, _ICMP_FILTER = 255, 1
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2
_ERRORS = {_UNREACHABLE: "it is unreachable", _EXCEEDED: "the TTL is used up"}
_WANTED = sum(1 << kind for kind in (_ECHO_REPLY, *_ERRORS))


@dataclass(frozen=True, slots=True)
class Flow:
    """One address to ask: from `node`, the `address` of `peer`."""

    node: str
    peer: str
    address: IPv4Address


@dataclass(slots=True)
class _Request:
    flow: int
    sequence: int
    target: str
    attempts: int = 0
    due: float = 0.0
    seen: str = ""


class _Node:
    """One node's socket and what it still has to ask."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waiting: deque[_Request] = deque()
        self.under_way: dict[int, _Request] = {}


class Pinger:
    """Sockets in every namespace, as a context that closes them."""

    def __init__(self, mtu: int, namespaces: Namespaces, nodes: Iterable[str]) -> None:
        self._id = secrets.randbits(16)
        self._filler = bytes(mtu - HEADERS)
        self._nodes: dict[str, _Node] = {}
        self._selector = selectors.DefaultSelector()
        try:
            for name in sorted(nodes):
                with namespaces.inside(name):
                    node = self._nodes[name] = _Node(_icmp_socket())
                self._selector.register(node.sock, selectors.EVENT_READ, node)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Pinger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every socket."""
        self._selector.close()
        for node in self._nodes.values():
            node.sock.close()

    def run(self, flows: Sequence[Flow]) -> list[str | None]:
        """Ask every flow, three times at most, a second each. Return, in order, None or why there was no
        answer.
        """
        answers: list[str | None] = [None] * len(flows)
        for i, flow in enumerate(flows):
            waiting = self._nodes[flow.node].waiting
            waiting.append(_Request(i, len(waiting), str(flow.address)))
        left = len(flows)
        while left:
            for node in self._nodes.values():
                left -= self._send(node, answers)
            for key, _ in self._selector.select(self._pause()):
                left -= self._receive(key.data, answers)
        return answers

    def _pause(self) -> float:
        dues = [request.due for node in self._nodes.values() for request in node.under_way.values()]
        return max(0.0, min(dues) - time.monotonic()) if dues else 0.0

    def _send(self, node: _Node, answers: list[str | None]) -> int:
        """Send what fits into the window. Return how many requests were given up, asked often enough."""
        now = time.monotonic()
        for sequence, request in list(node.under_way.items()):
            if request.due <= now:
                del node.under_way[sequence]
                node.waiting.appendleft(request)
        given_up = 0
        while node.waiting and len(node.under_way) < _WINDOW:
            request = node.waiting.popleft()
            if request.attempts == _ATTEMPTS:
                answers[request.flow] = request.seen or "no answer"
                given_up += 1
                continue
            request.attempts += 1
            request.due = now + _PATIENCE
            try:
                node.sock.sendto(_echo(self._id, request.sequence, self._filler), (request.target, 0))
            except OSError as error:
                request.seen = os.strerror(error.errno or 0)
            node.under_way[request.sequence] = request
        return given_up

    def _receive(self, node: _Node, answers: list[str | None]) -> int:
        """Take in everything that has arrived. Return how many requests it settles."""
        settled = 0
        while True:
            try:
                packet, (sender, _) = node.sock.recvfrom(65535)
            except BlockingIOError:
                return settled
            except OSError as error:  # an ICMP error about one of our packets, told once more by the socket
                if error.errno is None:
                    raise
                continue
            body = packet[(packet[0] & 15) * 4 :]
            kind = body[0]
            if kind == _ECHO_REPLY:
                settled += self._answered(node, packet, body, sender, answers)
            elif kind in _ERRORS:
                inner = body[8:]
                request = self._asked(node, inner[(inner[0] & 15) * 4 :] if inner else b"", _ECHO)
                if request is not None:
                    request.seen = f"{sender} says that {_ERRORS[kind]}"

    def _asked(self, node: _Node, message: bytes, kind: int) -> _Request | None:
        if len(message) < 8 or message[0] != kind:
            return None
        identity, sequence = struct.unpack_from("!HH", message, 4)
        return node.under_way.get(sequence) if identity == self._id else None

    def _answered(
        self, node: _Node, packet: bytes, body: bytes, sender: str, answers: list[str | None]
    ) -> int:
        request = self._asked(node, body, _ECHO_REPLY)
        if request is None or sender != request.target:
            return 0
        del node.under_way[request.sequence]
        whole = len(packet) == len(self._filler) + HEADERS
        answers[request.flow] = None if whole else f"{len(packet)} bytes came back"
        return 1


def _icmp_socket() -> socket.socket:
    """Return a socket of this thread's namespace that never fragments and hears no requests of others."""
    sock = socket.socket(
        socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, socket.IPPROTO_ICMP
    )
    try:
        sock.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("I", ~_WANTED & 0xFFFFFFFF))
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    except BaseException:
        sock.close()
        raise
    return sock


def _echo(identity: int, sequence: int, filler: bytes) -> bytes:
    """Return an echo request. The filler is zeros, so that only the header counts for the checksum."""
    total = (_ECHO << 8) + identity + sequence
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!BBHHH", _ECHO, 0, ~total & 0xFFFF, identity, sequence) + filler
