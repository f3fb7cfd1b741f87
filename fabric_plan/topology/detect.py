"""Tell what the cables make, and refuse what they do not, naming nodes and cables and the way out.

The walk is made by cabling, ranks by the inventory: a ring whose ranks are not a walk round it is refused,
because NCCL's ring would ask for cables that are not there (docs/fabric.md 2).
"""

from __future__ import annotations

from collections import defaultdict

from fabric_plan.errors import RefusalError
from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.topology.fabric import Cable, End, Fabric
from fabric_plan.topology.recable import recabling
from fabric_plan.topology.shape import Topology


def shape(fabric: Fabric) -> Topology:
    """Return what the cables make, whatever was declared and however the nodes are ranked. Raises
    `RefusalError` where it is none.
    """
    return _switched(fabric) or _direct(fabric)


def detect(fabric: Fabric) -> Topology:
    """Return the fabric's topology. Raises `RefusalError` where it is none, or not the declared one, or
    ranked otherwise.
    """
    topology = shape(fabric)
    if topology.closed:
        _ranks_walk_the_ring(fabric, topology.order)
    if fabric.declared is not None and not _declared_as(fabric.declared, topology.kind):
        raise RefusalError(
            f"the inventory declares topology `{fabric.declared}`, the cables make a "
            f"{topology.kind}{_why_not(fabric, topology)}",
            hint=f"write `topology: {topology.kind}`, or cable what is missing",
            id="topology-mismatch",
        )
    return topology


def _declared_as(declared: TopologyKind, found: TopologyKind) -> bool:
    return declared == found or (declared is TopologyKind.RING and found is TopologyKind.TRIANGLE)


def _why_not(fabric: Fabric, topology: Topology) -> str:
    if topology.kind is TopologyKind.LINE and fabric.declared is TopologyKind.RING:
        ends = line_ends(fabric, topology)
        return f": no cable joins {ends[0]} and {ends[1]}"
    return ""


def line_ends(fabric: Fabric, topology: Topology) -> tuple[End, End]:
    """Return the two free ports that a closing cable would join."""
    used = {end for cable in fabric.cables for end in cable.ends}
    free = []
    for name in (topology.order[0], topology.order[-1]):
        ports = [End(name, port) for port in fabric.node(name).hardware.ports if End(name, port) not in used]
        free.append(ports[0] if ports else End(name, "?"))
    return free[0], free[1]


def _switched(fabric: Fabric) -> Topology | None:
    rails = [cable for cable in fabric.cables if cable.rail is not None]
    if not rails:
        return None
    cables = [cable for cable in fabric.cables if cable.rail is None]
    if cables:
        raise RefusalError(
            f"rail {rails[0].rail} goes into a switch, {cables[0]} joins two nodes directly: a "
            "fabric is one or the other",
            hint="list every switched port under rails:, or every cable under cables:",
            id="mixed-fabric",
        )
    everybody = {node.name for node in fabric.nodes}
    for rail in rails:
        absent = sorted(everybody - {end.node for end in rail.ends})
        if absent:
            raise RefusalError(
                f"rail {rail.rail} does not reach {', '.join(absent)}",
                hint="a rail has one port of every node",
                id="rail-incomplete",
            )
    return Topology(TopologyKind.SWITCHED, tuple(node.name for node in fabric.nodes), ())


def _direct(fabric: Fabric) -> Topology:
    at: dict[str, list[Cable]] = defaultdict(list)
    for cable in fabric.cables:
        for end in cable.ends:
            at[end.node].append(cable)
    _joined(fabric, at)
    if len(fabric.nodes) == 2:
        return Topology(TopologyKind.PAIR, tuple(node.name for node in fabric.nodes), fabric.cables)
    for node in fabric.nodes:
        if len(at[node.name]) > 2:
            raise RefusalError(
                f"{node.name} has {len(at[node.name])} cables; a ring or a line has two at most",
                hint="more than two neighbours need a switch (rails:)",
                id="too-many-cables",
            )
    if len(fabric.cables) == len(fabric.nodes):
        order, cables = _ring_walk(fabric, at)
        kind = TopologyKind.TRIANGLE if len(order) == 3 else TopologyKind.RING
        return Topology(kind, order, cables)
    return _line(fabric, at)


