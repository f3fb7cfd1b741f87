"""The fabric as frames see it: functions, segments, who answers ARP, route tables, rules and markers.

Built from what will be on the nodes and from how they are cabled, nothing else. Both functions of a port hear
everything on its cable (docs/fabric.md 1), so a cable is one segment for all planes. A function answers ARP
for its own address alone, which is what `arp_ignore=1` on the fabric functions is for, and accepts frames to
its own MAC alone. Addresses are integers here: a plan of 64 nodes asks for tens of thousands of lookups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from typing import TypeVar

from fabric_plan.planner.forward import forwarded_pairs, planes_shared
from fabric_plan.planner.model import KernelRoute, Marker, NodePlan, Plan, PlannedFunction, RelayRoute, Rule
from fabric_plan.planner.sysctl import sysctls
from fabric_plan.topology.fabric import Cable, Fabric

_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class Nic:
    """One function on the wire.

    `mac` is a stand-in where the plan knows none (without a mesh nobody needs it); `segment` is the index of
    the cable that its port is plugged into, None where it is free; `ip` is 0 where `address` is None.
    """

    node: str
    port: str
    plane: int
    netdev: str
    rdma: str
    mac: str
    known: bool
    managed: bool
    address: IPv4Interface | None
    ip: int
    segment: int | None

    def __str__(self) -> str:
        return f"{self.node} {self.netdev}"


@dataclass(frozen=True, slots=True)
class Route:
    """One line of a node's routing table; `via` None is a connected subnet."""

    dev: str
    via: int | None

    def __str__(self) -> str:
        return f"via {IPv4Address(self.via)} dev {self.dev}" if self.via is not None else f"dev {self.dev}"


class RouteTable:
    """Longest prefix first, as the kernel looks routes up."""

    def __init__(self) -> None:
        self._by_length: dict[int, dict[int, list[Route]]] = {}
        self._masks: tuple[tuple[int, dict[int, list[Route]]], ...] = ()

    def add(self, network: int, length: int, route: Route) -> None:
        """Add one route; `freeze` has to follow before the next lookup."""
        self._by_length.setdefault(length, {}).setdefault(network, []).append(route)

    def freeze(self) -> None:
        """Order the prefix lengths for lookups."""
        longest_first = sorted(self._by_length.items(), reverse=True)
        self._masks = tuple((~((1 << (32 - length)) - 1), routes) for length, routes in longest_first)

    def lookup(self, ip: int, dev: str | None = None) -> list[Route]:
        """Return every route of the longest prefix that holds `ip`, out of `dev` alone where it is given.

        More than one means that nothing in the plan says which the kernel takes. A queue pair is bound to its
        device: the kernel then passes over longer prefixes that leave by another one.
        """
        for mask, routes in self._masks:
            found = routes.get(ip & mask)
            if found and dev is not None:
                found = [route for route in found if route.dev == dev]
            if found:
                return found
        return []


@dataclass(frozen=True, slots=True)
class Wire:
    """Everything that a frame can meet."""

    nics: tuple[Nic, ...]
    by_netdev: Mapping[tuple[str, str], Nic]
    by_port: Mapping[tuple[str, str, int], Nic]
    on_node: Mapping[str, tuple[Nic, ...]]
    by_mac: Mapping[tuple[int, str], tuple[Nic, ...]]
    by_ip: Mapping[tuple[int, int], tuple[Nic, ...]]
    owners: Mapping[int, tuple[Nic, ...]]
    tables: Mapping[str, RouteTable]
    rules: Mapping[tuple[str, str], tuple[Rule, ...]]
    markers: Mapping[tuple[str, str], Marker]
    shared: frozenset[int]
    forwarding: frozenset[tuple[str, str]]
    accepted: frozenset[tuple[str, str, str]]
    cables: tuple[Cable, ...]

    def resolve(self, out: Nic, ip: int) -> tuple[Nic, ...]:
        """Return who answers ARP for `ip` on the cable of `out`: one function, unless the plan is wrong."""
        if out.segment is None:
            return ()
        return tuple(nic for nic in self.by_ip.get((out.segment, ip), ()) if nic is not out)

    def receivers(self, out: Nic, mac: str) -> tuple[Nic, ...]:
        """Return the functions that accept a frame to `mac` that leaves by `out`."""
        if out.segment is None:
            return ()
        return tuple(nic for nic in self.by_mac.get((out.segment, mac), ()) if nic is not out)

    def match(self, nic: Nic, ethertype: int, src_mac: str, dst_mac: str) -> Rule | None:
        """Return the rule that takes a frame in by `nic`: the first one by preference, then by handle."""
        for rule in self.rules.get((nic.node, nic.netdev), ()):
            if rule.ethertype == ethertype and rule.dst_mac == dst_mac and rule.src_mac in (None, src_mac):
                return rule
        return None

    def forwards(self, into: Nic, out: Nic) -> bool:
        """Tell whether a kernel passes on what came in by `into` and leaves by `out`."""
        if (into.node, into.netdev) not in self.forwarding:
            return False
        # What goes back where it came from meets no rule that could let it through, and none that has to.
        return into is out or (into.node, into.netdev, out.netdev) in self.accepted

    def same_plane(self, a: Nic, b: Nic) -> bool:
        """Tell whether a frame from `a` to `b` stays in its plane, if their cable tells planes apart."""
        return a.plane == b.plane or a.segment in self.shared


