"""Facts documents for tests, made of the folders that `adopt` reads: what a node would have answered."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabric_plan.node.collect import collect
from fabric_plan.node.document import Facts, File, Ssh
from fabric_plan.node.parsers import ip_json
from fabric_plan.node.reading import Reading
from fabric_plan.node.records import Address, Interfaces, Link, LldpNeighbour
from fabric_plan.node.request import Request
from fabric_plan.node.tools import Tools
from fabric_plan.node.tree import Tree
from fabric_plan.resources import hardware_roles


def empty(folder: Path) -> Facts:
    """Return the facts of a machine without files and without tools."""
    folder.mkdir(parents=True, exist_ok=True)
    return collect(Request(), Tree(str(folder)), Tools(1.0, own_path=True))


def of_case(node: Path, blank: Facts) -> Facts:
    """Return the facts of a node of a case: its dump, or, where it has none, interfaces as its netplan
    names them.
    """
    dump = node / "ip-addr.json"
    interfaces = ip_json.interfaces(dump.read_text()) if dump.exists() else None
    files = {f"/etc/netplan/{path.name}": _file(path.read_bytes()) for path in node.glob("etc/netplan/*")}
    host = replace(blank.host, hostname=node.name)
    facts = replace(blank, host=host, netplan=Reading(files))
    return replace(facts, interfaces=interfaces) if interfaces is not None else facts


def _file(content: bytes) -> File:
    nul = b"\0" in content
    return File(
        kind="file",
        mode="0600",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        text=None if nul else content.decode(),
        nul=nul,
    )


def spark(name: str, number: int, blank: Facts, addresses: dict[str, str] | None = None) -> Facts:
    """Return the facts of an invented Spark: the usual names, the usual MAC pattern, addresses by device."""
    role = hardware_roles()["dgx-spark"]
    offsets = {("f0", 1): 1, ("f1", 1): 2, ("f0", 2): 5, ("f1", 2): 6}
    links = [_link("enP7s7", f"a6:3c:99:00:{number:02x}:00", None, "0007:01:00.0", 1500)]
    for port, known in role.ports.items():
        for plane, function in enumerate(known.functions, start=1):
            mac = f"a6:3c:99:00:{number:02x}:{offsets[port, plane]:02x}"
            links.append(_link(function.netdev, mac, known.phys_port_name, function.pci, 9000))
    found = [_address(dev, text) for dev, text in (addresses or {}).items()]
    found.append(_address("enP7s7", f"192.0.2.{number}/24"))
    return replace(
        blank,
        host=replace(blank.host, hostname=name),
        interfaces=Reading(Interfaces(tuple(links), tuple(found))),
        ssh=Ssh("192.0.2.254", f"192.0.2.{number}", "enP7s7"),
        netplan=Reading({}),
        lldp=Reading(()),
    )


def _link(name: str, mac: str, phys: str | None, pci: str, mtu: int) -> Link:
    return Link(name, mac=mac, mtu=mtu, pci=pci, phys_port_name=phys, flags=("UP", "LOWER_UP"))


def _address(dev: str, text: str) -> Address:
    address, prefix = text.split("/")
    return Address(dev, "inet", address, int(prefix), "global")


def hearing(facts: Facts, *heard: tuple[str, str | None, str]) -> Facts:
    """Add LLDP neighbours: device, system, port."""
    rows = tuple(LldpNeighbour(dev, system, None, port, "ifname", None) for dev, system, port in heard)
    return replace(facts, lldp=Reading(rows))


def document(facts: Facts) -> dict[str, Any]:
    """Return the facts as the node program prints them."""
    value: dict[str, Any] = json.loads(json.dumps(facts, default=vars))
    return value
