"""What was found on the nodes, in one form for every source: files of a folder, saved facts, live
collection.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Any

from fabric_plan.errors import FabricPlanError
from fabric_plan.findings import Notice
from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.roles import Hardware
from fabric_plan.topology.fabric import End


@dataclass(frozen=True, slots=True)
class Claim:
    """An address that something gives to an interface; `source` is ``file:line`` or the name of a dump."""

    address: IPv4Interface
    source: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What LLDP heard on an interface: the far system's name and what identifies its port (a name or a
    MAC).
    """

    system: str | None
    port: str | None


@dataclass(frozen=True, slots=True)
class Interface:
    """One network device of a node. Every field is None (or empty) where no source said it.

    `kind` is the kernel's word for a virtual device (bridge, veth, tun); `carrier` whether the cable has a
    link; `master` the bond or bridge that it belongs to; `slot` port and plane, where this tool wrote it
    down.
    """

    netdev: str
    names: tuple[str, ...] = ()
    mac: str | None = None
    pci: str | None = None
    phys_port_name: str | None = None
    rdma: str | None = None
    mtu: int | None = None
    carrier: bool | None = None
    kind: str | None = None
    master: str | None = None
    slot: tuple[str, int] | None = None
    claims: tuple[Claim, ...] = ()
    link_local: bool = False
    neighbours: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class Doubt:
    """A second definition of an interface: another file claims it and says something else.

    `ours` is what the definition that was followed says, `file` and `theirs` the one that was not; without
    addresses of its own that one asks for them by DHCP.
    """

    netdev: str
    file: str
    theirs: tuple[str, ...]
    other_file: str
    ours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Login:
    """How a node is reached: the management address, the interface that carries it, user and port of SSH."""

    mgmt: str | None = None
    mgmt_netdev: str | None = None
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class FoundNode:
    """One node as found, with how it is reached where somebody declared that.

    `broken` are the files that keep the node's network configuration from being generated at all.
    """

    name: str
    hardware: Hardware
    interfaces: tuple[Interface, ...]
    broken: tuple[FabricPlanError, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    login: Login = Login()


@dataclass(frozen=True, slots=True)
class Listed:
    """A cable as an earlier inventory listed it; `rail` is its name where it goes into a switch."""

    ends: tuple[End, ...]
    rail: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    """What no interface can say: the fabric's name, and fields of the inventory (`extra`) as its schema has
    them.

    `file` is the name that the inventory will have; its stem is the fabric's default name.
    """

    file: str = "inventory.yaml"
    fabric: str | None = None
    mtu: int | None = None
    extra: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All nodes, and what was declared beside them.

    `ranked` tells that somebody declared the nodes' order; `table` is the stated cabling; `listed` the cables
    in the order and direction in which an earlier inventory had them. None where nobody stated them.
    `notices` is what was noticed while it was gathered.
    """

    nodes: tuple[FoundNode, ...]
    ranked: bool
    declared: TopologyKind | None = None
    table: tuple[tuple[End, End], ...] | None = None
    listed: tuple[Listed, ...] | None = None
    settings: Settings = Settings()
    notices: tuple[Notice, ...] = ()