def build(plan: Plan) -> Wire:
    """Put the nodes of `plan` on the wire."""
    nics = tuple(_nics(plan))
    by_mac: dict[tuple[int, str], list[Nic]] = defaultdict(list)
    by_ip: dict[tuple[int, int], list[Nic]] = defaultdict(list)
    owners: dict[int, list[Nic]] = defaultdict(list)
    on_node: dict[str, list[Nic]] = {node.name: [] for node in plan.nodes}
    for nic in nics:
        on_node[nic.node].append(nic)
        if nic.segment is not None:
            by_mac[nic.segment, nic.mac].append(nic)
        if nic.address is not None:
            owners[nic.ip].append(nic)
            if nic.segment is not None:
                by_ip[nic.segment, nic.ip].append(nic)
    rules: dict[tuple[str, str], list[Rule]] = defaultdict(list)
    for node in plan.nodes:
        for rule in node.rules:
            rules[node.name, rule.dev].append(rule)
    return Wire(
        nics=nics,
        by_netdev={(nic.node, nic.netdev): nic for nic in nics},
        by_port={(nic.node, nic.port, nic.plane): nic for nic in nics},
        on_node={node: tuple(found) for node, found in on_node.items()},
        by_mac=_frozen(by_mac),
        by_ip=_frozen(by_ip),
        owners=_frozen(owners),
        tables={node.name: _table(node, on_node[node.name]) for node in plan.nodes},
        rules={
            key: tuple(sorted(found, key=lambda rule: (rule.pref, rule.handle)))
            for key, found in rules.items()
        },
        markers={(node.name, marker.netdev): marker for node in plan.nodes for marker in node.markers},
        shared=frozenset(cable.index for cable in plan.fabric.cables if planes_shared(cable)),
        forwarding=frozenset(
            (node.name, setting.scope)
            for node in plan.nodes
            for setting in sysctls(plan, node)
            if (setting.name, setting.value) == ("forwarding", 1)
        ),
        accepted=frozenset(
            (node.name, source, target)
            for node in plan.nodes
            for source, target in forwarded_pairs(plan, node)
        ),
        cables=plan.fabric.cables,
    )


def _frozen(found: Mapping[_K, list[Nic]]) -> dict[_K, tuple[Nic, ...]]:
    return {key: tuple(nics) for key, nics in found.items()}


def _nics(plan: Plan) -> Iterator[Nic]:
    plugged = _plugged(plan.fabric)
    for node in plan.nodes:
        for planned in node.functions:
            yield _nic(node.name, planned, plugged.get((node.name, planned.function.port)))


def _plugged(fabric: Fabric) -> dict[tuple[str, str], int]:
    return {(end.node, end.port): cable.index for cable in fabric.cables for end in cable.ends}


def _nic(node: str, planned: PlannedFunction, segment: int | None) -> Nic:
    function, address = planned.function, planned.address
    return Nic(
        node=node,
        port=function.port,
        plane=function.plane,
        netdev=function.netdev,
        rdma=function.rdma,
        mac=function.mac or f"<{node} {function.netdev}>",
        known=function.mac is not None,
        managed=planned.managed,
        address=address,
        ip=int(address.ip) if address is not None else 0,
        segment=segment,
    )


def _table(node: NodePlan, nics: Iterable[Nic]) -> RouteTable:
    table = RouteTable()
    for nic in nics:
        if nic.address is not None:
            network = nic.address.network
            table.add(int(network.network_address), network.prefixlen, Route(nic.netdev, None))
    routes: tuple[KernelRoute | RelayRoute, ...] = (*node.kernel_routes, *node.relay_routes)
    for route in routes:
        table.add(int(route.to.network_address), route.to.prefixlen, Route(route.dev, int(route.via)))
    table.freeze()
    return table
