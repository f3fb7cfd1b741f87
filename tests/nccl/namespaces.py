"""A plan's cables as veth pairs between network namespaces, one a node, and a management network beside them.

There are addresses and nothing more: no route to a cable that a node does not sit on, so that a connection
to a far node fails at once instead of wandering through a neighbour's kernel.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fabric_plan.nccl.neighbours import devices
from fabric_plan.planner.model import NodePlan, Plan

MGMT = "10.255.255.{}"
MGMT_PORT = 29555
# The kernel lists interfaces by index, and NCCL's socket transport counts them in that order.
FIRST_INDEX = 100


@dataclass(frozen=True)
class Wired:
    """The namespaces by node name."""

    plan: Plan
    prefix: str

    def path(self, node: str) -> Path:
        return Path("/run/netns") / f"{self.prefix}{node}"


def _place(namespace: str, temporary: str, name: str, index: int) -> None:
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        (link,) = ip.link_lookup(ifname=temporary)
        ip.link("set", index=link, ifname=name, net_ns_fd=namespace, new_ifindex=index)


def _bring_up(namespace: str, name: str, address: str | None, prefix: int, mtu: int) -> None:
    from pyroute2 import NetNS

    with NetNS(namespace) as ns:
        (link,) = ns.link_lookup(ifname=name)
        ns.link("set", index=link, mtu=mtu, state="up")
        if address:
            ns.addr("add", index=link, address=address, prefixlen=prefix)


def _index(node: NodePlan, netdev: str) -> int:
    order = [planned.function.netdev for planned in devices(node)]
    return FIRST_INDEX + order.index(netdev)


def _cable(wired: Wired, number: int, ends: list[tuple[NodePlan, str, str, int]], mtu: int) -> None:
    from pyroute2 import IPRoute

    temporary = [f"fpt{number}{side}" for side in "ab"]
    with IPRoute() as ip:
        ip.link("add", ifname=temporary[0], kind="veth", peer=temporary[1])
    for name, (node, netdev, _, _) in zip(temporary, ends, strict=True):
        _place(f"{wired.prefix}{node.name}", name, netdev, _index(node, netdev))
    for node, netdev, address, prefix in ends:
        _bring_up(f"{wired.prefix}{node.name}", netdev, address, prefix, mtu)


def _management(wired: Wired, hub: str) -> None:
    from pyroute2 import IPRoute, NetNS

    with NetNS(hub) as ns:
        ns.link("add", ifname="br0", kind="bridge")
        (bridge,) = ns.link_lookup(ifname="br0")
        ns.link("set", index=bridge, state="up")
        for node in wired.plan.nodes:
            with IPRoute() as ip:
                ip.link("add", ifname="fptma", kind="veth", peer="fptmb")
            name = wired.plan.fabric.node(node.name).mgmt_netdev
            _place(f"{wired.prefix}{node.name}", "fptma", name, FIRST_INDEX - 1)
            _place(hub, "fptmb", f"port{node.rank}", FIRST_INDEX + node.rank)
            (port,) = ns.link_lookup(ifname=f"port{node.rank}")
            ns.link("set", index=port, master=bridge, state="up")
            _bring_up(f"{wired.prefix}{node.name}", name, MGMT.format(node.rank + 1), 24, 1500)


@contextlib.contextmanager
def wire(plan: Plan) -> Iterator[Wired]:
    """Build the namespaces of `plan`, and take them away again whatever happens. Needs root."""
    from pyroute2 import netns

    wired = Wired(plan, f"fp{os.getpid()}-")
    hub = f"{wired.prefix}hub"
    names = [hub, *(f"{wired.prefix}{node.name}" for node in plan.nodes)]
    made: list[str] = []
    try:
        for name in names:
            netns.create(name)
            made.append(name)
            _bring_up(name, "lo", None, 8, 65536)
        number = 0
        for cable in plan.fabric.cables:
            assert cable.rail is None, "a switch is not modelled"
            for plane in plan.fabric.planes:
                ends = []
                for end in cable.ends:
                    planned = plan.node(end.node).at(end.port, plane)
                    assert planned.address is not None
                    address = planned.address
                    ends.append(
                        (
                            plan.node(end.node),
                            planned.function.netdev,
                            str(address.ip),
                            address.network.prefixlen,
                        )
                    )
                _cable(wired, number, ends, plan.fabric.mtu)
                number += 1
        _management(wired, hub)
        yield wired
    finally:
        for name in made:
            netns.remove(name)
