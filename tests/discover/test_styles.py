"""One fabric, shown in every way that people can show it: each gives the same cables and addresses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_plan.discover.folder import read_folder
from fabric_plan.discover.infer import Outcome, infer
from fabric_plan.planner.model import NodePlan, Plan, PlannedFunction
from fabric_plan.resources import hardware_roles
from tests.strategies import ALTERNATING, Sketch

SHAPES = {
    "pair": Sketch(nodes=2, shape="line"),
    "double-pair": Sketch(nodes=2),
    "line": Sketch(nodes=4, shape="line", prefix=30),
    "triangle": Sketch(nodes=3, flips=(True, False, True)),
    "ring": Sketch(nodes=5, prefix=31),
    "alternating": Sketch(nodes=4, flips=ALTERNATING),
    "one-plane": Sketch(nodes=4, planes=("managed",)),
    "switched": Sketch(nodes=4, shape="switched"),
    "one-rail": Sketch(nodes=3, shape="switched", rails=1),
}
OFFSETS = {("f0", 1): 1, ("f1", 1): 2, ("f0", 2): 5, ("f1", 2): 6}
PHYS = {"f0": "p0", "f1": "p1"}


def mac(rank: int, offset: int) -> str:
    return f"a6:3c:77:00:{rank:02x}:{0x40 + offset:02x}"


def own_mac(planned: PlannedFunction, rank: int) -> str:
    return mac(rank, OFFSETS[planned.function.port, planned.function.plane])


def link(name: str, address: str, found: str | None, **more: Any) -> dict[str, Any]:
    rows = []
    if found is not None:
        ip, prefix = found.split("/")
        rows.append({"family": "inet", "local": ip, "prefixlen": int(prefix), "scope": "global"})
    return {
        "ifname": name,
        "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
        "mtu": 9000,
        "link_type": "ether",
        "address": address,
        "addr_info": rows,
        **more,
    }


def management(rank: int, *, details: bool) -> list[dict[str, Any]]:
    more = {"parentbus": "pci", "parentdev": "0007:01:00.0"} if details else {}
    lo = link("lo", "00:00:00:00:00:00", None, link_type="loopback")
    return [lo, link("enP7s7", mac(rank, 0), f"192.168.9.{10 + rank}/24", **more)]


def dump(node: Path, rank: int, rows: list[dict[str, Any]], *, details: bool) -> None:
    (node / "ip-addr.json").write_text(json.dumps([*management(rank, details=details), *rows]))


def text(planned: PlannedFunction) -> str | None:
    return str(planned.address) if planned.address else None


def with_details(node: Path, plan: NodePlan) -> None:
    rows = [
        link(
            f.function.netdev,
            own_mac(f, plan.rank),
            text(f),
            parentbus="pci",
            parentdev=f.function.pci,
            phys_port_name=PHYS[f.function.port],
        )
        for f in plan.functions
    ]
    dump(node, plan.rank, rows, details=True)


def without_details(node: Path, plan: NodePlan) -> None:
    rows = [link(f.function.netdev, own_mac(f, plan.rank), text(f)) for f in plan.functions]
    dump(node, plan.rank, rows, details=False)


def renamed(node: Path, plan: NodePlan) -> None:
    """Other names for everything, and not even in the usual order: the PCI address tells."""
    rows, links = [], []
    for i, f in enumerate(reversed(plan.functions)):
        rows.append(link(f"cx{i}", own_mac(f, plan.rank), text(f), parentbus="pci", parentdev=f.function.pci))
        links.append({"ifname": f"mlx5_{i}", "port": 1, "state": "ACTIVE", "netdev": f"cx{i}"})
    dump(node, plan.rank, rows, details=True)
    (node / "rdma-link.json").write_text(json.dumps(links))


def another_bus(node: Path, plan: NodePlan) -> None:
    """A board of another make: other bus numbers, so the port's own name and the PCI domain tell."""
    rows = [
        link(
            f.function.netdev.replace("p1s0", "p3s0"),
            own_mac(f, plan.rank),
            text(f),
            parentbus="pci",
            parentdev=f.function.pci.replace(":01:", ":03:"),
            phys_port_name=PHYS[f.function.port],
        )
        for f in plan.functions
    ]
    dump(node, plan.rank, rows, details=True)


def names_swapped(node: Path, plan: NodePlan) -> None:
    """Each twin goes by the other's usual name: who trusts names gets the planes crossed."""
    twin = {(f.function.port, f.function.plane): f.function.netdev for f in plan.functions}
    rows = [
        link(
            twin[f.function.port, 3 - f.function.plane],
            own_mac(f, plan.rank),
            text(f),
            parentbus="pci",
            parentdev=f.function.pci,
            phys_port_name=PHYS[f.function.port],
        )
        for f in plan.functions
    ]
    dump(node, plan.rank, rows, details=True)


def by_mac_pattern(node: Path, plan: NodePlan) -> None:
    """No details and no usual name: what is left is where a MAC stands above the management port's."""
    rows = [link(f"fab{i}", own_mac(f, plan.rank), text(f)) for i, f in enumerate(plan.functions)]
    dump(node, plan.rank, rows, details=False)


def names_swapped_without_details(node: Path, plan: NodePlan) -> None:
    """The same without PCI addresses: the MAC pattern speaks against the names, and comes first."""
    twin = {(f.function.port, f.function.plane): f.function.netdev for f in plan.functions}
    rows = [
        link(twin[f.function.port, 3 - f.function.plane], own_mac(f, plan.rank), text(f))
        for f in plan.functions
    ]
    dump(node, plan.rank, rows, details=False)


