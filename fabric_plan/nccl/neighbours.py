"""Which functions of a node face which rank. Ranks decide, not ring positions: NCCL's ring goes by rank."""

from __future__ import annotations

from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.planner.model import NodePlan, Plan, PlannedFunction
from fabric_plan.topology.fabric import Cable

# Where a rank and the next one share no cable there is no ring over all ranks; only a line can be so, other
# walks were refused.
_NO_RING = (TopologyKind.LINE,)


def devices(node: NodePlan) -> tuple[PlannedFunction, ...]:
    """Return the functions that take part in the fabric, in PCI order: NCCL's devices 0, 1, ... and
    RoCEnante's HCA list.
    """
    return tuple(planned for planned in node.functions if planned.cabled)


def device_index(node: NodePlan, port: str, plane: int) -> int:
    """Return the place of a cabled function among the `devices` of `node`. Raises KeyError where it is none
    of them.
    """
    for index, planned in enumerate(devices(node)):
        if planned.function.port == port and planned.function.plane == plane:
            return index
    raise KeyError((node.name, port, plane))


def has_world_ring(plan: Plan) -> bool:
    """Whether every rank shares a cable (or a switch) with the next one, so that a ring over all of them
    exists.
    """
    return plan.topology.kind not in _NO_RING


def every_pair_joined(plan: Plan) -> bool:
    """Whether any device reaches every rank: in a pair and behind a switch a tree finds its way, in a ring it
    does not.
    """
    return plan.topology.kind in (TopologyKind.PAIR, TopologyKind.SWITCHED)


def peer_rank(plan: Plan, node: NodePlan, step: int) -> int | None:
    """Return the rank `step` (-1 or +1) from `node`'s, round the ring; None past the end of a line."""
    rank = node.rank + step
    if has_world_ring(plan):
        return rank % len(plan.nodes)
    return rank if 0 <= rank < len(plan.nodes) else None


def shared_cables(plan: Plan, node: NodePlan, peer: NodePlan) -> tuple[Cable, ...]:
    """Return the addressed cables and rails that join two nodes, in the order of the inventory."""
    mine = {planned.cable.index for planned in devices(node) if planned.cable}
    theirs = {planned.cable.index for planned in devices(peer) if planned.cable}
    return tuple(cable for cable in plan.fabric.cables if cable.index in mine & theirs)


def common_planes(plan: Plan) -> tuple[int, ...]:
    """Return the planes in which every cable is addressed: the only ones that a channel can use all the way
    round.
    """
    return tuple(
        plane
        for plane in sorted(plan.fabric.planes)
        if all((cable.index, plane) in plan.subnets for cable in plan.fabric.cables)
    )
