"""The routes that a node's kernel gets: to the subnets of cables it does not sit on, and to the far ends of
relayed paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from fabric_plan.planner.addresses import Addresses, Subnets
from fabric_plan.planner.model import KernelRoute, Path, RelayRoute
from fabric_plan.topology.fabric import Fabric
from fabric_plan.topology.shape import Topology


def kernel_routes(
    fabric: Fabric, topology: Topology, subnets: Subnets, addresses: Addresses, node: str
) -> tuple[KernelRoute, ...]:
    """Return the routes of `node`, one for each managed plane and each cable that it does not sit on.

    They go through the neighbour on the shorter way; where both ways are equally short, the next node in
    order wins. Where both planes of a cable share a subnet one route is enough, and the kernel would refuse a
    second.
    """
    return tuple(_kernel_routes(fabric, topology, subnets, addresses, node))


def _kernel_routes(
    fabric: Fabric, topology: Topology, subnets: Subnets, addresses: Addresses, node: str
) -> Iterator[KernelRoute]:
    if not topology.cables or len(topology.order) < 3:
        return
    start = topology.position(node)
    reached: dict[int, tuple[int, int]] = {}  # cable index -> (cables crossed before it, direction)
    for direction in (1, -1):
        for crossed, step in enumerate(topology.walk(start, direction)):
            if crossed and (step.cable.index not in reached or reached[step.cable.index][0] > crossed):
                reached[step.cable.index] = (crossed, direction)
    own = {hop.cable.index for direction in (1, -1) if (hop := topology.hop(start, direction))}
    routed: set[IPv4Network] = set()
    for plane in fabric.managed:
        for index, (_, direction) in sorted(reached.items()):
            first = topology.hop(start, direction)
            subnet = subnets[index, plane]
            if index in own or first is None or subnet in routed:
                continue
            routed.add(subnet)
            via = addresses[first.cable.index, plane, first.into.node].ip
            dev = fabric.node(node).function(first.out.port, plane).netdev
            yield KernelRoute(plane, subnet, via, dev)


def relay_routes(
    fabric: Fabric, addresses: Addresses, paths: tuple[Path, ...], node: str
) -> tuple[RelayRoute, ...]:
    """Return the host routes of `node`, one for each relayed path that begins there.

    The target is the far node's address on the port where the path arrives, so that the kernel resolves the
    gateway's MAC, the neighbour's, for it: that is all that RoCE takes from a route.
    """
    routes = []
    for path in paths:
        if path.src != node or path.direct:
            continue
        first, last = path.cables[0], path.cables[-1]
        routes.append(
            RelayRoute(
                plane=path.plane,
                to=IPv4Network(addresses[last.index, path.plane, path.dst].ip),
                via=addresses[first.index, path.plane, path.through[0]].ip,
                dev=fabric.node(node).function(path.out.port, path.plane).netdev,
                src=addresses[first.index, path.plane, node].ip,
                peer=path.dst,
                through=path.through,
            )
        )
    return tuple(sorted(routes, key=lambda route: (route.plane, int(route.to.network_address))))
