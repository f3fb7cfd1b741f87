"""Between which of its functions a node's kernel passes packets on: what a firewall has to let through."""

from __future__ import annotations

from fabric_plan.planner.model import NodePlan, Plan
from fabric_plan.topology.fabric import Cable


def planes_shared(cable: Cable) -> bool:
    """Tell whether the inventory puts both planes of `cable` into one subnet; nothing else chooses that."""
    pinned = [pin.subnet for pin in cable.pins.values()]
    return len(pinned) > 1 and len(set(pinned)) == 1


def forwarded_pairs(plan: Plan, node: NodePlan) -> tuple[tuple[str, str], ...]:
    """Return the pairs of netdevs (in, out) between which `node` forwards: port to port, within a plane.

    A subnet that both planes of a cable share is routed through one of them, and a host route of the other
    plane, or the kernel's choice between two connected routes, can take over on the way: planes then
    cross, and into a twin that somebody else manages too.
    """
    crossing = any(planes_shared(cable) for cable in plan.fabric.cables)
    return tuple(
        (source.function.netdev, target.function.netdev)
        for source in node.functions
        for target in node.functions
        if source.cabled and source.managed and target.cabled and (target.managed or crossing)
        if source.function.port != target.function.port
        if source.function.plane == target.function.plane or crossing
    )
