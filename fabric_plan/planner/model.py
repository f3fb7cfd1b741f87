"""The plan: every fact that a node will get, typed. Files, proof, checks and reports all derive from these
objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from fabric_plan.findings import Notice
from fabric_plan.topology.fabric import Cable, End, Fabric, Function
from fabric_plan.topology.shape import Topology

# Every cookie of ours starts so: what carries it may be replaced and removed, anything else is left alone.
COOKIE_PREFIX = "fab91a40"

# Routes that mesh-up adds carry this protocol number, which no routing daemon uses: ours beyond doubt.
ROUTE_PROTOCOL = 214


@dataclass(frozen=True, slots=True)
class PlannedFunction:
    """A function with its address. `address` and `cable` are None where its port has no cable there."""

    function: Function
    managed: bool
    cable: Cable | None
    address: IPv4Interface | None

    @property
    def cabled(self) -> bool:
        """Whether this function takes part in the fabric."""
        return self.address is not None


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """A route to the subnet of a cable that the node does not sit on, through its neighbour."""

    plane: int
    to: IPv4Network
    via: IPv4Address
    dev: str


@dataclass(frozen=True, slots=True)
class RelayRoute:
    """A host route to the far end of one planned path: it makes the neighbour's MAC the destination of its
    frames.
    """

    plane: int
    to: IPv4Network
    via: IPv4Address
    dev: str
    src: IPv4Address
    peer: str
    through: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One hairpin rule of a relay: what it matches on ingress, what it rewrites, where it sends the frame.

    `ethertype` is the tag on arrival and `set_type` the one on departure; `src_mac` None matches any sender.
    `senders` and `receiver` are for people: whose frames these are, and the node they go to next.
    """

    dev: str
    ethertype: int
    src_mac: str | None
    dst_mac: str
    set_type: int
    set_dst_mac: str
    redirect: str
    pref: int
    handle: int
    plane: int
    senders: tuple[str, ...]
    receiver: str

    @property
    def cookie(self) -> str:
        """Sixteen bytes of hex that the kernel keeps with the rule: our prefix, a hash of the rule."""
        return (
            COOKIE_PREFIX
            + hashlib.sha256(" ".join(self._words()).encode()).hexdigest()[: 32 - len(COOKIE_PREFIX)]
        )

    def _words(self) -> tuple[str, ...]:
        """The rule in the kernel's own terms: the one place where its match and its actions are built."""
        sender = ("src_mac", self.src_mac) if self.src_mac else ()
        return (
            *("protocol", f"0x{self.ethertype:04x}", "pref", str(self.pref), "handle", f"0x{self.handle:x}"),
            *("flower", "skip_sw", *sender, "dst_mac", self.dst_mac),
            *("action", "pedit", "ex", "munge", "eth", "type", "set", f"0x{self.set_type:04x}"),
            *("munge", "eth", "dst", "set", self.set_dst_mac, "pipe"),
            *("action", "mirred", "egress", "redirect", "dev", self.redirect),
        )

    def tc_words(self) -> tuple[str, ...]:
        """The arguments of ``tc filter replace dev DEV ingress``, cookie on the redirect included."""
        return (*self._words(), "cookie", self.cookie)


@dataclass(frozen=True, slots=True)
class Destination:
    """A far address and the tag that frames to it leave with."""

    address: IPv4Address
    ethertype: int


@dataclass(frozen=True, slots=True)
class Marker:
    """What one device's marker re-tags: by destination, with some dialects also by UDP source port."""

    rdma: str
    netdev: str
    source_port: int | None
    ethertype: int | None
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Path:
    """One planned RDMA path between an ordered pair of nodes in one plane."""

    src: str
    dst: str
    plane: int
    out: End
    into: End
    through: tuple[str, ...]
    cables: tuple[Cable, ...]

    @property
    def direct(self) -> bool:
        """Whether the two nodes share a cable, so that nothing has to be relayed."""
        return not self.through

    def __str__(self) -> str:
        relays = f" through {', '.join(self.through)}" if self.through else ""
        return f"{self.src} to {self.dst}, plane {self.plane}{relays}"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Everything that one node gets."""

    name: str
    rank: int
    position: int
    functions: tuple[PlannedFunction, ...]
    kernel_routes: tuple[KernelRoute, ...]
    relay_routes: tuple[RelayRoute, ...]
    rules: tuple[Rule, ...]
    markers: tuple[Marker, ...]

    def at(self, port: str, plane: int) -> PlannedFunction:
        """Return the planned function of `port` in `plane`; KeyError where there is none."""
        for planned in self.functions:
            if planned.function.port == port and planned.function.plane == plane:
                return planned
        raise KeyError((self.name, port, plane))

    def named(self, netdev: str) -> PlannedFunction:
        """Return the planned function called `netdev`; KeyError where there is none."""
        for planned in self.functions:
            if planned.function.netdev == netdev:
                return planned
        raise KeyError((self.name, netdev))


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """How many planned paths cross one relay's hairpin queue (frames in on `dev`, out on `redirect`)."""

    node: str
    dev: str
    redirect: str
    plane: int
    paths: int


@dataclass(frozen=True, slots=True)
class CableLoad:
    """How many relayed paths cross one cable in one plane, both directions together."""

    cable: Cable
    plane: int
    paths: int


@dataclass(frozen=True, slots=True)
class Load:
    """What the relayed paths put on cables and hairpin queues, and the message size that follows.

    `busiest` is in messages of one peer that the fullest queue has to hold; `bound` and `cap` are in bytes a
    peer.
    """

    cables: tuple[CableLoad, ...]
    queues: tuple[QueueLoad, ...]
    busiest: float
    bound: int | None
    cap: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole plan. Nodes stand in rank order."""

    fabric: Fabric
    topology: Topology
    subnets: Mapping[tuple[int, int], IPv4Network]
    nodes: tuple[NodePlan, ...]
    paths: tuple[Path, ...]
    load: Load
    nccl_prefix: int | None
    notices: tuple[Notice, ...]

    def node(self, name: str) -> NodePlan:
        """Return the plan of the node called `name`; KeyError where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def mesh(self) -> bool:
        """Whether any frame is to be relayed in hardware."""
        return any(node.rules for node in self.nodes)

    @property
    def pinned_files(self) -> tuple[str, ...]:
        """The files on every node that the inventory pins by their digest."""
        return (self.fabric.marker.path,) if self.fabric.marker.path else ()

    @property
    def research_only(self) -> bool:
        """A mesh is research, so says its origin."""
        return self.mesh
