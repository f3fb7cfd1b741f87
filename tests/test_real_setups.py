"""Addresses and cablings that people really have, written as inventories: they render and prove, mesh off
and on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fabric_plan.inventory.load import load
from fabric_plan.planner.model import Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.tree import render
from fabric_plan.resources import hardware_roles, layers, templates
from fabric_plan.simulate.prove import prove

HERE = Path(__file__).parent
CASES = {
    "case01": "01-ring4-p0p1-24-per-function",
    "case02": "02-ring4-alternating-one-plane",
    "case05": "05-ring4-twins-share-24-n-10n",
}


def planned(name: str, mesh: str) -> Plan:
    text = (HERE / "inventories" / f"{name}.yaml").read_text()
    assert text.count("mesh: off\n") == 1
    return plan_fabric(
        load(text.replace("mesh: off\n", f"mesh: {mesh}\n"), f"{name}.yaml", hardware_roles()).fabric
    )


@pytest.mark.parametrize("mesh", ["off", "opposite", "universal"])
@pytest.mark.parametrize("name", CASES)
def test_it_renders_and_proves(name: str, mesh: str) -> None:
    plan = planned(name, mesh)
    proof = prove(plan)
    assert proof.ok, proof.failures
    rendered = render(plan, layers(), templates())
    assert all(rendered.files[node.name] for node in plan.nodes)
    assert plan.mesh == (mesh != "off")
    rules = {"off": 0, "opposite": 2, "universal": 2 * len(plan.fabric.planes)}
    if name == "case02" and mesh == "opposite":
        # One plane alone keeps the paths of that plane: one pair each way through one relay.
        assert sum(len(node.rules) for node in plan.nodes) == 4
    else:
        assert {len(node.rules) for node in plan.nodes} == {rules[mesh]}


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_setup_that_was_found(name: str) -> None:
    want = yaml.safe_load((HERE / "cases" / CASES[name] / "expect.yaml").read_text())
    plan = planned(name, "off")
    assert list(plan.topology.order) == want["order"]
    assert plan.nccl_prefix == want["nccl_prefix"]
    assert [str(cable) for cable in plan.fabric.cables] == [
        f"{a} {p} - {b} {q}" for a, p, b, q in want["cables"]
    ]
    for plane in plan.fabric.planes:
        found = [str(plan.subnets[cable.index, plane]) for cable in plan.fabric.cables]
        assert found == want["subnets"][f"plane{plane}"]


def test_the_separating_prefix_reaches_the_environment() -> None:
    """Twins in one /24 work only with 26, so the file that sets it must say 26."""
    rendered = render(planned("case05", "off"), layers(), templates())
    lines = [
        line
        for file in rendered.files["forge-a"]
        for line in file.content.splitlines()
        if "SUBNET_PREFIX_LEN" in line
    ]
    assert lines
    assert all("26" in line for line in lines)
