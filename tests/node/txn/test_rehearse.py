"""What netplan would make of new definitions, tried in a copy: the stand-in, and the real netplan."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fabric_plan.node.tools import Tools
from fabric_plan.node.transaction.node import Node
from fabric_plan.node.transaction.rehearse import rehearse
from fabric_plan.node.tree import Tree
from tests.node.txn.faults import Whole
from tests.node.txn.support import F0, F1, Driver, document, tree
from tests.node.txn.world import MANAGEMENT, World

PATH = "/etc/netplan/40-sparkring-plane1.yaml"
OURS = document(PATH, *tree("v1")[PATH])
GLOBAL = document(
    PATH,
    "0600",
    f"network:\n  renderer: NetworkManager\n  ethernets:\n    {F0}:\n      addresses: [10.1.0.10/24]\n",
)
LAN = f"network:\n  version: 2\n  ethernets:\n    {MANAGEMENT}:\n      dhcp4: true\n"


def test_files_of_ours_change_nobody_else(world: World, driver: Driver) -> None:
    world.write("/etc/netplan/01-lan.yaml", LAN, 0o600)
    before = Whole.of(world)
    reply = driver.call("rehearse", {"files": [OURS], "interfaces": [F0, F1]})
    assert (reply["changed"], reply["conflicts"], reply["error"]) == ([], [], None)
    assert Whole.of(world) == before
    assert [call for call in world.log if call[0] != "rdma"] == []
    assert not list((world.root / "run/fabric-plan").glob("rehearsal-*"))


def test_a_global_renderer_moves_the_management_port(world: World, driver: Driver) -> None:
    world.write("/etc/netplan/01-lan.yaml", LAN, 0o600)
    changed = driver.call("rehearse", {"files": [GLOBAL], "interfaces": [F0]})["changed"]
    assert {(item["interface"], item["backend"]) for item in changed} == {
        (MANAGEMENT, "networkd"),
        (MANAGEMENT, "NetworkManager"),
    }


def test_other_definitions_of_our_interfaces_are_named(world: World, driver: Driver) -> None:
    vendor = f"network:\n  version: 2\n  ethernets:\n    {F1}: {{dhcp4: true}} # and not {F0}\n"
    world.write("/etc/netplan/99-vendor.yaml", vendor, 0o600)
    reply = driver.call("rehearse", {"files": [OURS], "interfaces": [F0, F1]})
    assert reply["conflicts"] == [{"path": "/etc/netplan/99-vendor.yaml", "interfaces": [F1]}]


def test_a_definition_that_netplan_cannot_read(world: World, driver: Driver) -> None:
    world.write("/etc/netplan/90-NM-x.yaml", "\0\0\0\0", 0o600)
    reply = driver.call("rehearse", {"files": [OURS], "interfaces": [F0, F1]})
    assert reply["error"].startswith("as the node is now: ") and "90-NM-x.yaml" in reply["error"]


@pytest.mark.skipif(shutil.which("netplan") is None, reason="needs netplan")
@pytest.mark.parametrize("files", [[OURS], [GLOBAL]], ids=["ours", "global-renderer"])
def test_with_the_real_netplan(tmp_path: Path, files: list[dict[str, str]]) -> None:
    (tmp_path / "etc/netplan").mkdir(parents=True)
    (tmp_path / "etc/netplan/01-lan.yaml").write_text(LAN)
    (tmp_path / "etc/netplan/01-lan.yaml").chmod(0o600)
    reply = rehearse(Node(Tree(str(tmp_path)), Tools(10.0)), {"files": files, "interfaces": [F0, F1]})
    assert reply["error"] is None
    interfaces = {item["interface"] for item in reply["changed"]}
    assert interfaces == (set() if files == [OURS] else {MANAGEMENT, None})
    assert len(reply["notes"]) == 1
