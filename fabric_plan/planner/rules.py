"""The relays' hairpin rules and the senders' markers, derived from the relayed paths (docs/fabric.md 5)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from fabric_plan.errors import RefusalError
from fabric_plan.inventory.schema import MarkerDialect, MeshPaths
from fabric_plan.planner.addresses import Addresses
from fabric_plan.planner.model import Destination, Marker, Path, Rule
from fabric_plan.planner.tags import preference, tag
from fabric_plan.topology.fabric import Fabric, Function
from fabric_plan.topology.shape import Topology

# Flow label 16383 of a queue pair becomes this UDP source port: what RoCEnante's deployments mark by.
MARKED_SOURCE_PORT = 65535

# The sets whose relays know each sender: their rules match the sender's MAC too.
_BY_SENDER = (MeshPaths.OPPOSITE, MeshPaths.BALANCED)


def _mac(function: Function) -> str:
    assert function.mac is not None  # a mesh without MACs was refused with the inventory
    return function.mac


@dataclass(frozen=True, slots=True, order=True)
class _Crossing:
    """One rule to be: which relay, in which plane, from which port, with how many relays left, for which
    sender.
    """

    relay: str
    plane: int
    in_port: str
    left: int
    sender: int  # ring position, -1 where any sender is meant


def rules_by_node(fabric: Fabric, topology: Topology, paths: tuple[Path, ...]) -> dict[str, tuple[Rule, ...]]:
    """Return every node's rules, handles counted from 1 in each (device, preference) by the sender's
    position.
    """
    crossings: dict[_Crossing, list[tuple[Path, int]]] = defaultdict(list)
    for path in paths:
        sender = topology.position(path.src) if fabric.mesh in _BY_SENDER else -1
        for i, relay in enumerate(path.through):
            in_port = path.cables[i].end(relay).port
            crossings[_Crossing(relay, path.plane, in_port, len(path.through) - i, sender)].append((path, i))
    handles: dict[tuple[str, str, int], int] = defaultdict(int)
    out: dict[str, list[Rule]] = defaultdict(list)
    for crossing in sorted(crossings):
        ingress = fabric.node(crossing.relay).function(crossing.in_port, crossing.plane)
        counter = (crossing.relay, ingress.netdev, crossing.left)
        handles[counter] += 1
        carried = crossings[crossing]
        senders = tuple(sorted({path.src for path, _ in carried}, key=topology.position))
        out[crossing.relay].append(_rule(fabric, crossing, *carried[0], senders, handles[counter]))
    return {name: tuple(rules) for name, rules in out.items()}


def _rule(
    fabric: Fabric, crossing: _Crossing, path: Path, i: int, senders: tuple[str, ...], handle: int
) -> Rule:
    """Build the rule of `crossing` from one of the paths that use it; all of them leave by the same port."""
    node, plane, following = (
        fabric.node(crossing.relay),
        crossing.plane,
        path.cables[i + 1].other(crossing.relay),
    )
    ingress = node.function(crossing.in_port, plane)
    return Rule(
        dev=ingress.netdev,
        ethertype=tag(crossing.left),
        src_mac=_mac(fabric.node(path.src).function(path.out.port, plane)) if crossing.sender >= 0 else None,
        dst_mac=_mac(ingress),
        set_type=tag(crossing.left - 1),
        set_dst_mac=_mac(fabric.node(following.node).function(following.port, plane)),
        redirect=node.function(path.cables[i + 1].end(crossing.relay).port, plane).netdev,
        pref=preference(crossing.left),
        handle=handle,
        plane=plane,
        senders=senders,
        receiver=following.node,
    )


def markers_of(
    fabric: Fabric, addresses: Addresses, paths: tuple[Path, ...], node: str
) -> tuple[Marker, ...]:
    """Return one marker for each device of `node` where a relayed path begins, in PCI order.

    The destination form is the default; the rewrite probe knows the source port alone. Raises `RefusalError`
    where it would have to tell far nodes with different tags apart.
    """
    by_port: dict[tuple[str, int], list[Destination]] = defaultdict(list)
    for path in paths:
        if path.src == node and not path.direct:
            address = addresses[path.cables[-1].index, path.plane, path.dst].ip
            by_port[path.out.port, path.plane].append(Destination(address, tag(len(path.through))))
    markers = []
    for function in fabric.node(node).functions:
        found = by_port.get((function.port, function.plane))
        if not found:
            continue
        destinations = tuple(sorted(found, key=lambda destination: int(destination.address)))
        by_source_port = fabric.marker.dialect is MarkerDialect.REWRITE_PROBE
        if by_source_port and len({destination.ethertype for destination in destinations}) > 1:
            raise RefusalError(
                f"{node} {function.rdma} has far nodes at different distances, and the rewrite "
                "probe knows one tag a device",
                hint="write `marker: built-in` or `marker: relay-marker`: they tag by destination",
                id="marker-one-tag",
            )
        markers.append(
            Marker(
                rdma=function.rdma,
                netdev=function.netdev,
                source_port=MARKED_SOURCE_PORT if by_source_port else None,
                ethertype=destinations[0].ethertype if by_source_port else None,
                destinations=destinations,
            )
        )
    return tuple(markers)
