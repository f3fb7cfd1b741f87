"""The tables of a plan: cables with their subnets and load, nodes with their counts, the proof with its
figures.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabric_plan.inventory.schema import MeshPaths, TopologyKind
from fabric_plan.planner.load import load_of
from fabric_plan.planner.model import Plan
from fabric_plan.planner.paths import relayed_paths
from fabric_plan.simulate.proof import Proof

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def cable_table(plan: Plan) -> Table:
    """Return one row a cable: its ends, its subnet and its relayed paths in each plane."""
    planes = tuple(plan.fabric.planes)
    relayed = {(load.cable.index, load.plane): load.paths for load in plan.load.cables}
    header = ("cable", *(f"plane {plane}" for plane in planes), *(["relayed"] if plan.mesh else []))
    rows: list[tuple[str, ...]] = []
    for cable in plan.fabric.cables:
        subnets = [str(plan.subnets.get((cable.index, plane), "-")) for plane in planes]
        load = "/".join(str(relayed.get((cable.index, plane), 0)) for plane in plan.fabric.managed)
        rows.append((str(cable), *subnets, *([load] if plan.mesh else [])))
    return header, rows


def node_table(plan: Plan, files: dict[str, int]) -> Table:
    """Return one row a node: rank, position, and how many routes, rules, markers and files it gets."""
    header: tuple[str, ...] = (
        "node",
        "rank",
        "position",
        "kernel routes",
        "relay routes",
        "rules",
        "markers",
        "files",
    )
    rows: list[tuple[str, ...]] = [
        (
            node.name,
            str(node.rank),
            str(node.position),
            str(len(node.kernel_routes)),
            str(len(node.relay_routes)),
            str(len(node.rules)),
            str(len(node.markers)),
            str(files.get(node.name, 0)),
        )
        for node in plan.nodes
    ]
    return header, rows


def set_table(plan: Plan) -> Table:
    """Return one row a path set that this fabric could have: what a node gets, and the most that a cable
    carries.

    Empty where there is nothing to choose: without a mesh, and on anything but a four-ring with both planes.
    """
    header = ("path set", "relay routes", "rules", "most on a cable and plane", "least", "")
    fabric = plan.fabric
    if (
        not plan.mesh
        or len(plan.nodes) != 4
        or plan.topology.kind is not TopologyKind.RING
        or len(fabric.managed) != 2
    ):
        return header, []
    rows: list[tuple[str, ...]] = []
    for mesh in (MeshPaths.OPPOSITE, MeshPaths.BALANCED, MeshPaths.UNIVERSAL):
        paths = relayed_paths(plan.topology, mesh, fabric.managed)
        crossed = [cable.paths for cable in load_of(fabric, paths).cables]
        routes = sum(path.src == plan.nodes[0].name for path in paths)
        relayed = sum(plan.nodes[0].name in path.through for path in paths)
        chosen = "chosen" if mesh is fabric.mesh else ""
        rows.append((str(mesh), str(routes), str(relayed), str(max(crossed)), str(min(crossed)), chosen))
    return header, rows


def proof_lines(plan: Plan, proof: Proof) -> Iterator[str]:
    """Yield the proof's verdict and its figures."""
    if not proof.ok:
        yield f"proof: failed, {len(proof.failures)} findings"
        return
    figures = (
        f"{proof.rdma_paths} RDMA paths arrive, {proof.kernel_forwarded} frames forwarded by a kernel, "
        f"{proof.tcp_flows} TCP flows arrive"
    )
    yield f"proof: ok ({figures})"
    if plan.load.cap is not None and plan.load.bound is not None:
        yield (
            f"  busiest hairpin queue: {plan.load.busiest:g} messages of a peer; "
            f"bound {plan.load.bound} bytes a peer, RoCE size cap {plan.load.cap} bytes"
        )
