"""Ping every fabric address from every node, through real kernels: the plan in namespaces of this machine.

What this proves is the plan's addresses, routes, forwarding and ARP settings. There is no NIC in it:
rules, markers and hairpin queues are the packet walk's part.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from fabric_plan.errors import FabricPlanError
from fabric_plan.planner.model import Plan
from fabric_plan.prove.namespaces import Namespaces
from fabric_plan.prove.ping import Flow, Pinger


@dataclass(frozen=True, slots=True)
class Unreached:
    """An address that did not answer as it should: asked by which node, whose, and what was seen."""

    node: str
    peer: str
    address: IPv4Address
    why: str

    def __str__(self) -> str:
        return f"{self.node} to {self.peer} {self.address}: {self.why}"


@dataclass(frozen=True, slots=True)
class Pinged:
    """How many addresses were asked and answered, with how many bytes of IP packet, and what went wrong."""

    asked: int
    answered: int
    size: int
    failures: tuple[Unreached, ...]

    @property
    def ok(self) -> bool:
        """True where every address answered every node, and every MAC learned is the planned function's."""
        return not self.failures


def ping_all(plan: Plan) -> Pinged:
    """Build `plan` in namespaces, ping every fabric address from every node at full MTU, take everything
    away.

    Raises `FabricPlanError` where this is not Linux, not root, or where the kernel refuses what the plan
    asks for.
    """
    if not sys.platform.startswith("linux"):
        raise FabricPlanError(
            "network namespaces need Linux", hint="`fabric-plan prove` alone runs everywhere"
        )
    flows = tuple(_flows(plan))
    with Namespaces(plan) as namespaces:
        with Pinger(plan.fabric.mtu, namespaces, {flow.node for flow in flows}) as pinger:
            answers = pinger.run(flows)
        failures = [
            Unreached(flow.node, flow.peer, flow.address, why)
            for flow, why in zip(flows, answers, strict=True)
            if why
        ]
        failures += _strange_macs(plan, namespaces)
    silent = sum(why is not None for why in answers)
    return Pinged(len(flows), len(flows) - silent, plan.fabric.mtu, tuple(failures))


def _flows(plan: Plan) -> Iterator[Flow]:
    """Every node to every address of the others, in an unmanaged plane over its own cables alone."""
    on_cable = {cable.index: {end.node for end in cable.ends} for cable in plan.fabric.cables}
    for peer in plan.nodes:
        for target in peer.functions:
            if target.address is None or target.cable is None:
                continue
            for node in plan.nodes:
                if node.name != peer.name and (target.managed or node.name in on_cable[target.cable.index]):
                    yield Flow(node.name, peer.name, target.address.ip)


def _strange_macs(plan: Plan, namespaces: Namespaces) -> Iterator[Unreached]:
    """A twin that answers ARP for the other one answers pings too; only the MAC learned shows it."""
    owner = {
        str(planned.address.ip): (node.name, planned.function.netdev)
        for node in plan.nodes
        for planned in node.functions
        if planned.address is not None
    }
    macs = {node.name: namespaces.macs(node.name) for node in plan.nodes}
    for node in plan.nodes:
        for address, (mac, dev) in namespaces.neighbours(node.name).items():
            if address not in owner:
                continue
            peer, netdev = owner[address]
            if macs[peer].get(netdev) != mac:
                says = next(
                    (f"{n} {d}" for n, known in macs.items() for d, m in known.items() if m == mac), mac
                )
                why = f"{dev} learned the MAC {mac} of {says}, not that of {netdev}"
                yield Unreached(node.name, peer, IPv4Address(address), why)
