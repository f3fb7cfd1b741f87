"""The environment of NCCL and of RoCEnante on one rank, as data: a name, a value, and why the line is there.

Which library knows a variable is a column of the table, so that an environment never asks a stock library
for what only the patched one does, nor the other way round. Values stay free of quotes and blanks: systemd
and ``docker --env-file`` read a line as it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from fabric_plan.inventory.schema import NcclLibrary
from fabric_plan.nccl.neighbours import (
    device_index,
    devices,
    every_pair_joined,
    has_world_ring,
    shared_cables,
)
from fabric_plan.planner.model import NodePlan, Path, Plan

GRAPH_DIR = "/etc/fabric-plan/nccl"
ENV_DIR = "/etc/fabric-plan/env"

STOCK = frozenset({NcclLibrary.STOCK})
PATCHED = frozenset({NcclLibrary.PATCHED})
BOTH = STOCK | PATCHED

# The listener publishes two addresses in the unpatched code; what comes after the second device needs the
# patch's four flags.
_PUBLISHED_DEVICES = 2


@dataclass(frozen=True, slots=True)
class EnvLine:
    """One line of an environment file, and why it is there."""

    name: str
    value: str
    why: str


Value = Callable[[Plan, NodePlan], str]
Needed = Callable[[Plan, NodePlan], bool]


def _always(plan: Plan, node: NodePlan) -> bool:
    return True


def _no_trees(plan: Plan, node: NodePlan) -> bool:
    """A ring or triangle: NCCL's trees would ask for cables that are not there, or leave by a port that faces
    somebody else.
    """
    return has_world_ring(plan) and not every_pair_joined(plan)


def _ring_graph(plan: Plan, node: NodePlan) -> bool:
    return has_world_ring(plan)


def _over_published(plan: Plan, node: NodePlan) -> bool:
    return len(devices(node)) > _PUBLISHED_DEVICES


def _fixed(value: str) -> Value:
    return lambda plan, node: value


def _channels(plan: Plan, node: NodePlan) -> str:
    return str(plan.fabric.nccl_channels)


def _prefix(plan: Plan, node: NodePlan) -> str:
    return str(plan.nccl_prefix)


def exact_or_prefix(wanted: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Write a device list for NCCL, which matches names by prefix: with ``=`` where a name would bring
    another device along.
    """
    along = any(other.startswith(name) for name in wanted for other in others if other not in wanted)
    return ("=" if along else "") + ",".join(wanted)


def _hca(plan: Plan, node: NodePlan) -> str:
    used = tuple(planned.function.rdma for planned in devices(node))
    return exact_or_prefix(used, tuple(planned.function.rdma for planned in node.functions))


def _mgmt(plan: Plan, node: NodePlan) -> str:
    return plan.fabric.node(node.name).mgmt_netdev


def _socket(plan: Plan, node: NodePlan) -> str:
    return exact_or_prefix((_mgmt(plan, node),), tuple(planned.function.netdev for planned in node.functions))


@dataclass(frozen=True, slots=True)
class _Row:
    """One variable: its value, why, which library it is for, and when it is needed at all."""

    name: str
    value: Value
    why: str
    library: frozenset[NcclLibrary] = BOTH
    needed: Needed = _always


