"""Every inventory of inventories/ renders and proves, with the counts that its shape must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric_plan.inventory.load import load
from fabric_plan.planner.model import Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.tree import render
from fabric_plan.resources import hardware_roles, layers, templates
from fabric_plan.simulate.prove import prove

EXAMPLES = Path(__file__).parent.parent / "inventories"

# Shape, relay routes and rules over all nodes, kernel routes a node, bytes a peer.
COUNTS: dict[str, tuple[str, int, int, set[int], int | None]] = {
    "line4": ("line", 12, 12, {4, 2}, 393216),
    "pair": ("pair", 0, 0, {0}, None),
    "ring4": ("ring", 8, 8, {4}, 786432),
    "ring4-alternating": ("ring", 8, 8, {4}, 786432),
    "ring6": ("ring", 48, 48, {8}, 262144),
    "ring8": ("ring", 96, 96, {12}, 131072),
    "switched4": ("switched", 0, 0, {0}, None),
    "triangle": ("triangle", 0, 0, {2}, None),
}


def planned(path: Path) -> Plan:
    loaded = load(path.read_bytes(), path.name, hardware_roles())
    return plan_fabric(loaded.fabric, loaded.notices)


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} >= set(COUNTS)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_it_renders_and_proves(path: Path) -> None:
    plan = planned(path)
    proof = prove(plan)
    assert proof.ok, proof.failures
    assert proof.kernel_forwarded == 0
    assert set(render(plan, layers(), templates()).files) == {node.name for node in plan.nodes}
    assert plan.fabric.name == path.stem


@pytest.mark.parametrize(("name", "row"), COUNTS.items())
def test_its_counts_are_those_of_its_shape(
    name: str, row: tuple[str, int, int, set[int], int | None]
) -> None:
    kind, routes, rules, kernel, bound = row
    plan = planned(EXAMPLES / f"{name}.yaml")
    assert plan.topology.kind == kind
    assert sum(len(node.relay_routes) for node in plan.nodes) == routes
    assert sum(len(node.rules) for node in plan.nodes) == rules
    assert {len(node.kernel_routes) for node in plan.nodes} == kernel
    assert plan.load.bound == bound
