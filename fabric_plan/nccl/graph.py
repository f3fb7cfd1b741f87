"""The graph files that pin NCCL's channels to devices, prepared for their template (docs/fabric.md 8).

With one GPU a node NCCL takes only the first ``net`` of a channel, for both directions. The receiver
listens on it and the sender follows by subnet, so it has to be the device that faces the rank this one
receives from: the previous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fabric_plan.nccl.neighbours import common_planes, device_index, has_world_ring, peer_rank, shared_cables
from fabric_plan.planner.model import NodePlan, Plan

# NCCL's own numbers: the ring (id 0, pattern 4) and the tree (id 1, pattern 3). The tree has to have the same
# channels.
GRAPH_IDS = {0: 4, 1: 3}


class GraphKind(StrEnum):
    """Whose communicator a graph file is for: all ranks, or this rank and one neighbour."""

    RING = "ring"
    LINK_PREV = "link-prev"
    LINK_NEXT = "link-next"


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel: NCCL's index of the device that counts, and of the other one that the format asks for."""

    first: int
    second: int

    @property
    def nets(self) -> tuple[str, str]:
        """Both as the file has them: NCCL reads ``net dev`` as hexadecimal."""
        return f"{self.first:x}", f"{self.second:x}"


@dataclass(frozen=True, slots=True)
class GraphHead:
    """The identity of one of the two graphs in a file."""

    id: int
    pattern: int


@dataclass(frozen=True, slots=True)
class GraphView:
    """One graph file, ready to print. Speeds in GB/s and latency in us stand as NCCL is to read them."""

    kind: GraphKind
    heads: tuple[GraphHead, ...]
    channels: tuple[Channel, ...]
    speed_intra: str
    speed_inter: str
    latency: str
    gpu: str


def kinds(plan: Plan, node: NodePlan) -> tuple[GraphKind, ...]:
    """Return the graph files that `node` gets: none without a separating prefix, no ring on a line, no link
    past its end.
    """
    if plan.nccl_prefix is None or not common_planes(plan):
        return ()
    here = [GraphKind.RING] if has_world_ring(plan) else []
    for kind, step in ((GraphKind.LINK_PREV, -1), (GraphKind.LINK_NEXT, 1)):
        rank = peer_rank(plan, node, step)
        if rank is not None and shared_cables(plan, node, plan.nodes[rank]):
            here.append(kind)
    return tuple(here)


# Which neighbour the device that counts faces, and which one the second device: steps in rank.
_FACING = {GraphKind.RING: (-1, 1), GraphKind.LINK_PREV: (-1, -1), GraphKind.LINK_NEXT: (1, 1)}


def graph_view(plan: Plan, node: NodePlan, kind: GraphKind) -> GraphView:
    """Return the graph file `kind` of `node`, one of its `kinds`."""
    graph = plan.fabric.node(node.name).hardware.graph
    first, second = (tuple(_facing(plan, node, step)) for step in _FACING[kind])
    return GraphView(
        kind=kind,
        heads=tuple(GraphHead(id_, pattern) for id_, pattern in GRAPH_IDS.items()),
        channels=tuple(Channel(a, b) for a, b in zip(first, second, strict=True)),
        speed_intra=f"{graph.intra:g}",
        speed_inter=f"{graph.inter:g}",
        latency=f"{graph.latency:g}",
        gpu=graph.gpu,
    )


def _facing(plan: Plan, node: NodePlan, step: int) -> list[int]:
    """Return, channel by channel, the device of `node` toward the rank `step` away.

    Channel k uses plane k mod planes, on every node alike, then the next cable where two nodes share several.
    """
    rank = peer_rank(plan, node, step)
    assert rank is not None
    cables = shared_cables(plan, node, plan.nodes[rank])
    planes = common_planes(plan)
    chosen = []
    for k in range(plan.fabric.nccl_channels):
        cable = cables[k // len(planes) % len(cables)]
        chosen.append(device_index(node, cable.end(node.name).port, planes[k % len(planes)]))
    return chosen