_NCCL: tuple[_Row, ...] = (
    _Row(
        "NCCL_SOCKET_IFNAME",
        _socket,
        "bootstrap goes over the management network, where every rank reaches every other",
    ),
    _Row("GLOO_SOCKET_IFNAME", _mgmt, "Gloo's rendezvous takes the same way"),
    _Row("NCCL_IB_HCA", _hca, "the fabric's devices and no other; NCCL numbers what is kept by PCI path"),
    _Row(
        "NCCL_IB_MERGE_NICS",
        _fixed("0"),
        "functions stay devices of their own: a merged one hides which peer it faces",
    ),
    _Row(
        "NCCL_CROSS_NIC",
        _fixed("1"),
        "comes in on one port, leaves by another; 0 would drop the graph file in silence",
    ),
    _Row(
        "NCCL_MIN_NCHANNELS", _channels, "as many channels as planned, so that each device carries its share"
    ),
    _Row("NCCL_MAX_NCHANNELS", _channels, "and no more: NCCL doubles channels where it may"),
    _Row(
        "NCCL_ALGO",
        _fixed("Ring"),
        "a tree asks for ranks that share no cable, or leaves by a port that faces another",
        needed=_no_trees,
    ),
    _Row(
        "NCCL_GRAPH_FILE",
        _fixed(f"{GRAPH_DIR}/ring.xml"),
        "pins each channel to the device that faces the previous rank",
        STOCK,
        _ring_graph,
    ),
    _Row(
        "NCCL_CUMEM_ENABLE",
        _fixed("1"),
        "on at every rank, or trees are connected at start whatever NCCL_ALGO says",
        STOCK,
        _no_trees,
    ),
    _Row(
        "NCCL_RUNTIME_CONNECT",
        _fixed("1"),
        "connect what is used, when it is used: no tree is ever used here",
        STOCK,
        _no_trees,
    ),
    _Row(
        "NCCL_IB_SUBNET_AWARE_ROUTING",
        _fixed("1"),
        "a send leaves by the device in the receiver's subnet (NCCL 2.30.7 and later)",
        STOCK,
    ),
    _Row(
        "NCCL_IB_SUBNET_PREFIX_LEN", _prefix, "the shortest prefix that tells the functions of a node apart"
    ),
    _Row(
        "NCCL_SWITCHLESS_RING_ONLY",
        _fixed("1"),
        "the patched library then sets up no tree and no PAT",
        PATCHED,
        _no_trees,
    ),
    _Row(
        "NCCL_SKIP_TREE_CONNECT",
        _fixed("1"),
        "the same, for builds of the patch that know this name",
        PATCHED,
        _no_trees,
    ),
    _Row(
        "NCCL_IB_EXTENDED_IPV4_GIDS",
        _fixed("1"),
        "publish every device: past the second none is seen otherwise",
        PATCHED,
        _over_published,
    ),
    _Row(
        "NCCL_IB_PRESERVE_PCI_DOMAIN",
        _fixed("1"),
        "a substitute device comes from the same plane",
        PATCHED,
        _over_published,
    ),
    _Row(
        "NCCL_IB_ROUTE_DIAGNOSTICS",
        _fixed("1"),
        "log which device each connection took: check-log reads it",
        PATCHED,
        _over_published,
    ),
    _Row(
        "NCCL_IB_QPS_PER_CONNECTION",
        _fixed("1"),
        "one queue pair a connection, as the patch was measured",
        PATCHED,
        _over_published,
    ),
    _Row("NCCL_P2P_LEVEL", _fixed("SYS"), "as the patched ring's own settings have it", PATCHED, _no_trees),
)


def nccl_names(library: NcclLibrary) -> tuple[str, ...]:
    """Return every variable that is meant for `library`, needed by this plan or not, in the order of the
    table.
    """
    return tuple(row.name for row in _NCCL if library in row.library)


def nccl_env(plan: Plan, node: NodePlan) -> tuple[EnvLine, ...]:
    """Return NCCL's environment on `node`; nothing where no prefix tells its functions apart (the plan's
    notices say why).
    """
    if plan.nccl_prefix is None:
        return ()
    library = plan.fabric.nccl_library
    return tuple(
        EnvLine(row.name, row.value(plan, node), row.why)
        for row in _NCCL
        if library in row.library and row.needed(plan, node)
    )


def nccl_notes(plan: Plan) -> tuple[str, ...]:
    """Return what the head of the file has to say about what is *not* in it."""
    if has_world_ring(plan):
        return ()
    apart = [
        f"{node.rank} and {peer.rank}"
        for node, peer in pairwise(plan.nodes)
        if not shared_cables(plan, node, peer)
    ]
    return (
        f"No ring over all {len(plan.nodes)} ranks: the nodes form a line. Two neighbours alone take",
        f"the graph file of their cable: NCCL_GRAPH_FILE={GRAPH_DIR}/link-prev.xml or link-next.xml.",
        *(
            (f"Ranks that follow each other but share no cable have none: {', '.join(apart)}.",)
            if apart
            else ()
        ),
    )


