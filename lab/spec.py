"""What a lab looks like: nodes, their functions and management ports, cables. Plain data, from an inventory
or `ring`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from ipaddress import IPv4Interface, IPv4Network
from typing import TYPE_CHECKING, Any

from lab.errors import LabError

if TYPE_CHECKING:
    from fabric_plan.topology.fabric import Fabric

PORTS = ("f0", "f1")
SPARE_MGMT = IPv4Network("10.99.0.0/24")
# The module puts function F of every PCI domain on bus 01, device 00.
PCI = re.compile(r"(?P<domain>[0-9a-f]{4}):01:00\.(?P<function>[01])")


class Renderer(StrEnum):
    """Who owns the management port."""

    NETWORKD = "networkd"
    NETWORK_MANAGER = "nm"


class Style(StrEnum):
    """The two ways in which people cable a ring."""

    ALL_SAME = "f0-f1"
    """every f0 to the next node's f1"""
    ALTERNATING = "f1-f1"
    """f1 to f1 and f0 to f0 in turn"""


@dataclass(frozen=True, slots=True)
class Function:
    """One PCIe function as the guest's kernel will show it; `plane` is counted from 1."""

    port: str
    plane: int
    netdev: str
    rdma: str
    pci: str
    mac: str


@dataclass(frozen=True, slots=True)
class Management:
    """The management port; `address` is an address with its prefix length."""

    netdev: str
    address: str
    mac: str
    renderer: Renderer = Renderer.NETWORK_MANAGER

    @property
    def ip(self) -> str:
        """The address alone."""
        return str(IPv4Interface(self.address).ip)


@dataclass(frozen=True, slots=True)
class Node:
    """One virtual machine. `docker` gives it Docker's FORWARD DROP."""

    name: str
    functions: tuple[Function, ...]
    mgmt: Management
    docker: bool = False

    def function(self, port: str, plane: int) -> Function:
        """Return the function of `port` in `plane`; KeyError where there is none."""
        for function in self.functions:
            if (function.port, function.plane) == (port, plane):
                return function
        raise KeyError((self.name, port, plane))


@dataclass(frozen=True, slots=True, order=True)
class End:
    """One port of one node."""

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}.{self.port}"


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable between two ports; it carries every plane."""

    a: End
    b: End


@dataclass(frozen=True, slots=True)
class LabSpec:
    """The whole lab. The names, MACs and cables here are what the guests get."""

    nodes: tuple[Node, ...]
    cables: tuple[Cable, ...]

    def node(self, name: str) -> Node:
        """Return the node called `name`; LabError where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise LabError(
            f"the lab has no node `{name}`", hint=f"it has {', '.join(n.name for n in self.nodes)}"
        )

    def far_end(self, end: End) -> End | None:
        """Return what the cable in `end` leads to; None for an empty port."""
        for cable in self.cables:
            if end == cable.a:
                return cable.b
            if end == cable.b:
                return cable.a
        return None

    def links(self) -> Iterator[tuple[Node, Function, Node, Function]]:
        """Every plane of every cable: (node, its function, the other node, its function)."""
        for cable in self.cables:
            a, b = self.node(cable.a.node), self.node(cable.b.node)
            for function in a.functions:
                if function.port == cable.a.port:
                    yield a, function, b, b.function(cable.b.port, function.plane)

    def digest(self) -> str:
        """A hash of everything that the lab is made from."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return a plain document that `from_json` reads back."""
        return asdict(self)

    @staticmethod
    def from_json(document: dict[str, Any]) -> LabSpec:
        """Read what `to_json` wrote."""
        nodes = tuple(
            Node(
                name=n["name"],
                functions=tuple(Function(**f) for f in n["functions"]),
                mgmt=Management(**{**n["mgmt"], "renderer": Renderer(n["mgmt"]["renderer"])}),
                docker=n["docker"],
            )
            for n in document["nodes"]
        )
        return LabSpec(nodes, tuple(Cable(End(**c["a"]), End(**c["b"])) for c in document["cables"]))


def spark_functions(index: int) -> tuple[Function, ...]:
    """The four functions of a DGX Spark; `index` (0-255) sets its MACs apart, with the offsets that were
    seen on hardware.
    """
    base = f"4c:bb:47:00:{index:02x}"
    return (
        Function("f0", 1, "enp1s0f0np0", "rocep1s0f0", "0000:01:00.0", f"{base}:01"),
        Function("f1", 1, "enp1s0f1np1", "rocep1s0f1", "0000:01:00.1", f"{base}:02"),
        Function("f0", 2, "enP2p1s0f0np0", "roceP2p1s0f0", "0002:01:00.0", f"{base}:05"),
        Function("f1", 2, "enP2p1s0f1np1", "roceP2p1s0f1", "0002:01:00.1", f"{base}:06"),
    )


