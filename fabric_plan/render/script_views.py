"""What the scripts and units of a node say, prepared from its plan: their data, nothing of their logic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabric_plan.inventory.schema import MarkerDialect
from fabric_plan.planner.forward import forwarded_pairs
from fabric_plan.planner.load import CAP_FULL_QUEUE, CAP_SMALL_QUEUE, FULL_QUEUE
from fabric_plan.planner.model import COOKIE_PREFIX, ROUTE_PROTOCOL, Marker, NodePlan, Plan, Rule

# What the driver starts with where nobody set anything: 1024 entries a hairpin queue, or less.
DEFAULT_QUEUE = 1024

# Where a marker is looked for when the inventory gives no path.
MARKER_PATHS = {
    MarkerDialect.BUILT_IN: "/usr/local/lib/fabric-plan/fabric-plan-marker",
    MarkerDialect.REWRITE_PROBE: "/usr/local/bin/mlx5-rdma-tx-rewrite-probe",
    MarkerDialect.RELAY_MARKER: "/usr/local/bin/sparkring-relay-marker",
}


@dataclass(frozen=True, slots=True)
class OursView:
    """What tells our rules and routes from others' in the kernel."""

    cookie_prefix: str = COOKIE_PREFIX
    route_protocol: int = ROUTE_PROTOCOL


@dataclass(frozen=True, slots=True)
class FunctionView:
    """One managed function; `address` with its prefix length, empty where no cable is plugged in."""

    netdev: str
    rdma: str
    pci: str
    address: str


@dataclass(frozen=True, slots=True)
class HairpinView:
    """The driver values of a node: entries (64 bytes each) a queue, and queues."""

    node: str
    functions: tuple[FunctionView, ...]
    queue_size: int
    num_queues: int


@dataclass(frozen=True, slots=True)
class RuleView:
    """One rule: `words` for tc, the rest as tc shows it. `src_mac` is empty where any sender is meant."""

    dev: str
    pref: int
    handle: str
    protocol: str
    cookie: str
    redirect: str
    dst_mac: str
    src_mac: str
    rewrite: str
    text: str
    words: str


@dataclass(frozen=True, slots=True)
class MeshRouteView:
    """A route to check and, where it is missing, to add; `src` is empty where the kernel may choose."""

    to: str
    via: str
    dev: str
    src: str


@dataclass(frozen=True, slots=True)
class MeshView:
    """Everything that mesh-up.sh converges to; `bound` in bytes a peer for queues of `queue_size` entries.

    `environment` is RoCEnante's without the sizes: mesh-up.sh adds those that the queues in effect allow.
    """

    node: str
    functions: tuple[FunctionView, ...]
    rules: tuple[RuleView, ...]
    routes: tuple[MeshRouteView, ...]
    markers: tuple[str, ...]
    environment: tuple[str, ...]
    queue_size: int
    bound: int
    default_queue: int = DEFAULT_QUEUE
    full_queue: int = FULL_QUEUE
    cap_full_queue: int = CAP_FULL_QUEUE
    cap_small_queue: int = CAP_SMALL_QUEUE


@dataclass(frozen=True, slots=True)
class PairView:
    """One direction in which TCP may cross a node: in on `source`, out on `target`."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class ForwardView:
    """What forward.sh lets through."""

    node: str
    pairs: tuple[PairView, ...]


@dataclass(frozen=True, slots=True)
class MarkerUnitView:
    """The marker's program, and how its unit learns that it is ready."""

    path: str
    type: str


@dataclass(frozen=True, slots=True)
class MarkerView:
    """One device's marker: its whole command line, and in words what it tags."""

    rdma: str
    netdev: str
    arguments: tuple[str, ...]
    comments: tuple[str, ...]


def managed_functions(node: NodePlan) -> tuple[FunctionView, ...]:
    """Return the functions whose configuration is ours, cabled or not, in PCI order."""
    return tuple(
        FunctionView(
            netdev=planned.function.netdev,
            rdma=planned.function.rdma,
            pci=planned.function.pci,
            address=str(planned.address) if planned.address else "",
        )
        for planned in node.functions
        if planned.managed
    )


def hairpin_view(plan: Plan, node: NodePlan) -> HairpinView:
    """Return the driver values of `node`: every function that a cable is plugged into may have to relay."""
    functions = tuple(function for function in managed_functions(node) if function.address)
    hairpin = plan.fabric.hairpin
    return HairpinView(node.name, functions, hairpin.queue_size, hairpin.num_queues)


def mesh_view(plan: Plan, node: NodePlan, environment: Sequence[str]) -> MeshView:
    """Return what `node` has to have in place; `environment`: RoCEnante lines that no live value changes."""
    routes = (
        *(MeshRouteView(str(route.to), str(route.via), route.dev, "") for route in node.kernel_routes),
        *(
            MeshRouteView(str(route.to), str(route.via), route.dev, str(route.src))
            for route in node.relay_routes
        ),
    )
    return MeshView(
        node=node.name,
        functions=managed_functions(node),
        rules=tuple(_rule(rule) for rule in node.rules),
        routes=routes,
        markers=tuple(marker.rdma for marker in node.markers),
        environment=tuple(environment),
        queue_size=plan.fabric.hairpin.queue_size,
        bound=plan.load.bound or 0,
    )


def _rule(rule: Rule) -> RuleView:
    return RuleView(
        dev=rule.dev,
        pref=rule.pref,
        handle=f"0x{rule.handle:x}",
        protocol=f"0x{rule.ethertype:04x}",
        cookie=rule.cookie,
        redirect=rule.redirect,
        dst_mac=rule.dst_mac,
        src_mac=rule.src_mac or "",
        rewrite=f"type {rule.set_type:04x} dst {rule.set_dst_mac}",
        text=f"{', '.join(rule.senders)} to {rule.receiver}",
        words=" ".join(rule.tc_words()),
    )


def forward_view(plan: Plan, node: NodePlan) -> ForwardView:
    """Return the directions in which kernel routes cross `node`."""
    return ForwardView(node.name, tuple(PairView(*pair) for pair in forwarded_pairs(plan, node)))


def marker_unit_view(plan: Plan) -> MarkerUnitView:
    """Return the program of the plan's dialect. Only the built-in one is known to report that it is ready."""
    marker = plan.fabric.marker
    built_in = marker.dialect is MarkerDialect.BUILT_IN
    return MarkerUnitView(marker.path or MARKER_PATHS[marker.dialect], "notify" if built_in else "exec")


def marker_views(plan: Plan, node: NodePlan) -> tuple[MarkerView, ...]:
    """Return the markers of `node` in PCI order, each in the plan's dialect."""
    return tuple(
        MarkerView(
            rdma=marker.rdma,
            netdev=marker.netdev,
            arguments=("--device", marker.rdma, *_arguments(plan.fabric.marker.dialect, marker), "--managed"),
            comments=tuple(_comments(node, marker)),
        )
        for marker in node.markers
    )


def _arguments(dialect: MarkerDialect, marker: Marker) -> Iterator[str]:
    if dialect is MarkerDialect.REWRITE_PROBE:
        yield from ("--source-port", str(marker.source_port))
        yield from ("--replacement-ethertype", f"0x{marker.ethertype:04x}", "--attach")
        return
    for destination in marker.destinations:
        yield from ("--rule", f"{destination.address}=0x{destination.ethertype:04x}")


def _comments(node: NodePlan, marker: Marker) -> Iterator[str]:
    peers = {route.to.network_address: route.peer for route in node.relay_routes}
    for destination in marker.destinations:
        yield f"{peers[destination.address]} ({destination.address})"
