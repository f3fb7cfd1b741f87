"""The fabric as declared and completed by its hardware roles: nodes, functions, cables. No address is chosen
yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from fabric_plan.inventory.schema import Hairpin, MarkerEntry, MeshPaths, NcclLibrary, PlaneMode, TopologyKind
from fabric_plan.roles import Hardware


@dataclass(frozen=True, slots=True, order=True)
class End:
    """One port of one node: where a cable is plugged in."""

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node} {self.port}"


@dataclass(frozen=True, slots=True)
class Function:
    """One PCIe function: a netdev and its RDMA device. `plane` is counted from 1; `mac` is None where nobody
    said it.
    """

    node: str
    port: str
    plane: int
    netdev: str
    rdma: str
    pci: str
    mac: str | None


@dataclass(frozen=True, slots=True)
class Node:
    """One host. `functions` stand in PCI order, which is also NCCL's device order."""

    name: str
    rank: int
    mgmt: str
    mgmt_netdev: str
    ssh_user: str | None
    ssh_port: int | None
    hardware: Hardware
    functions: tuple[Function, ...]

    def function(self, port: str, plane: int) -> Function:
        """Return the function of `port` in `plane`; KeyError where there is none."""
        for function in self.functions:
            if function.port == port and function.plane == plane:
                return function
        raise KeyError((self.name, port, plane))


@dataclass(frozen=True, slots=True)
class Pin:
    """What the inventory fixes for one plane of a cable. `addresses` follow the order of the cable's ends."""

    subnet: IPv4Network
    addresses: tuple[IPv4Address, ...] | None


@dataclass(frozen=True, slots=True)
class Cable:
    """One Ethernet segment: two ends, or as many as meet in a switch (`rail` is then its name)."""

    index: int
    ends: tuple[End, ...]
    pins: Mapping[int, Pin]
    rail: str | None = None

    def __str__(self) -> str:
        return self.rail or " - ".join(str(end) for end in self.ends)

    def other(self, node: str) -> End:
        """Return the end that is not on `node`; a rail has no single one."""
        first, second = self.ends
        return second if first.node == node else first

    def end(self, node: str) -> End:
        """Return this cable's end on `node`; KeyError where it has none."""
        for end in self.ends:
            if end.node == node:
                return end
        raise KeyError(node)


@dataclass(frozen=True, slots=True)
class Fabric:
    """Everything that was declared, complete: the planner's only input."""

    name: str
    nodes: tuple[Node, ...]
    cables: tuple[Cable, ...]
    planes: Mapping[int, PlaneMode]
    mtu: int
    pool: IPv4Network
    prefix: int
    hairpin: Hairpin
    mesh: MeshPaths
    marker: MarkerEntry
    nccl_library: NcclLibrary
    nccl_channels: int
    declared: TopologyKind | None

    def node(self, name: str) -> Node:
        """Return the node called `name`; KeyError where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def managed(self) -> tuple[int, ...]:
        """The planes whose configuration this tool writes, in order."""
        return tuple(plane for plane, mode in sorted(self.planes.items()) if mode is PlaneMode.MANAGED)
