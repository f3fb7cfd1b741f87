"""The figures of the four-ring example, and the ring guide's own template of plane 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fabric_plan import resources
from fabric_plan.inventory.load import load
from fabric_plan.planner.model import Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.tree import render

RING4 = (Path(__file__).parents[2] / "inventories" / "ring4.yaml").read_text()


def planned(text: str) -> Plan:
    loaded = load(text, "ring4.yaml", resources.hardware_roles())
    return plan_fabric(loaded.fabric, loaded.notices)


def with_mesh(paths: str) -> str:
    return RING4.replace("paths: opposite", f"paths: {paths}")


@pytest.mark.parametrize(
    ("paths", "a_node"),
    [("opposite", (2, 2, 2)), ("universal", (4, 4, 4)), ("balanced", (2, 2, 2)), ("off", (0, 0, 0))],
)
def test_counts(paths: str, a_node: tuple[int, int, int]) -> None:
    plan = planned(with_mesh(paths))
    for node in plan.nodes:
        assert (len(node.relay_routes), len(node.rules), len(node.markers)) == a_node
        assert [sum(route.plane == plane for route in node.kernel_routes) for plane in (1, 2)] == [2, 2]


@pytest.mark.parametrize(
    ("paths", "traversals"),
    [
        ("opposite", [(2, 2), (4, 0), (2, 2), (0, 4)]),
        ("universal", [(4, 4)] * 4),
        ("balanced", [(2, 2)] * 4),
    ],
)
def test_traversals_by_cabling_direction(paths: str, traversals: list[tuple[int, int]]) -> None:
    plan = planned(with_mesh(paths))
    found = {(load.cable.index, load.plane): load.paths for load in plan.load.cables}
    assert [(found[i, 1], found[i, 2]) for i in range(4)] == traversals


def test_load_and_cap() -> None:
    load_ = planned(RING4).load
    assert (load_.busiest, load_.bound, load_.cap) == (0.5, 786432, 262144)
    small = planned(RING4 + "hairpin: {queue_size: 1024}\n").load
    assert (small.bound, small.cap) == (98304, 81920)


def test_addresses_by_number() -> None:
    plan = planned(RING4)
    assert [
        str(plan.node("spark1").at(port, plane).address) for plane in (1, 2) for port in ("f0", "f1")
    ] == [
        "10.10.0.10/24",
        "10.10.6.11/24",
        "10.10.1.10/24",
        "10.10.7.11/24",
    ]


def test_a_rule_in_full() -> None:
    rule = planned(RING4).node("spark2").rules[0]
    assert " ".join(rule.tc_words()) == (
        "protocol 0x88b5 pref 881 handle 0x1 flower skip_sw src_mac 4c:bb:47:03:00:02 dst_mac "
        "4c:bb:47:02:00:01"
        " action pedit ex munge eth type set 0x0800 munge eth dst set 4c:bb:47:01:00:01 pipe"
        f" action mirred egress redirect dev enp1s0f1np1 cookie {rule.cookie}"
    )
    assert len(rule.cookie) == 32
    assert rule.cookie.startswith("fab91a40")


def test_cookies_tell_rules_apart() -> None:
    plan = planned(with_mesh("universal"))
    cookies = [rule.cookie for node in plan.nodes for rule in node.rules]
    assert len(set(cookies)) == len(cookies) == 16


@pytest.mark.parametrize(
    ("prefix", "ends"),
    [(24, ("10", "11")), (28, ("10", "11")), (29, ("1", "2")), (30, ("1", "2")), (31, ("0", "1"))],
)
def test_the_ends_of_a_cable(prefix: int, ends: tuple[str, str]) -> None:
    plan = planned(RING4 + f"addressing: {{pool: 10.20.0.0/16, prefix: {prefix}}}\n")
    first = (plan.node("spark1").at("f0", 1).address, plan.node("spark2").at("f1", 1).address)
    assert tuple(str(a) for a in first) == tuple(f"10.20.0.{end}/{prefix}" for end in ends)
    assert plan.nccl_prefix == prefix


def test_pinning_what_is_chosen_anyway_changes_nothing() -> None:
    pinned = RING4.replace(
        "[spark2.f0, spark3.f1]",
        "[spark2.f0, spark3.f1]\n    planes: [{subnet: 10.10.2.0/24}, {subnet: 10.10.3.0/24}]",
    )
    assert planned(pinned).subnets == planned(RING4).subnets


def test_a_pin_in_the_way_moves_only_what_it_displaces() -> None:
    pinned = RING4.replace(
        "[spark2.f0, spark3.f1]", "[spark2.f0, spark3.f1]\n    planes: [{subnet: 10.10.0.0/24}]"
    )
    subnets = {key: str(net) for key, net in planned(pinned).subnets.items()}
    assert subnets == {
        (0, 1): "10.10.2.0/24",
        (0, 2): "10.10.1.0/24",
        (1, 1): "10.10.0.0/24",
        (1, 2): "10.10.3.0/24",
        (2, 1): "10.10.4.0/24",
        (2, 2): "10.10.5.0/24",
        (3, 1): "10.10.6.0/24",
        (3, 2): "10.10.7.0/24",
    }


GUIDE_RANK0 = """
network:
  version: 2
  renderer: NetworkManager
  ethernets:
    enP2p1s0f0np0:
      addresses: [10.10.0.10/24]
      dhcp4: false
      dhcp6: false
      mtu: 9000
      optional: true
      routes:
      - to: 10.10.1.0/24
        via: 10.10.0.11
    enP2p1s0f1np1:
      addresses: [10.10.3.11/24]
      dhcp4: false
      dhcp6: false
      mtu: 9000
      optional: true
      routes:
      - to: 10.10.2.0/24
        via: 10.10.3.10
