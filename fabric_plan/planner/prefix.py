"""The prefix length at which NCCL tells the functions of a node apart (docs/fabric.md 3)."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address

from fabric_plan.planner.model import NodePlan, PlannedFunction

LONGEST = 31


def separating_prefix(nodes: Iterable[NodePlan]) -> int | None:
    """Return the shortest prefix, from the shortest configured one to /31, that pairs functions one to one;
    None where none does.

    At that length each function that faces a peer matches exactly one function of that peer, a function that
    faces elsewhere matches none, and no two functions of one node coincide.
    """
    cabled = [[f for f in node.functions if f.address is not None and f.cable is not None] for node in nodes]
    lengths = [f.address.network.prefixlen for functions in cabled for f in functions if f.address]
    if not lengths:
        return None
    return next((n for n in range(min(lengths), LONGEST + 1) if _separates(cabled, n)), None)


def _separates(cabled: list[list[PlannedFunction]], prefix: int) -> bool:
    shift = 32 - prefix
    keys = [
        [(int(_ip(f)) >> shift, f.cable.index if f.cable else -1) for f in functions] for functions in cabled
    ]
    for i, own in enumerate(keys):
        if len({net for net, _ in own}) != len(own):
            return False
        for j, peer in enumerate(keys):
            if i == j:
                continue
            cables = {cable for _, cable in peer}
            for net, cable in own:
                matches = [other for other_net, other in peer if other_net == net]
                if len(matches) != (1 if cable in cables else 0):
                    return False
    return True


def _ip(planned: PlannedFunction) -> IPv4Address:
    assert planned.address is not None
    return planned.address.ip
