"""Other addresses for a fabric whose functions no prefix tells apart, checked by the rule that refused it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface, IPv4Network

from fabric_plan.planner.model import NodePlan, Plan
from fabric_plan.planner.prefix import separating_prefix
from fabric_plan.topology.fabric import End

# Local proxies answer DNS with addresses of the first, link-local ones are on every port alike.
_AVOIDED = (IPv4Network("198.18.0.0/15"), IPv4Network("169.254.0.0/16"))

# Where a plane-2 subnet is looked for: as far from plane 1's as people put it, one hundred in the third
# octet.
_STRIDE = 100 << 8


@dataclass(frozen=True, slots=True)
class Move:
    """One function's address before and after."""

    cable: int
    end: End
    plane: int
    netdev: str
    old: IPv4Interface
    new: IPv4Interface

    def __str__(self) -> str:
        return f"{self.end.node} {self.netdev} {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class Renumbering:
    """Moves that make the functions of every node tell apart, and the prefix that then does it."""

    moves: tuple[Move, ...]
    prefix: int

    @property
    def example(self) -> str:
        """The moves of the first cable; the others go alike."""
        first = [move for move in self.moves if move.cable == self.moves[0].cable]
        others = ", and the other cables alike" if len(first) < len(self.moves) else ""
        return f"{'; '.join(map(str, first))}{others} (then prefix {self.prefix})"


Addresses = Mapping[tuple[int, int, str], IPv4Interface]


def _now(plan: Plan) -> dict[tuple[int, int, str], IPv4Interface]:
    return {
        (planned.cable.index, planned.function.plane, node.name): planned.address
        for node in plan.nodes
        for planned in node.functions
        if planned.address is not None and planned.cable is not None
    }


def _free(start: IPv4Network, taken: Iterable[IPv4Network]) -> IPv4Network | None:
    """Return the first free subnet like `start`, from `_STRIDE` past it on; None where none is."""
    avoided = (*taken, *_AVOIDED)
    at = int(start.network_address) + max(_STRIDE, start.num_addresses)
    last = int(start.supernet(new_prefix=min(16, start.prefixlen)).broadcast_address)
    while at + start.num_addresses - 1 <= last:
        candidate = IPv4Network((at, start.prefixlen))
        if not any(candidate.overlaps(other) for other in avoided):
            return candidate
        at += start.num_addresses
    return None


def _second_plane_apart(plan: Plan) -> Addresses | None:
    """Leave plane 1 alone; give plane 2, where it shares a subnet, one of its own with plane 1's hosts."""
    addresses = _now(plan)
    first, *others = sorted(plan.fabric.planes)
    taken = {address.network for address in addresses.values()}
    for cable in plan.fabric.cables:
        for plane in others:
            here = plan.subnets.get((cable.index, plane))
            kept = plan.subnets.get((cable.index, first))
            if here is None or kept is None or not here.overlaps(kept):
                continue
            subnet = _free(kept, taken)
            if subnet is None:
                return None
            taken.add(subnet)
            for end in cable.ends:
                host = int(addresses[cable.index, first, end.node].ip) - int(kept.network_address)
                addresses[cable.index, plane, end.node] = IPv4Interface((subnet[host], subnet.prefixlen))
    return addresses


def _everything_anew(plan: Plan) -> Addresses | None:
    """Give every plane of every cable a /24 of the pool, hosts .10 on, as a fabric without pins would have
    it.
    """
    fabric = plan.fabric
    prefix = 24
    room = 1 << max(0, prefix - fabric.pool.prefixlen)
    addresses = {}
    for cable, plane, node in _now(plan):
        number = 2 * cable + plane - 1
        ends = [end.node for end in fabric.cables[cable].ends]
        if number >= room or len(ends) > 200:
            return None
        subnet = IPv4Network((int(fabric.pool.network_address) + (number << (32 - prefix)), prefix))
        addresses[cable, plane, node] = IPv4Interface((subnet[10 + ends.index(node)], prefix))
    return addresses


_WAYS: tuple[Callable[[Plan], Addresses | None], ...] = (_second_plane_apart, _everything_anew)


def renumbering(plan: Plan) -> Renumbering | None:
    """Return the smallest change of addresses known here after which a prefix separates the functions; None
    where none helps.
    """
    for way in _WAYS:
        addresses = way(plan)
        if addresses is None:
            continue
        nodes = tuple(_moved(node, addresses) for node in plan.nodes)
        prefix = separating_prefix(nodes)
        if prefix is not None:
            return Renumbering(tuple(_moves(plan, addresses)), prefix)
    return None


def _moved(node: NodePlan, addresses: Addresses) -> NodePlan:
    functions = tuple(
        replace(planned, address=addresses[planned.cable.index, planned.function.plane, node.name])
        if planned.cable is not None
        else planned
        for planned in node.functions
    )
    return replace(node, functions=functions)


def _moves(plan: Plan, addresses: Addresses) -> Iterable[Move]:
    old = _now(plan)
    for (cable, plane, node), new in sorted(addresses.items(), key=lambda item: item[0]):
        if new == old[cable, plane, node]:
            continue
        end = plan.fabric.cables[cable].end(node)
        netdev = plan.node(node).at(end.port, plane).function.netdev
        yield Move(cable, end, plane, netdev, old[cable, plane, node], new)
