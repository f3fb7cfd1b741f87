"""The how-tos: every inventory in them renders and proves, and what a page says of a plan is so."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from fabric_plan.inventory.load import load
from fabric_plan.planner.model import Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.tree import render
from fabric_plan.resources import hardware_roles, layers, templates
from fabric_plan.simulate.prove import prove
from tests.golden_trees import ROOT

FOLDER = ROOT / "docs" / "howto"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
PARTS = [
    (page, text, number) for page in PAGES for number, text in enumerate(BLOCK.findall(page.read_text()))
]


def planned(text: str) -> Plan:
    return plan_fabric(load(text, "home.yaml", hardware_roles()).fabric)


@cache
def example(name: str) -> str:
    return (ROOT / "inventories" / f"{name}.yaml").read_text()


def whole(text: str) -> str:
    """Return an inventory: `text` itself, or the four-Spark example with the keys that `text` gives."""
    given = yaml.safe_load(text)
    if "nodes" in given:
        return text
    return yaml.safe_dump({**yaml.safe_load(example("ring4")), **given}, sort_keys=False)


@pytest.mark.parametrize(
    ("page", "text"), [part[:2] for part in PARTS], ids=[f"{p.stem}-{number}" for p, _, number in PARTS]
)
def test_every_inventory_renders_and_proves(page: Path, text: str) -> None:
    plan = planned(whole(text))
    assert prove(plan).ok
    assert render(plan, layers(), templates()).files.keys() == {node.name for node in plan.nodes}


def test_the_examples_that_pages_name_are_there() -> None:
    named = {name for page in PAGES for name in re.findall(r"inventories/([\w-]+)\.yaml", page.read_text())}
    assert named and all((ROOT / "inventories" / f"{name}.yaml").exists() for name in named)


def test_the_table_lists_every_page() -> None:
    text = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"\]\((\w[\w-]*\.md)\)", text)) == {page.name for page in PAGES} - {"README.md"}


def test_plane_two_moves_nothing_on_plane_one() -> None:
    before = planned(example("ring4").replace("topology: ring\n", "topology: ring\nplanes: {1: managed}\n"))
    (text,) = BLOCK.findall((FOLDER / "add-plane-2.md").read_text())
    after = planned(whole(text))
    assert before.subnets.items() < after.subnets.items()
    assert {plane for _, plane in after.subnets} == {1, 2}


def test_the_move_of_plugs_is_the_one_that_the_page_says() -> None:
    page = (FOLDER / "recable.md").read_text()
    rows = [
        re.findall(r"(\w+) (f\d) - (\w+) (f\d)", cell.replace("**", ""))[0]
        for cells in re.findall(r"^\| (spark.*?) \| (spark.*?) \|$", page, re.MULTILINE)
        for cell in cells
    ]
    before, after = planned(example("ring4-alternating")), planned(whole(BLOCK.findall(page)[0]))
    for plan, wanted in ((before, rows[::2]), (after, rows[1::2])):
        found = [tuple(f"{end.node} {end.port}" for end in cable.ends) for cable in plan.fabric.cables]
        assert found == [(f"{a} {p}", f"{b} {q}") for a, p, b, q in wanted]
    assert before.subnets == after.subnets
    moved = {
        end.node
        for old, new in zip(before.fabric.cables, after.fabric.cables, strict=True)
        for end in set(old.ends) ^ set(new.ends)
    }
    assert moved == {"spark2", "spark4"}


def test_a_triangle_relays_nothing() -> None:
    (text,) = BLOCK.findall((FOLDER / "three-nodes.md").read_text())
    plan = planned(text)
    assert plan.topology.kind == "triangle" and not plan.mesh
    assert not any(node.relay_routes or node.rules or node.markers for node in plan.nodes)
    assert not [
        path
        for files in render(plan, layers(), templates()).files.values()
        for path in files
        if "hairpin" in path.path
    ]


def test_the_figures_of_eight_nodes() -> None:
    page = (FOLDER / "eight-nodes.md").read_text()
    eight, four = planned(example("ring8")), planned(example("ring4"))
    assert f"the bound is {eight.load.bound} bytes a peer" in page
    assert f"the RoCE size cap is {eight.load.cap} bytes, where four nodes have\n  {four.load.cap}" in page
    assert max(len(path.through) for path in eight.paths) == 3
    assert sum(len(node.functions) for node in eight.nodes) == 32
    assert {notice.id for notice in eight.notices} >= {"foreign-ethertype"}
