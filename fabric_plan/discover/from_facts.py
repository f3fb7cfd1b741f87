"""A node's facts document as evidence, the same as from a folder of its files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from fabric_plan.discover.evidence import Evidence, FoundNode, Login
from fabric_plan.discover.gather import Sources, broken_dump, gather
from fabric_plan.discover.netplan_merge import NetplanFile
from fabric_plan.discover.rendered import RECORD_PATH, parse_record, settings_of
from fabric_plan.findings import Notice
from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.node.document import Facts, File
from fabric_plan.node.records import Interfaces, Link, LldpNeighbour, RdmaLink
from fabric_plan.roles import Hardware

ADDRESSES = "ip addr"


def found_node(
    name: str, hardware: Hardware, facts: Facts, login: Login, heard: tuple[LldpNeighbour, ...] = ()
) -> FoundNode:
    """Return the node `name` as its `facts` show it; `heard` is what a probe of its cables added."""
    interfaces = facts.interfaces
    broken = []
    if interfaces.value is None or interfaces.unread:
        reasons = [f"{piece.reason} ({piece.excerpt[:60]})" for piece in interfaces.unread]
        broken.append(broken_dump(name, ADDRESSES, reasons or ["nothing was said"]))
    return gather(
        Sources(
            name=name,
            hardware=hardware,
            login=login,
            dump=_with_pci(interfaces.value, facts) if interfaces.value is not None else Interfaces((), ()),
            dump_name=ADDRESSES,
            rdma=_rdma(facts),
            netplan=tuple(_netplan(facts.netplan.value or {})),
            lldp=(*(facts.lldp.value or ()), *heard),
            broken=tuple(broken),
        )
    )


def evidence(
    nodes: tuple[FoundNode, ...],
    facts: Mapping[str, Facts],
    *,
    ranked: bool,
    declared: TopologyKind | None,
    notices: tuple[Notice, ...] = (),
) -> Evidence:
    """Return the evidence of live or saved `facts`; the nodes' records give back what an earlier plan
    chose.
    """
    texts = [(name, _text(one, RECORD_PATH)) for name, one in facts.items()]
    records = [parse_record(text.encode(), f"{name}: {RECORD_PATH}") for name, text in texts if text]
    settings = settings_of(records if len(records) == len(facts) else [])
    return Evidence(nodes, ranked, declared, settings=settings, notices=notices)


def _text(facts: Facts, path: str) -> str | None:
    file = (facts.files.value or {}).get(path)
    return file.text if file is not None else None


def _rdma(facts: Facts) -> tuple[RdmaLink, ...]:
    """Return which RDMA device is which network device, from the rdma tool or from sysfs."""
    if facts.rdma.links.value:
        return facts.rdma.links.value
    ports = facts.rdma.ports.value or ()
    return tuple(RdmaLink(port.device, 1, port.state, port.physical_state, port.netdev) for port in ports)


def _with_pci(interfaces: Interfaces, facts: Facts) -> Interfaces:
    """Add the PCI addresses that sysfs knows where an older ``ip`` does not print them."""
    known = {port.netdev: port.pci for port in facts.rdma.ports.value or () if port.netdev and port.pci}
    links = tuple(_link(link, known.get(link.name)) for link in interfaces.links)
    return Interfaces(links, interfaces.addresses)


def _link(link: Link, pci: str | None) -> Link:
    if link.pci is not None or pci is None:
        return link
    return Link(**{**vars(link), "pci": pci})


def _netplan(files: Mapping[str, File]) -> Iterator[NetplanFile]:
    for path, file in files.items():
        if file.text is not None:
            yield NetplanFile(path, file.text.encode())
        elif file.nul and file.size is not None and _all_nul(file):
            yield NetplanFile(path, b"\0" * file.size)
        elif file.kind in ("file", "unreadable"):
            reason = file.error or ("holds a NUL byte" if file.nul else "is no text")
            yield NetplanFile(path, b"", f"cannot be read ({reason})" if file.error else reason)


def _all_nul(file: File) -> bool:
    """The bytes themselves did not travel, their digest did."""
    size = file.size or 0
    return size <= 1 << 20 and hashlib.sha256(b"\0" * size).hexdigest() == file.sha256