"""


def test_the_guides_template_of_plane_2_comes_out() -> None:
    """Equal in content; the renderer alone stands under each interface (docs/explanation.md says why)."""
    text = with_mesh("off")
    for i in range(4):
        end = f"[spark{i + 1}.f0, spark{(i + 1) % 4 + 1}.f1]"
        pins = f"planes: [{{subnet: 10.20.{i}.0/24}}, {{subnet: 10.10.{i}.0/24}}]"
        text = text.replace(f"ends: {end}", f"ends: {end}\n    {pins}")
    tree = render(planned(text), resources.layers(), resources.templates())
    file = next(f for f in tree.files["spark1"] if f.path == "/etc/netplan/41-sparkring-plane2.yaml")
    ours, guide = yaml.safe_load(file.content), yaml.safe_load(GUIDE_RANK0)
    renderer = guide["network"].pop("renderer")
    for interface in ours["network"]["ethernets"].values():
        assert interface.pop("renderer") == renderer
    assert ours == guide


def test_netplan_never_sets_a_renderer_for_others() -> None:
    tree = render(planned(RING4), resources.layers(), resources.templates())
    for files in tree.files.values():
        for file in files:
            if "/netplan/" in file.path:
                assert set(yaml.safe_load(file.content)["network"]) == {"version", "ethernets"}
                assert file.mode == "0600"


def test_one_plane_keeps_the_opposite_paths_of_that_plane() -> None:
    both, one = planned(RING4), planned(RING4 + "planes: {1: managed}\n")
    for node in both.nodes:
        assert one.node(node.name).rules == tuple(rule for rule in node.rules if rule.plane == 1)
    assert one.load.bound == 393216


def test_the_digest_covers_the_plan_and_no_other_file_carries_it() -> None:
    first = render(planned(RING4), resources.layers(), resources.templates())
    moved = render(
        planned(RING4.replace("4c:bb:47:03:00:02", "4c:bb:47:03:00:42")),
        resources.layers(),
        resources.templates(),
    )
    assert first.digest != moved.digest
    for node, files in first.files.items():
        for file, other in zip(files, moved.files[node], strict=True):
            if file.path != "/etc/fabric-plan/node.json":
                assert first.digest not in file.content
                if node == "spark4":  # no rule of spark4 rewrites to or matches that MAC
                    assert file.content == other.content
