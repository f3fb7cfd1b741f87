"""What is wrong on the nodes is refused with both ends named, or left out and said; nothing is guessed."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_plan.discover.evidence import Claim, Evidence, FoundNode, Interface, Login
from fabric_plan.discover.gather import Sources, gather
from fabric_plan.discover.infer import Outcome, infer
from fabric_plan.discover.netplan_merge import NetplanFile
from fabric_plan.node.records import Address, Interfaces, Link
from fabric_plan.resources import hardware_roles
from tests.strategies import Sketch

ROLE = hardware_roles()["dgx-spark"]
F0, F1, G0, G1 = "enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1"
DEVICES = {
    F0: ("0000:01:00.0", "p0"),
    F1: ("0000:01:00.1", "p1"),
    G0: ("0002:01:00.0", "p0"),
    G1: ("0002:01:00.1", "p1"),
}

Table = dict[str, dict[str, list[str]]]


def addresses(sketch: Sketch) -> Table:
    """Return the addresses of a sound fabric: by node and device."""
    return {
        node.name: {f.function.netdev: [str(f.address)] for f in node.functions if f.address}
        for node in sketch.plan().nodes
    }


def found(name: str, table: dict[str, list[str]], *, dead: tuple[str, ...] = (), **link: Any) -> FoundNode:
    links = []
    for dev, (pci, phys) in DEVICES.items():
        flags = ("UP",) if dev in dead else ("UP", "LOWER_UP")
        links.append(Link(dev, pci=pci, phys_port_name=phys, mtu=9000, flags=flags, **link))
    rows = [
        Address(dev, "inet", text.split("/")[0], int(text.split("/")[1]), "global")
        for dev, texts in table.items()
        for text in texts
    ]
    dump = Interfaces(tuple(links), tuple(rows))
    return gather(
        Sources(
            name,
            ROLE,
            Login(mgmt=f"192.168.9.{sum(name.encode()) % 250}"),
            dump=dump,
            dump_name="ip-addr.json",
        )
    )


def outcome(table: Table, *, dead: dict[str, tuple[str, ...]] | None = None) -> Outcome:
    nodes = [found(name, one, dead=(dead or {}).get(name, ())) for name, one in table.items()]
    nodes = [replace(node, login=Login(mgmt=f"192.168.9.{i}")) for i, node in enumerate(nodes)]
    return infer(Evidence(tuple(nodes), ranked=True), hardware_roles())


def messages(got: Outcome) -> str:
    return "\n".join(line for error in got.refusals for line in error.lines())


RING = Sketch(nodes=4)


def changed(node: str, dev: str, *texts: str, sketch: Sketch = RING) -> Table:
    table = addresses(sketch)
    table[node][dev] = list(texts)
    return table


def test_the_ring_itself_is_sound() -> None:
    got = outcome(addresses(RING))
    assert not got.refusals
    assert not got.notices


@pytest.mark.parametrize(
    ("node", "dev", "text", "id", "words"),
    [
        (
            "n0",
            F0,
            "10.10.0.10/25",
            "prefix-mismatch",
            ("n0 enp1s0f0np0 10.10.0.10/25", "n1 enp1s0f1np1 10.10.0.11/24"),
        ),
        (
            "n0",
            F0,
            "10.10.99.10/24",
            "address-without-partner",
            ("n0 enp1s0f0np0 10.10.99.10/24", "n1 f1", "n1 enp1s0f1np1"),
        ),
        ("n0", F0, "10.10.0.11/24", "duplicate-address", ("n0 enp1s0f0np0 and n1 enp1s0f1np1", "10.10.0.11")),
        ("n0", F0, "10.10.2.12/24", "one-subnet-for-all", ("n0 f0", "n1 f0", "n2 f1")),
        ("n0", F0, "169.254.7.7/16", "address-without-partner", ("n1 enp1s0f1np1 10.10.0.11/24", "n0 f0")),
    ],
)
def test_a_wrong_address_is_refused_with_both_ends(
    node: str, dev: str, text: str, id: str, words: tuple[str, ...]
) -> None:
    got = outcome(changed(node, dev, text))
    said = messages(got)
    assert id in [error.id for error in got.refusals], said
    for word in words:
        assert word in said
    assert got.text is None


def test_planes_that_lead_to_two_places_are_refused() -> None:
    table = addresses(RING)
    table["n0"][G0], table["n0"][G1] = table["n0"][G1], table["n0"][G0]
    got = outcome(table)
    assert "planes-disagree" in [error.id for error in got.refusals]
    assert "n0 f0 would be cabled to two places" in messages(got)


def test_twins_with_each_others_addresses_are_refused() -> None:
    table = addresses(RING)
    table["n0"][F0], table["n0"][G0] = table["n0"][G0], table["n0"][F0]
    got = outcome(table)
    assert "planes-crossed" in [error.id for error in got.refusals]
    assert "n0 enP2p1s0f0np0 (plane 2) and n1 enp1s0f1np1 (plane 1)" in messages(got)


def test_one_subnet_on_every_port_is_refused() -> None:
    table = {f"n{i}": {F0: [f"10.1.0.{10 + i}/24"], F1: [f"10.1.0.{20 + i}/24"]} for i in range(4)}
    got = outcome(table)
    assert "one-subnet-for-all" in [error.id for error in got.refusals]
    assert "n3 f1" in messages(got)


def test_link_local_addresses_are_no_cabling() -> None:
    table = {f"n{i}": {F0: [f"169.254.1.{i}/16"], F1: [f"169.254.2.{i}/16"]} for i in range(3)}
    assert "link-local addresses, 169.254.0.0/16, are one subnet on every port" in messages(outcome(table))


def test_a_link_local_cable_in_an_addressed_fabric_is_refused_and_not_left_out() -> None:
    table = addresses(RING)
    for node, dev, host in (("n0", F0, 1), ("n0", G0, 2), ("n1", F1, 3), ("n1", G1, 4)):
        table[node][dev] = [f"169.254.7.{host}/16"]
    got = outcome(table)
    assert [error.id for error in got.refusals] == ["link-local-only"]
    assert "n0 enp1s0f0np0 169.254.7.1/16" in messages(got)
    assert "n1 enP2p1s0f1np1 169.254.7.4/16" in messages(got)


def test_netplan_that_asks_for_link_local_addresses_is_named() -> None:
    body = {"link-local": ["ipv4"], "mtu": 9000}
    nodes = tuple(netplan_node(name, ("40-cx7.yaml", {F1: body})) for name in "ab")
    said = messages(infer(Evidence(nodes, ranked=True), hardware_roles()))
    assert "a enp1s0f1np1, b enp1s0f1np1: link-local addresses, 169.254.0.0/16" in said


def test_both_ports_of_a_node_in_one_subnet_are_refused() -> None:
    table = {"a": {F0: ["10.1.0.1/24"], F1: ["10.1.0.2/24"], G0: ["10.2.0.1/24"]}, "b": {G0: ["10.2.0.2/24"]}}
    got = outcome(table)
    assert "self-cable" in [error.id for error in got.refusals]


def test_a_second_address_without_a_partner_is_left_out_and_said() -> None:
    got = outcome(changed("n0", F0, "192.168.140.7/24", "10.10.0.10/24"))
    assert not got.refusals, messages(got)
    (notice,) = got.notices
    assert notice.id == "extra-address"
    assert "n0 enp1s0f0np0 192.168.140.7/24" in notice.text
    assert got.text is not None and "192.168.140" not in got.text


def test_an_address_on_a_dead_port_without_a_partner_is_left_out_and_said() -> None:
    line = Sketch(nodes=3, shape="line")
    table = addresses(line)
    table["n2"][F0] = ["10.77.0.1/24"]
    got = outcome(table, dead={"n2": (F0, G0)})
    assert not got.refusals, messages(got)
    assert "idle-address" in [notice.id for notice in got.notices]


def test_a_dead_cable_is_planned_and_said() -> None:
    got = outcome(addresses(RING), dead={"n0": (F0, G0), "n1": (F1, G1)})
    assert not got.refusals
    (notice,) = got.notices
    assert notice.id == "no-link"
    assert "n0 f0 and n1 f1" in notice.text


def test_a_plane_that_one_cable_lacks_is_said() -> None:
    table = addresses(RING)
    del table["n0"][G0], table["n1"][G1]
    got = outcome(table)
    assert not got.refusals, messages(got)
    (notice,) = got.notices
    assert notice.id == "plane-incomplete"
    assert "n0 f0 - n1 f1" in notice.text


def test_only_second_functions_become_plane_1() -> None:
    table = {"a": {G0: ["10.2.0.1/24"]}, "b": {G1: ["10.2.0.2/24"]}}
    got = outcome(table)
    assert not got.refusals, messages(got)
    assert got.plan is not None
    function = got.plan.nodes[0].at("f0", 1).function
    assert (function.netdev, function.rdma, function.pci) == (G0, "roceP2p1s0f0", "0002:01:00.0")


def test_a_member_of_a_bond_is_refused() -> None:
    nodes = (found("a", {F0: ["10.1.0.1/24"]}, master="bond0"), found("b", {F0: ["10.1.0.2/24"]}))
    got = infer(Evidence(nodes, ranked=True), hardware_roles())
    assert "function-in-bond" in [error.id for error in got.refusals]
    assert "member of bond0" in messages(got)


def test_the_management_address_in_a_fabric_subnet_is_refused() -> None:
    nodes = tuple(
        replace(found(n, {F0: [f"10.1.0.{i}/24"]}), login=Login(mgmt=f"10.1.0.{i + 100}"))
        for i, n in enumerate("ab", 1)
    )
    got = infer(Evidence(nodes, ranked=True), hardware_roles())
    assert {error.id for error in got.refusals} == {"management-in-fabric"}
    assert got.refusals[0].where is None, "a line of a file that nobody has would help nobody"


def netplan_node(name: str, *files: tuple[str, dict[str, Any]]) -> FoundNode:
    written = [
        NetplanFile(
            f"/etc/netplan/{file}", yaml.safe_dump({"network": {"version": 2, "ethernets": entries}}).encode()
        )
        for file, entries in files
    ]
    return gather(Sources(name, ROLE, netplan=tuple(written)))


MIRROR = "90-NM-c81f3a60-92de-45b7-a1c4-0f6be2d95713"


@pytest.mark.parametrize(
    ("mirrored", "refused"),
    [("10.1.0.1/24", False), ("10.9.9.9/24", True)],
    ids=["the same address", "another address"],
)
def test_a_mirror_of_a_fabric_port_is_refused_only_where_it_contradicts(mirrored: str, refused: bool) -> None:
    mirror = {f"NM-{MIRROR[6:]}": {"match": {"name": F0}, "addresses": [mirrored]}}
    nodes = (
        netplan_node("a", ("40-cx7.yaml", {F0: {"addresses": ["10.1.0.1/24"]}}), (f"{MIRROR}.yaml", mirror)),
        netplan_node("b", ("40-cx7.yaml", {F0: {"addresses": ["10.1.0.2/24"]}})),
    )
    got = infer(Evidence(nodes, ranked=True), hardware_roles())
    assert [error.id for error in got.refusals] == (["second-definition"] if refused else [])
    assert [str(segment) for segment in got.segments] == ["a f0 - b f0"], "what a person wrote is followed"


def test_a_mirror_that_asks_for_dhcp_is_said() -> None:
    mirror = {
        "NM-1": {"match": {"name": F0}, "dhcp4": True},
        "NM-2": {"match": {"name": "enP7s7"}, "dhcp4": True},
    }
    nodes = (
        netplan_node("a", ("40-cx7.yaml", {F0: {"addresses": ["10.1.0.1/24"]}}), (f"{MIRROR}.yaml", mirror)),
        netplan_node("b", ("40-cx7.yaml", {F0: {"addresses": ["10.1.0.2/24"]}})),
    )
    got = infer(Evidence(nodes, ranked=True), hardware_roles())
    assert not got.refusals, messages(got)
    (notice,) = [notice for notice in got.notices if notice.id == "dhcp-beside-static"]
    assert MIRROR in notice.text and F0 in notice.text


def test_a_fabric_subnet_that_docker_has_too_is_said() -> None:
    table = {"a": {F0: ["172.17.0.1/24"]}, "b": {F0: ["172.17.0.2/24"]}}
    nodes = [found(name, one) for name, one in table.items()]
    docker = Interface("docker0", kind="bridge", claims=(Claim(IPv4Interface("172.17.0.1/16"), "x"),))
    nodes[0] = replace(nodes[0], interfaces=(*nodes[0].interfaces, docker))
    got = infer(Evidence(tuple(nodes), ranked=True), hardware_roles())
    assert [n.text for n in got.notices if n.id == "subnet-elsewhere"] == [
        "a docker0 172.17.0.1/16 overlaps the fabric's 172.17.0.0/24"
    ]


def test_a_virtual_function_is_not_taken_for_the_port() -> None:
    """It sits at another device number of the same bus, and has an RDMA device of its own."""
    nodes = [found(name, {F0: [f"10.1.0.{i}/24"]}) for i, name in enumerate("ab", start=1)]
    virtual = Interface("enp1s1v0", pci="0000:01:01.0", rdma="rocep1s1")
    nodes[0] = replace(nodes[0], interfaces=(virtual, *nodes[0].interfaces))
    got = infer(Evidence(tuple(nodes), ranked=True), hardware_roles())
    assert not got.refusals, messages(got)
    assert got.text is not None and "enp1s1v0" not in got.text


def test_mirrors_alone_are_a_configuration_like_any_other() -> None:
    """Who configures with nmcli has nothing but mirrors."""
    nodes = tuple(
        netplan_node(
            name,
            (
                f"{MIRROR}.yaml",
                {"NM-1": {"match": {"name": F0}, "addresses": [f"10.1.0.{i}/24"], "mtu": 9000}},
            ),
        )
        for i, name in enumerate("ab", start=1)
    )
    got = infer(Evidence(nodes, ranked=True), hardware_roles())
    assert not got.refusals, messages(got)
    assert got.plan is not None and got.plan.fabric.mtu == 9000


def test_addresses_of_one_interface_add_up_over_files_and_the_stale_one_is_said() -> None:
    nodes = (
        netplan_node(
            "a",
            ("40-cx7.yaml", {F0: {"addresses": ["10.1.0.1/24"]}}),
            ("99-old.yaml", {F0: {"addresses": ["10.7.0.1/24"]}}),
        ),
        netplan_node("b", ("40-cx7.yaml", {F0: {"addresses": ["10.1.0.2/24"]}})),
    )
    got = infer(Evidence(nodes, ranked=True), hardware_roles())
    assert not got.refusals, messages(got)
    text = next(notice.text for notice in got.notices if notice.id == "extra-address")
    assert "10.7.0.1/24" in text
    assert "/etc/netplan/99-old.yaml" in text


def test_a_table_completes_what_no_address_shows(tmp_path: Path) -> None:
    from fabric_plan.topology.fabric import End

    table = {"a": {F0: ["10.1.0.1/24"]}, "b": {F0: ["10.1.0.2/24"]}}
    nodes = tuple(found(name, one) for name, one in table.items())
    stated = ((End("a", "f0"), End("b", "f0")), (End("a", "f1"), End("b", "f1")))
    got = infer(Evidence(nodes, ranked=True, table=stated), hardware_roles())
    assert "cable-from-table" in [notice.id for notice in got.notices], messages(got)
    assert [str(segment) for segment in got.segments] == ["a f0 - b f0", "a f1 - b f1"]


def test_a_table_with_the_wrong_cable_is_refused_with_the_move() -> None:
    from fabric_plan.topology.fabric import End

    nodes = (found("a", {F0: ["10.1.0.1/24"]}), found("b", {F0: ["10.1.0.2/24"]}))
    got = infer(Evidence(nodes, ranked=True, table=((End("a", "f0"), End("b", "f1")),)), hardware_roles())
    assert [error.id for error in got.refusals] == ["table-cables-missing"]
    assert "move the end plugged into b f0 to b f1" in messages(got)