def peer_map(plan: Plan, node: NodePlan) -> str:
    """Return ``peer=a/b`` for every other rank: the devices of `node` that its first and second path to that
    rank leave by.

    Of a pair of ring positions the first path goes forward in plane 1 from the lower one, the second
    backward in plane 2; the higher one mirrors that. Where the plan has a single path to a peer, both are
    that path.
    """
    return ",".join(
        f"{peer.rank}={'/'.join(map(str, _path_devices(plan, node, peer)))}"
        for peer in plan.nodes
        if peer is not node
    )


def _path_devices(plan: Plan, node: NodePlan, peer: NodePlan) -> tuple[int, int]:
    paths = [path for path in plan.paths if path.src == node.name and path.dst == peer.name]
    planes = sorted(plan.fabric.planes)
    first = min(paths, key=lambda path: (path.plane != planes[0], not _forward(plan, path)))
    second = min(paths, key=lambda path: (path.plane != planes[-1], _forward(plan, path)))
    return device_index(node, first.out.port, first.plane), device_index(node, second.out.port, second.plane)


def _forward(plan: Plan, path: Path) -> bool:
    """Whether `path`, looked at from the lower of its two ring positions, sets out toward the higher
    neighbours.
    """
    count = len(plan.topology.order)
    src, dst = plan.topology.position(path.src), plan.topology.position(path.dst)
    step = (plan.topology.position(path.through[0] if path.through else path.dst) - src) % count
    along = step == 1  # in the walk's direction, as seen from the sender
    return along if src < dst else not along


_MESH_OFF = (
    EnvLine("DSV41_ROCE_RING", "0", "no path to far nodes is planned, so the ring's path set stays off"),
    EnvLine(
        "SGLANG_ROCE_ALLREDUCE",
        "0",
        "without the mesh collectives go over NCCL, and DSV41_ROCE_GATHER is left out",
    ),
)

_SWITCHED = (
    EnvLine(
        "DSV41_ROCE_RING",
        "0",
        "behind a switch every rank is reached directly: nothing for the ring's path set to do",
    ),
)


def rocenante_env(plan: Plan, node: NodePlan) -> tuple[EnvLine, ...]:
    """Return RoCEnante's environment on `node`, as planned: mesh-up writes the effective one, with the queue
    in force.

    No GID index is ever pinned here: whether one is the same on every function is known on the node alone.
    """
    if not plan.mesh:
        return _SWITCHED if every_pair_joined(plan) and plan.topology.cables == () else _MESH_OFF
    cap = str(plan.load.cap)
    hcas = ",".join(planned.function.rdma for planned in devices(node))
    return (
        EnvLine(
            "DSV41_ROCE_RING",
            "1",
            "use the path-aware package: far nodes are reached through the neighbours' hardware",
        ),
        EnvLine("SGLANG_ROCE_ALLREDUCE", "1", "the engine's all-reduce goes over it"),
        EnvLine(
            "SGLANG_ROCE_MAX_SIZE", cap, "bytes a message: what the planned hairpin queue holds, with room"
        ),
        EnvLine("DSV41_ROCE_GATHER", cap, "the same bound for the all-gather"),
        EnvLine("B12X_ROCE_HCA", hcas, "this rank's devices by PCI order; the maps count in this list"),
        EnvLine(
            "B12X_ROCE_PEER_HCA_MAPS",
            ";".join(peer_map(plan, each) for each in plan.nodes),
            "per rank and peer: the device of the plane-1 path and of the plane-2 path",
        ),
        EnvLine(
            "B12X_ROCE_TWO_WAVE_THRESHOLD_BYTES",
            "0",
            "no second wave: it only costs time where no queue overflows",
        ),
    )


# What mesh-up decides by the queue that is in force when it runs.
_LIVE = ("SGLANG_ROCE_MAX_SIZE", "DSV41_ROCE_GATHER")


def rocenante_fixed(plan: Plan, node: NodePlan) -> tuple[str, ...]:
    """Return the lines of `rocenante_env` that no live value changes, as mesh-up writes them."""
    return tuple(f"{line.name}={line.value}" for line in rocenante_env(plan, node) if line.name not in _LIVE)
