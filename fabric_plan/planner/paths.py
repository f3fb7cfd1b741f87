"""Which paths RDMA takes: the cables themselves, and the relayed paths of the set (docs/fabric.md 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fabric_plan.errors import RefusalError
from fabric_plan.inventory.schema import MeshPaths, TopologyKind
from fabric_plan.planner.model import Path
from fabric_plan.planner.tags import MAX_RELAYS
from fabric_plan.topology.fabric import Fabric
from fabric_plan.topology.shape import Hop, Topology


def direct_paths(fabric: Fabric, planes_of: Mapping[int, tuple[int, ...]]) -> Iterator[Path]:
    """Yield the paths between nodes that share a cable (or a switch); `planes_of` is the addressed planes by
    cable index.
    """
    for cable in fabric.cables:
        for plane in planes_of[cable.index]:
            for out in cable.ends:
                for into in cable.ends:
                    if out != into:
                        yield Path(out.node, into.node, plane, out, into, (), (cable,))


def _relayed(topology: Topology, start: int, direction: int, hops: int, plane: int) -> Path:
    crossed: list[Hop] = []
    for hop in topology.walk(start, direction):
        crossed.append(hop)
        if len(crossed) == hops:
            break
    return Path(
        src=crossed[0].out.node,
        dst=crossed[-1].into.node,
        plane=plane,
        out=crossed[0].out,
        into=crossed[-1].into,
        through=tuple(hop.into.node for hop in crossed[:-1]),
        cables=tuple(hop.cable for hop in crossed),
    )


def _ways(topology: Topology, start: int, target: int) -> list[tuple[int, int]]:
    """Return (direction, hops) of every shortest way between two positions."""
    count = len(topology.order)
    if not topology.closed:
        return [(1 if target > start else -1, abs(target - start))]
    forward, backward = (target - start) % count, (start - target) % count
    shortest = min(forward, backward)
    return [(direction, hops) for direction, hops in ((1, forward), (-1, backward)) if hops == shortest]


def _universal(topology: Topology, planes: tuple[int, ...]) -> Iterator[Path]:
    """Every shortest path on every plane; an even ring reaches the opposite node both ways."""
    count = len(topology.order)
    for start in range(count):
        for target in range(count):
            for direction, hops in _ways(topology, start, target) if start != target else ():
                if hops > 1:
                    for plane in planes:
                        yield _relayed(topology, start, direction, hops, plane)


def _by_pair(
    topology: Topology, chosen: Callable[[int, int], tuple[int, ...]], planes: tuple[int, ...]
) -> Iterator[Path]:
    """The four-ring sets: `chosen(pair, plane)` gives the relay positions that plane uses for pair {0,2} or
    {1,3}.
    """
    for start in range(4):
        target = (start + 2) % 4
        pair = start % 2
        for plane in planes:
            for relay in chosen(pair, plane):
                direction = 1 if relay == (start + 1) % 4 else -1
                path = _relayed(topology, start, direction, 2, plane)
                assert path.dst == topology.order[target]
                yield path


# RoCEnante's selection: each pair goes one way round in plane 1 and the other way in plane 2, back and forth
# alike.
_OPPOSITE = {(0, 1): (1,), (0, 2): (3,), (1, 1): (2,), (1, 2): (0,)}

# One plane a pair, both ways round: every cable and plane then carries the same.
_BALANCED = {(0, 1): (1, 3), (0, 2): (), (1, 1): (), (1, 2): (2, 0)}


def relayed_paths(topology: Topology, mesh: MeshPaths, planes: tuple[int, ...]) -> tuple[Path, ...]:
    """Return the relayed paths of the set `mesh` on the managed `planes`. Raises `RefusalError` where the set
    does not exist.
    """
    if mesh is MeshPaths.OFF:
        return ()
    if topology.kind in (TopologyKind.PAIR, TopologyKind.TRIANGLE, TopologyKind.SWITCHED):
        return ()  # everybody reaches everybody already
    if mesh is MeshPaths.UNIVERSAL:
        return _bounded(tuple(_universal(topology, planes)))
    if topology.kind is not TopologyKind.RING or len(topology.order) != 4:
        raise RefusalError(
            f"mesh.paths `{mesh}` is a set of the four-ring; this is a {topology.kind} of "
            f"{len(topology.order)}",
            hint="write `paths: universal`: every shortest path",
            id="mesh-set-needs-ring4",
        )
    if mesh is MeshPaths.BALANCED and len(planes) != 2:
        raise RefusalError(
            "mesh.paths `balanced` gives each pair of opposite nodes a plane of its own, and one "
            "plane alone is managed",
            hint="write `paths: opposite`, or manage both planes",
            id="balanced-needs-two-planes",
        )
    table = _OPPOSITE if mesh is MeshPaths.OPPOSITE else _BALANCED
    return tuple(_by_pair(topology, lambda pair, plane: table[pair, plane], planes))


def _bounded(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    longest = max((len(path.through) for path in paths), default=0)
    if longest > MAX_RELAYS:
        raise RefusalError(
            f"the longest path crosses {longest} relays; {MAX_RELAYS} tags are set aside",
            hint="turn the mesh off (`mesh: off`), or use a switch",
            id="too-many-relays",
        )
    return paths
