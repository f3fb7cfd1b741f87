"""``verify`` on the lab's nodes: green when all is as planned, and each fault the root on its node and
interface. What *in hardware* means here is the lab's word.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabric_plan.cli.common import read_plan
from fabric_plan.planner.model import Plan
from lab.driver import Lab
from tests.lab.conftest import INVENTORY, ROOT

LIMIT_S = 900


@dataclass(frozen=True)
class Eye:
    """What runs ``verify`` against the lab."""

    lab: Lab
    inventory: Path

    @property
    def plan(self) -> Plan:
        """The plan that the nodes carry."""
        return read_plan(str(self.inventory))

    def look(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code and the document."""
        argv = [sys.executable, "-m", "fabric_plan", "verify", "-i", str(self.inventory), "--json"]
        argv += ["--ssh-config", str(self.lab.run_dir / "ssh_config"), *words]
        result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert result.stdout, result.stderr
        return result.returncode, json.loads(result.stdout)

    def roots(self, *words: str) -> set[tuple[str, str, str | None]]:
        """Return the root findings by id, node and interface."""
        _, document = self.look(*words)
        return {(f["id"], f["node"], f["interface"]) for f in document["findings"]}


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """The same inventory for nodes without a speed, that let root in."""
    text = INVENTORY.read_text().replace("fabric: ring4\n", "fabric: ring4\nhardware: lab\n")
    place = tmp_path / "lab.yaml"
    place.write_text(text.replace("user: nvidia", "user: root"))
    return place


@pytest.fixture
def eye(planned: Lab, inventory: Path) -> Eye:
    return Eye(planned, inventory)


@pytest.fixture
def touching(meshed: Lab, inventory: Path) -> Eye:
    return Eye(meshed, inventory)


def test_the_probe_is_green_after_the_boot(eye: Eye) -> None:
    status, document = eye.look("--since-boot", "--probe")
    said = [f"{f['node']} {f['interface']} {f['id']}: {f['read']}" for f in document["findings"]]
    assert status == 0, said


@dataclass(frozen=True)
class Fault:
    """Commands that break something on spark1 and that mend it, and what has to be said."""

    name: str
    inject: str
    mend: str
    root: str
    interface: str | None


def faults(plan: Plan) -> Iterator[Fault]:
    """Yield faults that a command can make and unmake."""
    node = plan.node("spark1")
    function = node.at("f0", 1)
    dev, pci, rdma = function.function.netdev, function.function.pci, function.function.rdma
    rule = node.rules[0]
    conf = f"net.ipv4.conf.{dev}"
    env = "/etc/fabric-plan/env/nccl.env"
    marker = f"fabric-plan-marker@{rdma}.service"
    param = f"devlink dev param set pci/{pci} name"
    mesh_up = "/usr/local/lib/fabric-plan/mesh-up.sh"
    yield Fault("mtu", f"ip link set {dev} mtu 1500", f"ip link set {dev} mtu 9000", "mtu", dev)
    yield Fault(
        "second address", f"ip addr add 10.99.0.1/24 dev {dev}", f"ip addr del 10.99.0.1/24 dev {dev}",
        "address-extra", dev,
    )  # fmt: skip
    yield Fault("sysctl", f"sysctl -qw {conf}.arp_ignore=0", f"sysctl -qw {conf}.arp_ignore=1", "sysctl", dev)
    yield Fault(
        "rule gone", f"tc filter del dev {rule.dev} ingress pref {rule.pref}", mesh_up, "rule", rule.dev
    )
    yield Fault("marker stopped", f"systemctl stop {marker}", f"systemctl start {marker}", "marker", dev)
    yield Fault("file edited", f"cp -a {env} /tmp/e; echo >> {env}", f"cp -a /tmp/e {env}", "file", None)
    yield Fault(
        "trust", f"dcb app add dev {rule.dev} dscp-prio 26:3", f"dcb app del dev {rule.dev} dscp-prio 26:3",
        "trust", rule.dev,
    )  # fmt: skip
    yield Fault(
        "steering",
        f"{param} flow_steering_mode value smfs cmode runtime",
        f"{param} flow_steering_mode value hmfs cmode runtime",
        "steering",
        dev,
    )
    yield Fault(
        "unit disabled", "systemctl disable -q fabric-plan-mesh", "systemctl enable -q fabric-plan-mesh",
        "unit-enabled", None,
    )  # fmt: skip


def test_each_fault_is_the_root_on_its_node_and_interface(touching: Eye) -> None:
    lab = touching.lab
    assert touching.roots("--probe") == set()
    for fault in faults(touching.plan):
        lab.ssh("spark1", fault.inject)
        found = touching.roots()
        lab.ssh("spark1", fault.mend)
        assert found == {(fault.root, "spark1", fault.interface)}, fault.name
    assert touching.roots() == set()


def test_an_overflowing_queue_and_a_black_hole_show_in_the_probe(touching: Eye) -> None:
    lab, plan = touching.lab, touching.plan
    rule = plan.node("spark1").rules[0]
    lab.fault("spark1", "overflow", rule.dev, "20")
    found = touching.roots("--probe")
    lab.fault("spark1", "overflow", rule.dev, "0")
    assert ("overflow", "spark1", rule.dev) in found and all(node == "spark1" for _, node, _ in found)
