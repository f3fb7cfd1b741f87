"""What templates print, prepared: a template loops and asks yes or no, everything else is decided here."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network

from fabric_plan.planner.model import NodePlan, Plan, PlannedFunction

# Plane 1's file is 40-..., plane 2's is 41-sparkring-plane2.yaml, the name that ring guides use.
NETPLAN_NUMBER = 39


@dataclass(frozen=True, slots=True)
class RouteView:
    """One static route: `source` is the address that traffic leaves with, None where the kernel chooses."""

    to: str
    via: str
    source: str | None
    why: str


@dataclass(frozen=True, slots=True)
class InterfaceView:
    """One function in its netplan file."""

    netdev: str
    rdma: str
    address: str
    cable: str
    routes: tuple[RouteView, ...]


@dataclass(frozen=True, slots=True)
class NetplanView:
    """The netplan file of one plane."""

    plane: int
    mtu: int
    interfaces: tuple[InterfaceView, ...]


def netplan_view(plan: Plan, node: NodePlan, plane: int) -> NetplanView:
    """Return what the netplan file of `plane` on `node` says."""
    interfaces = tuple(
        InterfaceView(
            netdev=planned.function.netdev,
            rdma=planned.function.rdma,
            address=str(planned.address),
            cable=str(planned.cable),
            routes=_routes(plan, node, planned),
        )
        for planned in node.functions
        if planned.function.plane == plane and planned.cabled
    )
    return NetplanView(plane, plan.fabric.mtu, interfaces)


def _routes(plan: Plan, node: NodePlan, planned: PlannedFunction) -> tuple[RouteView, ...]:
    dev = planned.function.netdev
    cables = {str(net): str(plan.fabric.cables[index]) for (index, _), net in plan.subnets.items()}
    kernel = [
        RouteView(str(route.to), str(route.via), None, f"the cable {cables[str(route.to)]}")
        for route in node.kernel_routes
        if route.dev == dev
    ]
    relay = [
        RouteView(
            _host(route.to),
            str(route.via),
            str(route.src),
            f"{route.peer}, relayed by {', '.join(route.through)}",
        )
        for route in node.relay_routes
        if route.dev == dev
    ]
    return (*kernel, *relay)


def _host(network: IPv4Network) -> str:
    return f"{network.network_address}/32"
