"""Compose the inventory: what was found, and only those names of a function that the hardware's role does
not know anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabric_plan.discover.cabling import Seat, Seats, Segment
from fabric_plan.discover.evidence import FoundNode, Interface, Settings
from fabric_plan.inventory.schema import (
    CableEntry,
    FunctionEntry,
    Inventory,
    NodeEntry,
    PlaneEntry,
    PlaneMode,
    RailEntry,
    SshEntry,
    TopologyKind,
)
from fabric_plan.roles import RoleFunction
from fabric_plan.topology.fabric import End


def compose(
    settings: Settings,
    nodes: Sequence[FoundNode],
    seats: Seats,
    segments: Sequence[Segment],
    planes: Sequence[int],
    topology: TopologyKind | None,
) -> Inventory:
    """Return the inventory of `nodes` in their order and of `segments` in theirs; present subnets and
    addresses are pinned.
    """
    cabled = {end for segment in segments for end in segment.ends}
    hardware = nodes[0].hardware.hardware
    fields: dict[str, Any] = {
        "fabric": settings.fabric,
        "topology": topology,
        "hardware": hardware,
        "planes": dict.fromkeys(planes, PlaneMode.MANAGED),
        "nodes": [_node(node, seats, cabled, hardware) for node in nodes],
        "cables": [_cable(segment) for segment in segments if segment.rail is None],
        "rails": [_rail(segment, segment.rail) for segment in segments if segment.rail is not None],
        **dict(settings.extra),
    }
    if settings.mtu is not None:
        fields["mtu"] = settings.mtu
    return Inventory.model_construct(**fields)


def _node(node: FoundNode, seats: Seats, cabled: set[End], hardware: str) -> NodeEntry:
    ports = {}
    for port, role in node.hardware.ports.items():
        entries = [
            _function(seats.get(Seat(node.name, port, plane)), known)
            for plane, known in enumerate(role.functions, start=1)
        ]
        while entries and entries[-1] == FunctionEntry():
            entries.pop()
        if entries:
            ports[port] = entries
    return NodeEntry.model_construct(
        name=node.name,
        mgmt=None if node.login.mgmt == node.name else node.login.mgmt,
        mgmt_netdev=_management(node),
        ssh=SshEntry(user=node.login.user, port=node.login.port),
        hardware=None if node.hardware.hardware == hardware else node.hardware.hardware,
        ports=ports,
    )


def _function(interface: Interface | None, known: RoleFunction) -> FunctionEntry:
    if interface is None:
        return FunctionEntry()

    def other(found: str | None, usual: str) -> str | None:
        return None if found in (None, usual) else found

    return FunctionEntry.model_construct(
        mac=interface.mac,
        netdev=other(interface.netdev, known.netdev),
        rdma=other(interface.rdma, known.rdma),
        pci=other(interface.pci, known.pci),
    )


def _management(node: FoundNode) -> str | None:
    """Return the interface that carries the management address, None where it is the usual one or nobody
    knows.
    """
    carrying = [
        i.netdev for i in node.interfaces if any(str(c.address.ip) == node.login.mgmt for c in i.claims)
    ]
    name = carrying[0] if carrying else node.login.mgmt_netdev
    return None if name == node.hardware.mgmt_netdev else name


def _ends(segment: Segment) -> list[str]:
    return [f"{end.node}.{end.port}" for end in segment.ends]


def _planes(segment: Segment) -> list[PlaneEntry] | None:
    if not segment.lanes:
        return None
    entries = []
    for plane in range(1, max(segment.lanes) + 1):
        lane = segment.lanes.get(plane)
        entries.append(
            PlaneEntry(subnet=lane.subnet, addresses=list(lane.addresses)) if lane else PlaneEntry()
        )
    return entries


def _cable(segment: Segment) -> CableEntry:
    return CableEntry.model_construct(ends=_ends(segment), planes=_planes(segment))


def _rail(segment: Segment, name: str) -> RailEntry:
    return RailEntry.model_construct(name=name, ends=_ends(segment), planes=_planes(segment))
