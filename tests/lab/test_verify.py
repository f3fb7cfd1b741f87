"""``verify`` on the lab's nodes: green when all is as planned, and each fault the root on its node and
interface. What *in hardware* means here is the lab's word.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabric_plan.cli.common import read_plan
from fabric_plan.planner.model import Plan
from lab.driver import Lab
from tests.lab.conftest import INVENTORY, ROOT
from tests.lab.verify_faults import Fault, faults

LIMIT_S = 900
DOCUMENT = ROOT / "docs" / "verify.md"
FAULTS = faults(read_plan(str(INVENTORY)))
SEEN = pytest.StashKey[list[str]]()


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


def row(fault: Fault, findings: list[dict[str, Any]]) -> str:
    """A line of the table in docs/verify.md: the root finding and where it is, and what stands under it."""
    (root,) = findings
    under = sorted(consequence["id"] for consequence in root["consequences"])
    counts = ", ".join(
        f"{name} x{under.count(name)}" if under.count(name) > 1 else name for name in dict.fromkeys(under)
    )
    place = " ".join(word for word in (root["node"], root["interface"]) if word)
    return f"| {fault.name} | {root['id']} | {place} | {counts or 'none'} |"


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_each_fault_is_the_root_on_its_node_and_interface(
    touching: Eye, fault: Fault, request: pytest.FixtureRequest
) -> None:
    fault.act(touching.lab)
    _, document = touching.look(*fault.words)
    found = document["findings"]
    said = [f"{f['id']} {f['node']} {f['interface']}: {f['read']}" for f in found]
    assert [(f["id"], f["node"], f["interface"]) for f in found] == [
        (fault.root, fault.node, fault.interface)
    ], said
    request.session.stash.setdefault(SEEN, []).append(row(fault, found))
    print(request.session.stash[SEEN][-1])


def test_the_table_in_the_docs_is_what_was_seen(request: pytest.FixtureRequest) -> None:
    rows = request.session.stash.get(SEEN, [])
    if len(rows) < len(FAULTS):
        pytest.skip("not every fault was tried, or one was not found")
    kept = DOCUMENT.read_text().split("<!-- lab faults -->")[1].split("<!-- end -->")[0]
    assert kept.strip().splitlines()[2:] == rows


def test_an_overflowing_queue_and_a_black_hole_show_in_the_probe(touching: Eye) -> None:
    lab, plan = touching.lab, touching.plan
    rule = plan.node("spark1").rules[0]
    lab.fault("spark1", "overflow", rule.dev, "20")
    found = touching.roots("--probe")
    lab.fault("spark1", "overflow", rule.dev, "0")
    assert ("overflow", "spark1", rule.dev) in found and all(node == "spark1" for _, node, _ in found)
