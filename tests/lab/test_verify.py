"""``verify`` on the lab's nodes: green when all is as planned, and each fault the root on its node and
interface. What *in hardware* means here is the lab's word.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fabric_plan.cli.common import read_plan
from lab.driver import Lab
from tests.lab.conftest import INVENTORY
from tests.lab.tool import ROOT, Tool
from tests.lab.verify_faults import Fault, faults

DOCUMENT = ROOT / "docs" / "verify.md"
FAULTS = faults(read_plan(str(INVENTORY)))
VICTIM = "spark2"
STAGING_LIMIT_S = 1200
SEEN = pytest.StashKey[list[str]]()


@pytest.fixture
def eye(planned: Lab) -> Tool:
    return Tool(planned, INVENTORY)


@pytest.fixture
def touching(meshed: Lab) -> Tool:
    return Tool(meshed, INVENTORY)


def staging(tool: Tool) -> subprocess.CompletedProcess[str]:
    """Run the staging suite against the lab's nodes."""
    where = ["--inventory", str(tool.inventory), "--hosts-config", str(tool.lab.run_dir / "ssh_config")]
    argv = [sys.executable, "-m", "pytest", "tests/staging", "-q", *where]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=STAGING_LIMIT_S)


def test_the_staging_suite_passes(eye: Tool) -> None:
    done = staging(eye)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_staging_suite_fails_with_a_fault(touching: Tool) -> None:
    dev = touching.plan.node(VICTIM).at("f0", 1).function.netdev
    touching.lab.ssh(VICTIM, f"sysctl -qw net.ipv4.conf.{dev}.arp_ignore=0")
    done = staging(touching)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert done.returncode == 1 and failed, done.stdout
    assert all(VICTIM in line for line in failed), failed
    # The check itself, and the same setting through testinfra's own module.
    tests = {line.split("::")[1].split("[")[0] for line in failed}
    assert tests == {"test_check", "test_settings_are_in_effect"}


def row(fault: Fault, findings: list[dict[str, Any]]) -> str:
    """A line of the table in docs/verify.md: the root finding and where it is, and what stands under it."""
    (root,) = findings
    under = sorted(consequence["id"] for consequence in root["consequences"])
    counts = ", ".join(
        f"{name} x{under.count(name)}" if under.count(name) > 1 else name for name in dict.fromkeys(under)
    )
    place = f"{root['node']} {root['interface'] or root['subject']}"
    return f"| {fault.name} | {root['id']} | {place} | {counts or 'none'} |"


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_each_fault_is_the_root_on_its_node_and_interface(
    touching: Tool, fault: Fault, request: pytest.FixtureRequest
) -> None:
    fault.act(touching.lab)
    done = touching.run("verify", *fault.words)
    found = done.document.get("findings", [])
    assert [(f["id"], f["node"], f["interface"]) for f in found] == [
        (fault.root, fault.node, fault.interface)
    ], done.findings
    request.session.stash.setdefault(SEEN, []).append(row(fault, found))
    print(request.session.stash[SEEN][-1])


def test_the_table_in_the_docs_is_what_was_seen(request: pytest.FixtureRequest) -> None:
    rows = request.session.stash.get(SEEN, [])
    if len(rows) < len(FAULTS):
        pytest.skip("not every fault was tried, or one was not found")
    kept = DOCUMENT.read_text().split("<!-- lab faults -->")[1].split("<!-- end -->")[0]
    assert kept.strip().splitlines()[2:] == rows
