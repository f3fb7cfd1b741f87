"""What a lab is made of, before anything is booted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fabric_plan.cli.common import read_inventory
from lab.errors import LabError
from lab.hardware import TABLE_BYTES, table
from lab.machine import gateways
from lab.spec import End, LabSpec, Renderer, Style, from_fabric, ring

INVENTORIES = Path(__file__).parents[2] / "inventories"


def spec_of(name: str) -> LabSpec:
    return from_fabric(read_inventory(str(INVENTORIES / name)).fabric)


@pytest.mark.parametrize("style", list(Style))
@pytest.mark.parametrize("n", [4, 6, 8])
def test_a_ring_uses_every_port_once(n: int, style: Style) -> None:
    spec = ring(n, style)
    ends = Counter(str(end) for cable in spec.cables for end in (cable.a, cable.b))
    assert set(ends.values()) == {1} and len(ends) == 2 * n
    at, seen = End("spark1", "f0"), []
    while at.node not in seen:
        seen.append(at.node)
        far = spec.far_end(at)
        assert far is not None
        at = End(far.node, "f1" if far.port == "f0" else "f0")
    assert len(seen) == n


def test_a_pair_has_one_cable_and_an_odd_ring_cannot_alternate() -> None:
    assert len(ring(2).cables) == 1
    with pytest.raises(LabError, match="cannot alternate"):
        ring(3, Style.ALTERNATING)
    with pytest.raises(LabError, match="2 to 8"):
        ring(9)


def test_every_mac_is_its_own() -> None:
    spec = ring(8)
    macs = [mac for node in spec.nodes for mac in (node.mgmt.mac, *(f.mac for f in node.functions))]
    assert len(macs) == len(set(macs)) == 40


def test_both_renderers_and_docker_are_there() -> None:
    nodes = ring(4).nodes
    assert {node.mgmt.renderer for node in nodes} == set(Renderer)
    assert any(node.docker for node in nodes) and not all(node.docker for node in nodes)


def test_a_spec_survives_its_document() -> None:
    spec = spec_of("ring4.yaml")
    assert LabSpec.from_json(spec.to_json()) == spec
    assert LabSpec.from_json(spec.to_json()).digest() == spec.digest()


@pytest.mark.parametrize(
    "name", ["ring4.yaml", "ring4-alternating.yaml", "pair.yaml", "triangle.yaml", "line4.yaml"]
)
def test_an_inventory_keeps_its_names_and_cables(name: str) -> None:
    fabric = read_inventory(str(INVENTORIES / name)).fabric
    spec = from_fabric(fabric)
    assert [node.name for node in spec.nodes] == [node.name for node in fabric.nodes]
    for node in fabric.nodes:
        assert spec.node(node.name).mgmt.netdev == node.mgmt_netdev
        for function in node.functions:
            own = spec.node(node.name).function(function.port, function.plane)
            assert (own.netdev, own.rdma, own.pci) == (function.netdev, function.rdma, function.pci)
            assert function.mac in (None, own.mac)
    assert [{str(c.a), str(c.b)} for c in spec.cables] == [
        {f"{end.node}.{end.port}" for end in cable.ends} for cable in fabric.cables
    ]


def test_a_switch_is_refused() -> None:
    with pytest.raises(LabError, match="no switch"):
        spec_of("switched4.yaml")


def test_the_forwarding_addresses_are_nobodys(tmp_path: Path) -> None:
    spec = spec_of("ring4.yaml")
    found = gateways(spec)
    assert len(set(found)) == 4
    assert not set(found) & {node.mgmt.ip for node in spec.nodes}


def test_the_hardware_table_is_one_disk_block(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"secret\n")
    node = spec_of("ring4.yaml").nodes[1]
    disk = table(node, host_key=key, authorized="ssh-ed25519 AAAA x\n", faults={"0000:01:00.0/overflow": "3"})
    assert len(disk) == TABLE_BYTES
    lines = disk.rstrip(b"\0").decode().splitlines()
    assert lines[0] == f"node {node.name}"
    assert "fault 0000:01:00.0/overflow 3" in lines
    for function in node.functions:
        row = f"function {function.pci} {function.port} {function.netdev} {function.rdma} {function.mac}"
        assert row in lines
