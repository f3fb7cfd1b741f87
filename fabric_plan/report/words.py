"""Routes, rules and paths of a plan in words, as a person says them."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_plan.planner.model import Marker, NodePlan, Path, Plan, RelayRoute, Rule
from fabric_plan.planner.tags import ETHERTYPE_IPV4, tag


def _tagged(ethertype: int) -> str:
    return "as plain IPv4" if ethertype == ETHERTYPE_IPV4 else f"tagged 0x{ethertype:04x}"


def rule_words(node: NodePlan, rule: Rule) -> str:
    """Return what a rule does: whose frames leave by which port to whom."""
    senders = " and ".join(rule.senders)
    into, out = node.named(rule.dev).function.port, node.named(rule.redirect).function.port
    return (
        f"frames {_tagged(rule.ethertype)} from {senders} come in by {into} and leave by {out} "
        f"to {rule.receiver}, {_tagged(rule.set_type)}"
    )


def route_words(route: RelayRoute) -> str:
    """Return what a relay route is for."""
    return (
        f"{route.peer} at {route.to.network_address}: through {', '.join(route.through)}, "
        f"by {route.dev} via {route.via}"
    )


def marker_words(marker: Marker) -> str:
    """Return what a marker tags."""
    if marker.source_port is not None and marker.ethertype is not None:
        port = marker.source_port
        return f"every RDMA packet with UDP source port {port} leaves tagged 0x{marker.ethertype:04x}"
    return "; ".join(
        f"RDMA to {destination.address} leaves tagged 0x{destination.ethertype:04x}"
        for destination in marker.destinations
    )


def rule_of(plan: Plan, path: Path, relay: int) -> Rule | None:
    """Return the rule that carries `path` across its relay number `relay` (from 0)."""
    node = plan.node(path.through[relay])
    into = node.at(path.cables[relay].end(node.name).port, path.plane).function.netdev
    left = len(path.through) - relay
    return next(
        (
            rule
            for rule in node.rules
            if rule.dev == into
            and rule.plane == path.plane
            and rule.ethertype == tag(left)
            and path.src in rule.senders
        ),
        None,
    )


def route_of(plan: Plan, path: Path) -> RelayRoute | None:
    """Return the relay route that a path's sender uses."""
    return next(
        (
            route
            for route in plan.node(path.src).relay_routes
            if route.peer == path.dst and route.plane == path.plane and route.through == path.through
        ),
        None,
    )


def path_words(plan: Plan, path: Path) -> Iterator[str]:
    """Yield what happens to a path's frames, node by node."""
    sender = plan.node(path.src).at(path.out.port, path.plane).function
    receiver = plan.node(path.dst).at(path.into.port, path.plane)
    route = route_of(plan, path)
    if route is None:
        yield f"{path.src} sends by {path.out.port} ({sender.netdev}), straight over the cable"
    else:
        yield f"{path.src} has a route to {route.to} via {route.via} on {route.dev}"
        yield f"its marker on {sender.rdma} sets EtherType 0x{tag(len(path.through)):04x}"
    for i, name in enumerate(path.through):
        rule = rule_of(plan, path, i)
        if rule is not None:
            yield f"{name}, rule {rule.pref} on {rule.dev}: {rule_words(plan.node(name), rule)}"
    address = receiver.address.ip if receiver.address else "no address"
    yield f"{path.dst} receives by {path.into.port} ({receiver.function.netdev}, {address})"
