"""Put together what one node's sources say: the running interfaces, and the netplan files that configure
them.

A dump shows what is, netplan what a reboot brings: where both are there the dump's values stand, and
netplan is read for files that are broken and for definitions that contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import AddressValueError, IPv4Interface, NetmaskValueError

from fabric_plan.discover.evidence import Claim, Doubt, FoundNode, Interface, Login, Neighbour
from fabric_plan.discover.netplan_merge import Definition, Merged, NetplanFile, merge
from fabric_plan.discover.rendered import RECORD_PATH, Record
from fabric_plan.errors import FabricPlanError
from fabric_plan.node.records import Address, Interfaces, Link, LldpNeighbour, RdmaLink
from fabric_plan.roles import Hardware


@dataclass(frozen=True, slots=True)
class Sources:
    """What there is about one node. `dump` is what ``ip addr`` said, None where nobody asked, `dump_name` its
    name in messages; `record` is what this tool wrote down on the node.
    """

    name: str
    hardware: Hardware
    login: Login = field(default_factory=Login)
    dump: Interfaces | None = None
    dump_name: str = "ip addr"
    rdma: tuple[RdmaLink, ...] = ()
    netplan: tuple[NetplanFile, ...] = ()
    lldp: tuple[LldpNeighbour, ...] = ()
    record: Record | None = None
    broken: tuple[FabricPlanError, ...] = ()


def gather(sources: Sources) -> FoundNode:
    """Return the node as its sources show it. Raises nothing: what cannot be read stands in
    `FoundNode.broken`.
    """
    merged = merge(sources.netplan)
    if sources.dump is not None:
        interfaces = _from_dump(sources.dump, sources.dump_name)
    else:
        interfaces = _recorded(_from_netplan(merged, sources.hardware), sources.record)
    doubts: list[Doubt] = []
    completed = []
    for interface in interfaces:
        claiming = [
            d
            for d in merged.definitions.values()
            if d.claims((interface.netdev, *interface.names), interface.mac)
        ]
        followed, against = _followed(interface, claiming)
        doubts += against
        completed.append(_completed(interface, followed, merged, sources))
    return FoundNode(
        name=sources.name,
        hardware=sources.hardware,
        interfaces=tuple(completed),
        broken=(*sources.broken, *(_on(sources.name, error) for error in merged.broken)),
        doubts=tuple(doubts),
        login=sources.login,
    )


def _on(node: str, error: FabricPlanError) -> FabricPlanError:
    return FabricPlanError(error.message, where=node, hint=error.hint, id=error.id)


def _from_dump(dump: Interfaces, name: str) -> list[Interface]:
    return [_running(link, [a for a in dump.addresses if a.dev == link.name], name) for link in dump.links]


def _running(link: Link, addresses: Sequence[Address], name: str) -> Interface:
    claims = []
    for address in addresses:
        if address.family == "inet" and address.scope != "host":
            try:
                claims.append(Claim(IPv4Interface(f"{address.address}/{address.prefix}"), name))
            except (AddressValueError, NetmaskValueError):
                continue
    return Interface(
        netdev=link.name,
        names=link.altnames,
        mac=link.permanent_mac or link.mac,
        pci=link.pci,
        phys_port_name=link.phys_port_name,
        mtu=link.mtu,
        carrier=link.carrier if "UP" in link.flags else None,
        kind=link.kind,
        master=link.master,
        claims=tuple(claims),
    )


def _from_netplan(merged: Merged, hardware: Hardware) -> list[Interface]:
    """Return the interfaces that netplan itself names; a pattern stands for those of the hardware that it
    fits.
    """
    known = [function.netdev for port in hardware.ports.values() for function in port.functions]
    found: dict[str, Interface] = {}
    for definition in merged.definitions.values():
        if definition.section != "ethernets":
            continue
        if definition.own_name is not None:
            names = [definition.own_name]
        elif definition.match_names:
            names = [name for name in known if definition.claims((name,), definition.match_mac)]
        else:
            names = [definition.id]
        for name in names:
            old = found.get(name, Interface(name))
            renamed = definition.match_names if definition.set_name is not None else ()
            also = () if definition.own_name == name else (definition.id,)
            found[name] = replace(
                old, mac=old.mac or definition.match_mac, names=(*old.names, *renamed, *also)
            )
    return list(found.values())


def _recorded(interfaces: list[Interface], record: Record | None) -> list[Interface]:
    """Complete what netplan names with what the record knows; an unmanaged plane stands in the record
    alone.
    """
    if record is None:
        return interfaces
    found = {interface.netdev: interface for interface in interfaces}
    for function in record.functions:
        old = found.get(function.netdev, Interface(function.netdev))
        alone = (
            () if function.managed or function.address is None else (Claim(function.address, RECORD_PATH),)
        )
        found[function.netdev] = replace(
            old,
            mac=function.mac or old.mac,
            pci=function.pci,
            rdma=function.rdma,
            slot=(function.port, function.plane),
            mtu=None if function.managed else record.mtu,
            claims=alone,
        )
    return list(found.values())


def _followed(interface: Interface, claiming: Sequence[Definition]) -> tuple[Definition | None, list[Doubt]]:
    """Return the definition to follow, and a doubt for every other one that gives the interface other
    addresses or asks for them by DHCP.

    NetworkManager turns each definition into a profile, and which one it brings up is its own affair. What
    gives addresses comes first, and its mirrors (``90-NM-*``) give way to what a person wrote.
    """
    if not claiming:
        return None, []
    ordered = sorted(claiming, key=lambda d: (not d.addresses, _is_mirror(d)))
    followed = ordered[0]
    ours = {said.value for said in followed.addresses}
    doubts = []
    for other in ordered[1:]:
        theirs = [said for said in other.addresses if said.value not in ours]
        asks = other.dhcp4 is not None and other.dhcp4.value and bool(ours)
        if theirs or asks:
            doubts.append(
                Doubt(
                    netdev=interface.netdev,
                    file=theirs[0].file if theirs else other.files[-1],
                    theirs=tuple(str(said.value) for said in theirs),
                    other_file=followed.addresses[0].file,
                    ours=tuple(str(said.value) for said in followed.addresses),
                )
            )
    if followed.mtu is None:
        followed = replace(followed, mtu=next((d.mtu for d in ordered if d.mtu is not None), None))
    return followed, doubts


def _is_mirror(definition: Definition) -> bool:
    return definition.id.startswith("NM-") and all("/90-NM-" in file for file in definition.files)


def _completed(
    interface: Interface, followed: Definition | None, merged: Merged, sources: Sources
) -> Interface:
    """Add to an interface what netplan, rdma, sysfs and LLDP say about it."""
    rdma = next((link.device for link in sources.rdma if link.netdev == interface.netdev), None)
    heard = tuple(
        Neighbour(
            n.chassis_name, n.port_id if n.port_id_type in ("ifname", "mac", None) else n.port_description
        )
        for n in sources.lldp
        if n.dev == interface.netdev
    )
    interface = replace(interface, rdma=rdma or interface.rdma, neighbours=heard)
    if sources.dump is not None:
        return interface
    master = merged.master_of(followed.id) if followed else None
    if followed is None:
        return interface
    claims = tuple(Claim(said.value, said.where) for said in followed.addresses) or interface.claims
    mtu = followed.mtu.value if followed.mtu else interface.mtu
    return replace(interface, mtu=mtu, claims=claims, master=master, link_local=followed.link_local4)


def broken_dump(node: str, name: str, reasons: Iterable[str]) -> FabricPlanError:
    """Return the error for a dump of which nothing, or not everything, could be read."""
    return FabricPlanError(
        f"{name} cannot be read: {'; '.join(reasons)}",
        where=node,
        hint="take it again: ip -j -d addr show > ip-addr.json",
        id="unreadable-dump",
    )
