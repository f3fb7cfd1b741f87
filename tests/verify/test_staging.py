"""The staging suite itself: passes on nodes that are as planned, fails where one is not, keeps to loopback,
and skips visibly without an inventory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fabric_plan.node.document import Facts
from tests.checks.sound import sound
from tests.compare.test_diff import link
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned
from tests.ssh.nodes import Cluster

PAIR = "mtu: 9000\n"
F0 = "enp1s0f0np0"


def suite(*words: str, only: str = "tests/staging/test_checks.py") -> tuple[int, str]:
    """Run it in a process of its own; return its status and what it printed."""
    command = [sys.executable, "-m", "pytest", only, "-q", "-p", "no:randomly", "--no-header", *words]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    return result.returncode, result.stdout + result.stderr


def answers(cluster: Cluster, facts: dict[str, Facts]) -> str:
    """Have the nodes' python3 print prepared facts; return the inventory's path."""
    for node in cluster.nodes:
        place = node.base / "facts.json"
        place.write_text(json.dumps(facts[node.name], default=vars))
        node.tool("python3", 'case "$*" in *"program.pyz collect") cat > /dev/null;; *) exit 64;; esac',
                  f"exec cat {place}")  # fmt: skip
    path = cluster.base / "inventory.yaml"
    path.write_text(cluster.inventory(PAIR))
    return str(path)


def test_without_an_inventory_it_is_skipped_and_says_so() -> None:
    status, said = suite(only="tests/staging")
    assert status == 0 and "5 skipped" in said and "no inventory: pytest tests/staging --inventory" in said


def test_it_passes_on_sound_nodes_and_fails_on_the_one_with_a_fault(two_nodes: Cluster) -> None:
    scene = sound(planned(two_nodes.inventory(PAIR)))
    inventory = answers(two_nodes, dict(scene.facts))
    words = ("--inventory", inventory, "--hosts-config", str(two_nodes.config))
    status, said = suite(*words)
    assert status == 0, said[-3000:]
    assert "passed" in said and "skipped" not in said and "failed" not in said
    broken = {**scene.facts, "spark1": link(F0, mtu=1500)(scene.facts["spark1"])}
    answers(two_nodes, broken)
    status, said = suite(*words)
    failed = [line for line in said.splitlines() if line.startswith("FAILED")]
    assert status == 1 and len(failed) == 1, said[-3000:]
    assert "spark1-link-mtu-enp1s0f0np0" in failed[0] and "mend:" in said


def test_a_node_beyond_loopback_is_not_reached_unless_it_is_named(tmp_path: Path) -> None:
    inventory = str(ROOT / "inventories" / "ring4.yaml")
    config = tmp_path / "config"
    config.write_text("Host *\n  ProxyCommand false\n")  # even if it tried, nothing would leave
    status, said = suite("--inventory", inventory, "--hosts-config", str(config), "-k", "facts")
    assert status == 1 and "--allow-hosts=192.168.1.11" in said
