"""Find out who is at the other end of a cable: a few LLDP frames of our own, sent and heard on given devices.

LLDP's EtherType is used because nothing forwards it: not a bridge, not a switch, and no rule of ours. A frame
carries the run's token, so that what is counted is this run's and no daemon's. Never on a device that leads
to the node itself: one with a default route, or with the address that this program was reached over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping

from .collect.host import ssh
from .plain import dataclass
from .request import RequestError
from .tools import Tools
from .tree import Tree

ETHERTYPE_LLDP = 0x88CC
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
PERIOD_S = 0.5
MAX_SECONDS = 15.0
MAX_INTERFACES = 16
FRAME_BYTES = 1600
TTL_S = 5
DESCRIPTION = "fabric-plan cable probe "

# Kernel constants that Python's socket module does not name.
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_MR_MULTICAST = 0
_PACKET_OUTGOING = 4
_SIOCGIFADDR = 0x8915
_ARPHRD_ETHER = "1"

_NETDEV = re.compile(r"^[A-Za-z0-9_.@+-]{1,15}$")
_SYSTEM = re.compile(r"^[A-Za-z0-9.-]{1,63}$")
_TOKEN = re.compile(r"^[0-9a-f]{16}$")

# TLV types of IEEE 802.1AB, and the subtypes used here.
_END, _CHASSIS, _PORT, _TTL, _SYSTEM_NAME, _SYSTEM_DESCRIPTION = 0, 1, 2, 3, 5, 6
_CHASSIS_LOCAL, _PORT_NAME = 7, 5


@dataclass(frozen=True)
class Probe:
    """What to do: on which devices, as whom, for how many seconds."""

    system: str
    token: str
    interfaces: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Heard:
    """One neighbour: the device that heard it, its system name, and the name of its device."""

    dev: str
    system: str
    port: str


def probe_cables(request: str, tree: Tree, tools: Tools) -> str:
    """Send and listen; return ``{"heard": [..], "skipped": {dev: reason}}``. Raises `RequestError`."""
    del tools
    probe = parse_probe(request)
    skipped = {dev: reason for dev in probe.interfaces for reason in [refused(dev, tree)] if reason}
    usable = [dev for dev in probe.interfaces if dev not in skipped]
    heard, failed = exchange(probe, usable)
    document = {"heard": [vars(one) for one in heard], "skipped": {**skipped, **failed}}
    return json.dumps(document, sort_keys=True)


def parse_probe(text: str) -> Probe:
    """Return the request. Raises `RequestError` where it is not one."""
    try:
        document = json.loads(text)
        seconds = float(document["seconds"])
        interfaces = tuple(document["interfaces"])
        system, token = document["system"], document["token"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RequestError(f"not a probe request: {error!r}") from None
    words = [(system, _SYSTEM), (token, _TOKEN), *((dev, _NETDEV) for dev in interfaces)]
    if not all(isinstance(word, str) and pattern.match(word) for word, pattern in words):
        raise RequestError("a probe names a system, a token and interfaces")
    if not 0 < seconds <= MAX_SECONDS or not 0 < len(interfaces) <= MAX_INTERFACES:
        raise RequestError(
            f"a probe lasts at most {MAX_SECONDS:.0f} s on at most {MAX_INTERFACES} interfaces"
        )
    return Probe(system, token, interfaces, seconds)


def refused(dev: str, tree: Tree) -> str | None:
    """Return why nothing may be sent on `dev`, None where it may."""
    if tree.read(f"/sys/class/net/{dev}/type") != _ARPHRD_ETHER:
        return "is no Ethernet device"
    if tree.names(f"/sys/class/net/{dev}/wireless"):
        return "is a wireless device"
    if dev in _default_route_devices(tree):
        return "carries a default route: it may be the way to this node"
    ends = ssh(tree, os.environ)
    if ends is not None and _carries(dev, ends[1].partition("%")[0], tree):
        return "carries the connection that this program was reached over"
    return None


def _default_route_devices(tree: Tree) -> set[str]:
    four = [line.split() for line in (tree.read("/proc/net/route", 1 << 20) or "").splitlines()[1:]]
    six = [line.split() for line in (tree.read("/proc/net/ipv6_route", 1 << 20) or "").splitlines()]
    found = {row[0] for row in four if len(row) > 7 and row[1] == row[7] == "0" * 8}
    return found | {row[9] for row in six if len(row) > 9 and row[0] == "0" * 32 and row[1] == "00"}


def _carries(dev: str, address: str, tree: Tree) -> bool:
    """Tell whether `address` stands on `dev`."""
    if ":" in address:
        packed = socket.inet_pton(socket.AF_INET6, address).hex()
        rows = [line.split() for line in (tree.read("/proc/net/if_inet6", 1 << 20) or "").splitlines()]
        return any(row[0] == packed and row[-1] == dev for row in rows if row)
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", dev.encode()))
        return bytes(answer[20:24]) == socket.inet_aton(address)
    return False


def exchange(probe: Probe, devices: list[str]) -> tuple[list[Heard], dict[str, str]]:
    """Send on every device each half second until the time is over, and listen all the while.

    Returns who was heard, each once, and the devices that could not be opened with the reason.
    """
    sockets: dict[socket.socket, str] = {}
    failed: dict[str, str] = {}
    heard: dict[Heard, None] = {}
    try:
        for dev in devices:
            try:
                sockets[_open(dev)] = dev
            except OSError as error:
                failed[dev] = f"cannot be opened ({error.strerror})"
        deadline = time.monotonic() + probe.seconds
        following = 0.0
        while sockets and time.monotonic() < deadline:
            if time.monotonic() >= following:
                following = time.monotonic() + PERIOD_S
                _send(sockets, probe, failed)
            wait = max(0.0, min(following, deadline) - time.monotonic())
            for ready in select.select(list(sockets), [], [], wait)[0]:
                one = _receive(ready, sockets[ready], probe)
                if one is not None:
                    heard[one] = None
    finally:
        for one_socket in sockets:
            one_socket.close()
    return sorted(heard, key=lambda one: (one.dev, one.system, one.port)), failed


def _open(dev: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_LLDP))
    try:
        opened.setblocking(False)
        opened.bind((dev, ETHERTYPE_LLDP))
        group = struct.pack("IHH8s", socket.if_nametoindex(dev), _PACKET_MR_MULTICAST, 6, NEAREST_BRIDGE)
        opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, group)
    except OSError:
        opened.close()
        raise
    return opened


def _send(sockets: Mapping[socket.socket, str], probe: Probe, failed: dict[str, str]) -> None:
    for one, dev in sockets.items():
        try:
            one.send(frame(one.getsockname()[4], probe, dev))
            failed.pop(dev, None)
        except OSError as error:
            # A port without a link says so; its cable may still come up while the probe lasts.
            failed[dev] = f"cannot send ({error.strerror})"


def frame(mac: bytes, probe: Probe, dev: str) -> bytes:
    """Return the LLDP frame that `dev` with the address `mac` sends."""
    body = b"".join(
        (
            _tlv(_CHASSIS, bytes([_CHASSIS_LOCAL]) + probe.system.encode()),
            _tlv(_PORT, bytes([_PORT_NAME]) + dev.encode()),
            _tlv(_TTL, struct.pack(">H", TTL_S)),
            _tlv(_SYSTEM_NAME, probe.system.encode()),
            _tlv(_SYSTEM_DESCRIPTION, f"{DESCRIPTION}{probe.token}".encode()),
            _tlv(_END, b""),
        )
    )
    return (NEAREST_BRIDGE + mac + struct.pack(">H", ETHERTYPE_LLDP) + body).ljust(60, b"\0")


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">H", kind << 9 | len(value)) + value


def _receive(ready: socket.socket, dev: str, probe: Probe) -> Heard | None:
    try:
        data, address = ready.recvfrom(FRAME_BYTES)
    except OSError:
        return None
    return None if address[2] == _PACKET_OUTGOING else parse_frame(data, dev, probe)


def parse_frame(data: bytes, dev: str, probe: Probe) -> Heard | None:
    """Return who sent a frame, None where it is not of this run, is damaged, or is our own come back."""
    if data[12:14] != struct.pack(">H", ETHERTYPE_LLDP):
        return None
    fields = dict(_tlvs(data[14:]))
    if fields.get(_SYSTEM_DESCRIPTION) != f"{DESCRIPTION}{probe.token}".encode():
        return None
    system = fields.get(_SYSTEM_NAME, b"").decode("ascii", "replace")
    port = fields.get(_PORT, b"")[1:].decode("ascii", "replace")
    itself = system == probe.system and port == dev
    if itself or not _SYSTEM.match(system) or not _NETDEV.match(port):
        return None
    return Heard(dev, system, port)


def _tlvs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and value of each TLV up to the end; a cut one ends the walk."""
    at = 0
    while at + 2 <= len(data):
        (head,) = struct.unpack_from(">H", data, at)
        kind, length = head >> 9, head & 0x1FF
        if kind == _END or at + 2 + length > len(data):
            return
        yield kind, data[at + 2 : at + 2 + length]
        at += 2 + length
