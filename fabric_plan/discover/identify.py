"""Tell which interface of a node is which function of which port, by the best evidence that there is.

In this order: this tool's own record of a node without a dump, the PCI address, phys_port_name, the name of
the RDMA device, the pattern of the MACs, and last the names that the hardware's role knows. Names are given
by images and people, so they decide only where nothing better speaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabric_plan.discover.evidence import FoundNode, Interface
from fabric_plan.errors import FabricPlanError
from fabric_plan.findings import Notice
from fabric_plan.inventory.schema import PCI
from fabric_plan.roles import Hardware

Slot = tuple[str, int]  # port and plane

# Where a Spark's MACs stand above that of its management port: f0, f1, then the same in plane 2.
_MAC_OFFSETS = {("f0", 1): 1, ("f1", 1): 2, ("f0", 2): 5, ("f1", 2): 6}

# What udev makes of a PCI address: en [P domain] p bus s slot [f function] [np port].
_PREDICTABLE = re.compile(
    r"en(?:P(?P<domain>\d+))?p(?P<bus>\d+)s(?P<slot>\d+)(?:f(?P<function>\d))?(?:np?(?P<port>\w+))?"
)
_ROCE = re.compile(r"roce(?:P(?P<domain>\d+))?p(?P<bus>\d+)s(?P<slot>\d+)(?:f(?P<function>\d))?")


@dataclass(frozen=True, slots=True)
class Identified:
    """The functions of one node by port and plane, what could not be told, and what was noticed."""

    functions: Mapping[Slot, Interface]
    refusals: tuple[FabricPlanError, ...]
    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an interface says that it sits; None where it does not say."""

    port: str | None
    plane: int | None


def identify(node: FoundNode) -> Identified:
    """Assign the interfaces of `node` to the slots of its hardware. Interfaces that are no fabric function
    are left out.
    """
    real = [interface for interface in node.interfaces if _may_be_a_function(interface)]
    found: dict[Slot, list[tuple[int, Interface]]] = {}
    for interface in real:
        for strength, witness in enumerate(_WITNESSES):
            slot = _slot(witness(interface, node.hardware, real))
            if slot is not None and slot[1] <= _planes(node.hardware, slot[0]):
                found.setdefault(slot, []).append((strength, interface))
                break
    functions: dict[Slot, Interface] = {}
    refusals = []
    notices: list[Notice] = []
    for slot, claimants in sorted(found.items()):
        strongest = min(strength for strength, _ in claimants)
        best = [interface for strength, interface in claimants if strength == strongest]
        if len(best) > 1:
            refusals.append(_two_for_one(node.name, slot, best))
        functions[slot] = best[0]
        notices += _contradictions(node, slot, best[0])
    return Identified(functions, tuple(refusals), tuple(notices))


def _two_for_one(node: str, slot: Slot, best: Sequence[Interface]) -> FabricPlanError:
    names = " and ".join(interface.netdev for interface in best)
    return FabricPlanError(
        f"{names} both look like {slot[0]} of plane {slot[1]}, and nothing tells them apart",
        where=node,
        hint="add `ip -j -d addr show > ip-addr.json`: it shows the PCI address of each",
        id="function-ambiguous",
    )


def _may_be_a_function(interface: Interface) -> bool:
    return interface.kind is None and interface.netdev != "lo"


def _planes(hardware: Hardware, port: str) -> int:
    return len(hardware.ports[port].functions)


def _slot(place: _Place | None) -> Slot | None:
    if place is None or place.port is None or place.plane is None:
        return None
    return place.port, place.plane


def _role_slots(hardware: Hardware) -> Iterator[tuple[Slot, str, str, str]]:
    for port, role in hardware.ports.items():
        for plane, function in enumerate(role.functions, start=1):
            yield (port, plane), function.pci, function.netdev, function.rdma


def _plane_of_domain(hardware: Hardware, domain: int) -> int | None:
    """Return the plane of a PCI domain as the hardware's role has it."""
    return next((slot[1] for slot, pci, _, _ in _role_slots(hardware) if int(pci[:4], 16) == domain), None)


def _port_of_function(hardware: Hardware, function: int) -> str | None:
    """Return the port of a PCI function number as the hardware's role has it."""
    return next((slot[0] for slot, pci, _, _ in _role_slots(hardware) if int(pci[-1]) == function), None)


def _port_of_phys(hardware: Hardware, phys_port_name: str | None) -> str | None:
    return next(
        (port for port, role in hardware.ports.items() if role.phys_port_name == phys_port_name), None
    )


def _by_record(interface: Interface, hardware: Hardware, real: Sequence[Interface]) -> _Place | None:
    return (
        _Place(*interface.slot)
        if interface.slot is not None and interface.slot[0] in hardware.ports
        else None
    )


def _by_pci(interface: Interface, hardware: Hardware, real: Sequence[Interface]) -> _Place | None:
    return next((_Place(*slot) for slot, pci, _, _ in _role_slots(hardware) if pci == interface.pci), None)


