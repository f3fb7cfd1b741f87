"""Draw the fabric with its ports, as text."""

from __future__ import annotations

from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.planner.model import Plan
from fabric_plan.topology.shape import Hop, Topology

_GAP = 3


def draw(plan: Plan) -> list[str]:
    """Return the lines of a drawing: a ring as two rows, a line as one, a pair as its cables, a switch as its
    rails.
    """
    topology = plan.topology
    if topology.kind is TopologyKind.SWITCHED:
        return [f"{cable.rail}: {'  '.join(str(end) for end in cable.ends)}" for cable in plan.fabric.cables]
    if topology.kind is TopologyKind.PAIR:
        return [f"{cable.ends[0]} ──── {cable.ends[1]}" for cable in plan.fabric.cables]
    if not topology.closed:
        return [_row([hop for i in range(len(topology.order) - 1) if (hop := topology.hop(i, 1))])]
    return _ring(topology)


def _row(hops: list[Hop]) -> str:
    """Join hops to one row: node, port, cable, port, node."""
    text = hops[0].out.node
    for hop in hops:
        text += f" {hop.out.port} ──── {hop.into.port} {hop.into.node}"
    return text


def _ring(topology: Topology) -> list[str]:
    count = len(topology.order)
    half = (count + 1) // 2
    forward = [hop for i in range(count) if (hop := topology.hop(i, 1))]
    top = _row(forward[: half - 1])
    back = [hop for i in range(half, count - 1) if (hop := topology.hop(i, 1))]
    right, left = forward[half - 1], forward[-1]
    if back:
        bottom = _row([Hop(hop.cable, hop.into, hop.out) for hop in reversed(back)])
    else:
        bottom = left.out.node
    width = max(len(top), len(bottom))
    if len(bottom) < width and back:
        first, rest = bottom.split(" ", 1)
        bottom = f"{first} {rest.replace('────', '────' + '─' * (width - len(bottom)), 1)}"
    elif len(top) < width:
        top = top.replace("────", "────" + "─" * (width - len(top)), 1)
    edge = max(1, width - 4)
    if not back:
        # Three nodes: the third one hangs below, between the two cables that reach it.
        pad = max(0, (width - len(bottom)) // 2)
        return [
            top,
            _sides(left.into.port, right.out.port, edge),
            _sides("│", "│", edge),
            _sides(
                "└" + "─" * max(0, pad - 5) + f" {left.out.port}",
                f"{right.into.port} " + "─" * max(0, width - pad - len(bottom) - 5) + "┘",
                0,
                bottom,
                width,
            ),
        ]
    return [
        top,
        _sides(left.into.port, right.out.port, edge),
        _sides("│", "│", edge),
        _sides(left.out.port, right.into.port, edge),
        bottom,
    ]


def _sides(left: str, right: str, edge: int, middle: str = "", width: int = 0) -> str:
    if middle:
        inner = width - len(left) - len(right)
        return f"{left}{middle.center(max(inner, len(middle) + 2))}{right}"
    return f"  {left.ljust(edge)[: max(edge, len(left))]}{right}".rstrip()
