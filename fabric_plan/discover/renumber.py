"""A renumbering of plane 2 that lets NCCL tell twins apart, worked out and tried before it is offered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import IPv4Interface, IPv4Network

from fabric_plan.planner.model import NodePlan, Plan, PlannedFunction
from fabric_plan.planner.prefix import separating_prefix

# People read 172.21.160.0/24 beside 172.21.60.0/24 as "the other plane": try a hundred further in the third
# octet first.
_USUAL_STEP = 100 << 8


def renumbering(plan: Plan) -> str | None:
    """Say which plane-2 addresses to change into which, and the prefix length that separates then; None where
    that finds none.
    """
    taken = list(plan.subnets.values())
    moved: dict[tuple[str, str], IPv4Interface] = {}
    words = []
    for cable in plan.fabric.cables:
        subnet = plan.subnets.get((cable.index, 2))
        if subnet is None or subnet != plan.subnets.get((cable.index, 1)):
            continue
        new = _free(subnet, taken)
        if new is None:
            return None
        taken.append(new)
        for end in cable.ends:
            first, second = (plan.node(end.node).at(end.port, plane) for plane in (1, 2))
            assert first.address is not None and second.address is not None
            host = int(first.address.ip) - int(subnet.network_address)
            address = IPv4Interface((int(new.network_address) + host, new.prefixlen))
            moved[end.node, second.function.netdev] = address
            words.append(f"{end.node} {second.function.netdev} {second.address} -> {address}")
    prefix = separating_prefix(_renumbered(plan, moved)) if moved else None
    if prefix is None:
        return None
    return (
        f"renumber plane 2 into subnets of its own (NCCL_IB_SUBNET_PREFIX_LEN is then {prefix}): "
        f"{', '.join(words)}"
    )


def _free(subnet: IPv4Network, taken: Iterable[IPv4Network]) -> IPv4Network | None:
    """Return a subnet of the same size that overlaps none of `taken`."""
    used = list(taken)
    size = subnet.num_addresses
    steps = (_USUAL_STEP, *(size * i for i in range(1, 256)))
    for step in steps:
        start = int(subnet.network_address) + step
        if step % size or start >= 1 << 32:
            continue
        new = IPv4Network((start, subnet.prefixlen))
        if new.is_private and not any(new.overlaps(other) for other in used):
            return new
    return None


def _renumbered(plan: Plan, moved: dict[tuple[str, str], IPv4Interface]) -> Iterator[NodePlan]:
    def changed(node: NodePlan, planned: PlannedFunction) -> PlannedFunction:
        address = moved.get((node.name, planned.function.netdev))
        return replace(planned, address=address) if address else planned

    for node in plan.nodes:
        yield replace(node, functions=tuple(changed(node, planned) for planned in node.functions))