def _by_other_pci(interface: Interface, hardware: Hardware, real: Sequence[Interface]) -> _Place | None:
    """Another bus number: a board of another make, or a virtual function. Only an RDMA device or a port's
    name makes it a function at all.
    """
    if interface.pci is None or not PCI.fullmatch(interface.pci):
        return None
    if interface.rdma is None and _port_of_phys(hardware, interface.phys_port_name) is None:
        return None
    domain, function = int(interface.pci[:4], 16), int(interface.pci[-1])
    port = _port_of_phys(hardware, interface.phys_port_name) or _port_of_function(hardware, function)
    return _Place(port, _plane_of_domain(hardware, domain) or _domain_rank(interface, hardware, real))


def _domain_rank(interface: Interface, hardware: Hardware, real: Sequence[Interface]) -> int | None:
    """Number the PCI domains of the functions that share the port's name, lowest first."""
    if interface.pci is None:
        return None
    domains = sorted(
        {
            int(other.pci[:4], 16)
            for other in real
            if other.pci
            and (other.rdma is not None or _port_of_phys(hardware, other.phys_port_name) is not None)
        }
    )
    domain = int(interface.pci[:4], 16)
    return domains.index(domain) + 1 if domain in domains else None


def _by_phys_port(interface: Interface, hardware: Hardware, real: Sequence[Interface]) -> _Place | None:
    """The port is certain, the plane comes from whatever name still carries the PCI domain."""
    port = _port_of_phys(hardware, interface.phys_port_name)
    if interface.pci is not None or port is None:
        return None
    for witness in (_by_rdma, _by_mac, _by_name):
        place = witness(interface, hardware, real)
        if place is not None and place.plane is not None:
            return _Place(port, place.plane)
    return None


def _by_rdma(interface: Interface, hardware: Hardware, real: Sequence[Interface]) -> _Place | None:
    if interface.rdma is None or interface.pci is not None:
        return None
    for slot, _, _, rdma in _role_slots(hardware):
        if rdma == interface.rdma:
            return _Place(*slot)
    return _from_path(_ROCE.fullmatch(interface.rdma), hardware)


def _by_mac(interface: Interface, hardware: Hardware, real: Sequence[Interface]) -> _Place | None:
    """Read the MAC pattern: counted from the management port's where that is known, else where all four
    functions fit it.
    """
    if interface.mac is None or interface.pci is not None:
        return None
    macs = {int(other.mac.replace(":", ""), 16): other.netdev for other in real if other.mac is not None}
    own = int(interface.mac.replace(":", ""), 16)
    for base in (own - offset for offset in _MAC_OFFSETS.values()):
        if macs.get(base) == hardware.mgmt_netdev or all(
            base + offset in macs for offset in _MAC_OFFSETS.values()
        ):
            slot = next(slot for slot, offset in _MAC_OFFSETS.items() if base + offset == own)
            return _Place(*slot) if slot[0] in hardware.ports else None
    return None


def _by_name(interface: Interface, hardware: Hardware, real: Sequence[Interface]) -> _Place | None:
    if interface.pci is not None:
        return None
    names = (interface.netdev, *interface.names)
    for slot, _, netdev, _ in _role_slots(hardware):
        if netdev in names:
            return _Place(*slot)
    for name in names:
        match = _PREDICTABLE.fullmatch(name)
        # Without a port or function in its name (enP7s7, wlP9s9) it is no port of a two-port card.
        if match is not None and match["function"] is not None:
            return _from_path(match, hardware)
    return None


def _from_path(match: re.Match[str] | None, hardware: Hardware) -> _Place | None:
    if match is None:
        return None
    return _Place(
        _port_of_function(hardware, int(match["function"] or 0)),
        _plane_of_domain(hardware, int(match["domain"] or 0)),
    )


_WITNESSES: tuple[Callable[[Interface, Hardware, Sequence[Interface]], _Place | None], ...] = (
    _by_record,
    _by_pci,
    _by_other_pci,
    _by_phys_port,
    _by_rdma,
    _by_mac,
    _by_name,
)


def _contradictions(node: FoundNode, slot: Slot, interface: Interface) -> Iterator[Notice]:
    """Say where the name or the port's own name speaks against what decided."""
    said = _port_of_phys(node.hardware, interface.phys_port_name)
    if said is not None and said != slot[0]:
        yield Notice(
            "port-name-contradicts",
            f"{node.name} {interface.netdev}: its PCI address says {slot[0]}, its phys_port_name "
            f"{interface.phys_port_name} says {said}",
            hint="the PCI address was followed; look which cage lights up",
        )
    for other, _, netdev, _ in _role_slots(node.hardware):
        if netdev == interface.netdev and other != slot:
            yield Notice(
                "name-contradicts",
                f"{node.name} {interface.netdev}: the name is usual for {other[0]} of plane "
                f"{other[1]}, here it is {slot[0]} of plane {slot[1]}",
                hint="the PCI address was followed, not the name"
                if interface.pci
                else "the MAC pattern was followed, not the name",
            )