def mgmt_mac(index: int) -> str:
    """The LAN port's MAC of the node with this index."""
    return f"4c:bb:47:00:{index:02x}:00"


def variants(index: int) -> tuple[Renderer, bool]:
    """The factory state of the node with this index: every lab has both renderers, and Docker on every
    fourth node.
    """
    return (Renderer.NETWORKD if index % 2 else Renderer.NETWORK_MANAGER), index % 4 == 2


def _node(name: str, index: int, functions: tuple[Function, ...], netdev: str, address: str) -> Node:
    renderer, docker = variants(index)
    return Node(name, functions, Management(netdev, address, mgmt_mac(index), renderer), docker)


def _ring_cables(names: Sequence[str], style: Style) -> tuple[Cable, ...]:
    n = len(names)
    if n == 2:
        return (Cable(End(names[0], "f0"), End(names[1], "f0" if style is Style.ALTERNATING else "f1")),)
    if style is Style.ALL_SAME:
        return tuple(Cable(End(names[i], "f0"), End(names[(i + 1) % n], "f1")) for i in range(n))
    if n % 2:
        raise LabError(f"a ring of {n} nodes cannot alternate f1-f1 and f0-f0", hint="use the style f0-f1")
    ports = ("f1", "f0")
    return tuple(Cable(End(names[i], ports[i % 2]), End(names[(i + 1) % n], ports[i % 2])) for i in range(n))


def ring(n: int, style: Style = Style.ALL_SAME) -> LabSpec:
    """A ring of `n` Sparks (2 to 8; two nodes are a pair on one cable)."""
    if not 2 <= n <= 8:
        raise LabError(f"a lab has 2 to 8 nodes, not {n}")
    names = [f"spark{i + 1}" for i in range(n)]
    nodes = tuple(
        _node(
            name,
            i,
            spark_functions(i + 1),
            "enP7s7",
            f"{SPARE_MGMT.network_address + 11 + i}/{SPARE_MGMT.prefixlen}",
        )
        for i, name in enumerate(names)
    )
    return LabSpec(nodes, _ring_cables(names, style))


def _mgmt_address(mgmt: str, index: int, spare: bool) -> str:
    return f"{SPARE_MGMT.network_address + 11 + index}/{SPARE_MGMT.prefixlen}" if spare else f"{mgmt}/24"


def from_fabric(fabric: Fabric) -> LabSpec:
    """The lab of an inventory: its names, MACs and cables. Functions without a MAC get one of the lab's.

    Management addresses that do not all lie in one /24 (or are host names) are replaced by the lab's own.
    Raises LabError for what
    cannot be modelled: a switch, another PCI layout, more than eight nodes.
    """
    if any(cable.rail is not None for cable in fabric.cables):
        raise LabError("the lab has no switch", hint="use an inventory of directly cabled nodes")
    if not 2 <= len(fabric.nodes) <= 8:
        raise LabError(f"a lab has 2 to 8 nodes, the inventory has {len(fabric.nodes)}")
    mgmt = [node.mgmt for node in fabric.nodes]
    spare = (
        not all(re.fullmatch(r"[0-9.]+", m) for m in mgmt) or len({m.rpartition(".")[0] for m in mgmt}) > 1
    )
    nodes = []
    for index, node in enumerate(fabric.nodes):
        offsets = {(f.port, f.plane): f.mac for f in spark_functions(index + 1)}
        functions = []
        for f in node.functions:
            if not PCI.fullmatch(f.pci) or f.port not in PORTS:
                raise LabError(
                    f"the lab has no function {f.pci} on port {f.port}",
                    where=node.name,
                    hint="it offers DDDD:01:00.0 and .1",
                )
            functions.append(
                Function(f.port, f.plane, f.netdev, f.rdma, f.pci, f.mac or offsets[f.port, f.plane])
            )
        address = _mgmt_address(node.mgmt, index, spare)
        nodes.append(_node(node.name, index, tuple(functions), node.mgmt_netdev, address))
    cables = []
    for cable in fabric.cables:
        a, b = cable.ends
        cables.append(Cable(End(a.node, a.port), End(b.node, b.port)))
    return LabSpec(tuple(nodes), tuple(cables))