def by_alternative_name(node: Path, plan: NodePlan) -> None:
    rows = [
        link(f"fab{i}", f"02:00:00:00:{plan.rank:02x}:{i:02x}", text(f), altnames=[f.function.netdev])
        for i, f in enumerate(plan.functions)
    ]
    dump(node, plan.rank, rows, details=False)


def by_rdma_name(node: Path, plan: NodePlan) -> None:
    rows = [
        link(f"fab{i}", f"02:00:00:00:{plan.rank:02x}:{i:02x}", text(f)) for i, f in enumerate(plan.functions)
    ]
    links = [
        {"ifname": f.function.rdma, "port": 1, "netdev": f"fab{i}"} for i, f in enumerate(plan.functions)
    ]
    dump(node, plan.rank, rows, details=False)
    (node / "rdma-link.json").write_text(json.dumps(links))


def netplan(node: Path, entries: dict[str, Any]) -> None:
    place = node / "etc/netplan/40-cx7.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(yaml.safe_dump({"network": {"version": 2, "ethernets": entries}}))


def body(planned: PlannedFunction) -> dict[str, Any]:
    addresses = {"addresses": [str(planned.address)]} if planned.address else {}
    return {"dhcp4": False, "mtu": 9000, **addresses}


def netplan_by_name(node: Path, plan: NodePlan) -> None:
    netplan(node, {f.function.netdev: body(f) for f in plan.functions if f.address})


def netplan_by_mac(node: Path, plan: NodePlan) -> None:
    """Matched by MAC and given a name: only the name says what it is."""
    entries = {
        f"port{i}": {
            "match": {"macaddress": own_mac(f, plan.rank).upper()},
            "set-name": f.function.netdev,
            **body(f),
        }
        for i, f in enumerate(plan.functions)
    }
    netplan(node, entries)


def netplan_by_pattern(node: Path, plan: NodePlan) -> None:
    entries = {
        f"port{i}": {"match": {"name": f"{f.function.netdev[:-1]}*"}, **body(f)}
        for i, f in enumerate(plan.functions)
    }
    netplan(node, entries)


def both(node: Path, plan: NodePlan) -> None:
    with_details(node, plan)
    netplan_by_name(node, plan)


STYLES: dict[str, Callable[[Path, NodePlan], None]] = {
    style.__name__: style
    for style in (
        with_details,
        without_details,
        renamed,
        another_bus,
        names_swapped,
        by_mac_pattern,
        names_swapped_without_details,
        by_alternative_name,
        by_rdma_name,
        netplan_by_name,
        netplan_by_mac,
        netplan_by_pattern,
        both,
    )
}


def show(plan: Plan, style: str, folder: Path) -> Outcome:
    """Write `plan` in `style` and adopt it."""
    for node in plan.nodes:
        place = folder / "nodes" / node.name
        place.mkdir(parents=True)
        STYLES[style](place, node)
    declared = {"nodes": [{"name": n.name, "mgmt": f"192.168.9.{10 + n.rank}"} for n in plan.nodes]}
    (folder / "inventory.yaml").write_text(yaml.safe_dump(declared))
    return infer(read_folder(folder, hardware_roles()), hardware_roles())


def functions(plan: Plan) -> Iterator[tuple[str, str, int, str | None]]:
    for node in plan.nodes:
        for f in node.functions:
            yield node.name, f.function.port, f.function.plane, text(f)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("style", STYLES)
def test_every_style_gives_the_same_fabric(style: str, shape: str, tmp_path: Path) -> None:
    plan = SHAPES[shape].plan()
    got = show(plan, style, tmp_path)
    assert not got.refusals, [error.lines() for error in got.refusals]
    assert got.plan is not None
    assert sorted(functions(got.plan)) == sorted(functions(plan))
    assert got.plan.topology.kind == plan.topology.kind
    assert got.plan.nccl_prefix == plan.nccl_prefix
    assert got.plan.fabric.mtu == 9000


@pytest.mark.parametrize("style", ["renamed", "by_rdma_name", "by_mac_pattern", "another_bus"])
def test_other_names_stand_in_the_inventory(style: str, tmp_path: Path) -> None:
    plan = SHAPES["ring"].plan()
    got = show(plan, style, tmp_path).plan
    assert got is not None
    first = got.nodes[0].functions[0].function
    usual = plan.nodes[0].functions[0].function
    assert (first.port, first.plane) == (usual.port, usual.plane)
    assert (first.netdev, first.rdma, first.pci) != (usual.netdev, usual.rdma, usual.pci)


def test_the_offered_renumbering_says_the_prefix_that_works_then(tmp_path: Path) -> None:
    subnets = {
        i: [
            {"subnet": f"172.21.{i}.0/26", "addresses": [f"172.21.{i}.{plane}", f"172.21.{i}.{plane + 2}"]}
            for plane in (1, 2)
        ]
        for i in range(3)
    }
    (refusal,) = show(Sketch(nodes=3, pins=subnets).plan(), "with_details", tmp_path).refusals
    assert refusal.id == "no-separating-prefix"
    assert "NCCL_IB_SUBNET_PREFIX_LEN is then 26" in (refusal.hint or "")
    assert "n0 enP2p1s0f0np0 172.21.0.2/26 -> 172.21.100.1/26" in (refusal.hint or "")


def test_a_contradicting_name_is_said(tmp_path: Path) -> None:
    notices = show(SHAPES["pair"].plan(), "names_swapped", tmp_path).notices
    assert any(n.id == "name-contradicts" and "PCI address was followed" in (n.hint or "") for n in notices)