def components(fabric: Fabric, at: dict[str, list[Cable]]) -> list[list[str]]:
    """Return the groups of nodes that cables hold together, in inventory order."""
    groups: list[list[str]] = []
    seen: set[str] = set()
    for node in fabric.nodes:
        if node.name in seen:
            continue
        group, todo = {node.name}, [node.name]
        while todo:
            for cable in at[todo.pop()]:
                for end in cable.ends:
                    if end.node not in group:
                        group.add(end.node)
                        todo.append(end.node)
        seen |= group
        groups.append([other.name for other in fabric.nodes if other.name in group])
    return groups


_NUMBERS = {1: "one cable", 2: "two cables"}


def _joined(fabric: Fabric, at: dict[str, list[Cable]]) -> None:
    groups = components(fabric, at)
    if len(groups) == 1:
        return
    said = []
    for group in groups:
        inside = [cable for cable in fabric.cables if cable.ends[0].node in group]
        if len(group) == 2:
            count = _NUMBERS.get(len(inside), f"{len(inside)} cables")
            said.append(
                f"{group[0]} and {group[1]} are joined by {count} ({'; '.join(str(c) for c in inside)})"
            )
        else:
            said.append(" ".join(group))
    wanted = fabric.declared or (
        TopologyKind.RING if len(fabric.cables) == len(fabric.nodes) else TopologyKind.LINE
    )
    raise RefusalError(
        f"not a {wanted} of {len(fabric.nodes)}: no cable joins the {len(groups)} parts: {'; '.join(said)}",
        hint=recabling(fabric, closed=wanted is TopologyKind.RING),
        id="not-a-ring" if wanted is TopologyKind.RING else "not-joined",
    )


def _follow(
    start: str, first: Cable, count: int, at: dict[str, list[Cable]]
) -> tuple[list[str], list[Cable]]:
    order, cables, here, cable = [start], [first], start, first
    while len(order) < count:
        here = cable.other(here).node
        order.append(here)
        following = [other for other in at[here] if other is not cable]
        if not following:
            break
        cable = following[0]
        cables.append(cable)
    return order, cables


def _ring_walk(fabric: Fabric, at: dict[str, list[Cable]]) -> tuple[tuple[str, ...], tuple[Cable, ...]]:
    """Walk from the first node: along f0 to f1 if all cables are plugged so, else toward the second node."""
    start = fabric.nodes[0].name
    ports = list(fabric.nodes[0].hardware.ports)
    count = len(fabric.nodes)
    if all({end.port for end in cable.ends} == set(ports[:2]) for cable in fabric.cables):
        first = next(cable for cable in at[start] if cable.end(start).port == ports[0])
        order, cables = _follow(start, first, count, at)
    else:
        walks = [_follow(start, cable, count, at) for cable in at[start]]
        second = fabric.nodes[1].name
        order, cables = min(walks, key=lambda walk: walk[0].index(second))
    return tuple(order), tuple(cables)


def _ranks_walk_the_ring(fabric: Fabric, order: tuple[str, ...]) -> None:
    count = len(order)
    ranks = [node.name for node in fabric.nodes]
    place = {name: i for i, name in enumerate(order)}
    apart = [
        (a, b)
        for a, b in zip(ranks, [*ranks[1:], ranks[0]], strict=True)
        if (place[a] - place[b]) % count not in (1, count - 1)
    ]
    if not apart:
        return
    right = declared_order(fabric, order)
    pairs = ", ".join(f"{a} and {b}" for a, b in apart)
    raise RefusalError(
        f"the declared rank order {' '.join(ranks)} is not a walk round the ring: {pairs} follow "
        "each other but share no cable",
        hint=f"declare the nodes in this order: {' '.join(right)}",
        id="order-mismatch",
    )


def declared_order(fabric: Fabric, order: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ring's walk as an inventory should list it: from the first node toward its lower-ranked
    neighbour.
    """
    rank = {node.name: node.rank for node in fabric.nodes}
    first = order.index(fabric.nodes[0].name)
    forward = order[first:] + order[:first]
    backward = (forward[0], *reversed(forward[1:]))
    return min(forward, backward, key=lambda walk: rank[walk[1]])


def _line(fabric: Fabric, at: dict[str, list[Cable]]) -> Topology:
    start = next(node.name for node in fabric.nodes if len(at[node.name]) == 1)
    order, cables = _follow(start, at[start][0], len(fabric.nodes), at)
    return Topology(TopologyKind.LINE, tuple(order), tuple(cables[: len(order) - 1]))
