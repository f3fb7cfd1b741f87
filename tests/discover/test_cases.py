"""Every folder of tests/cases comes out as its expect.yaml says, through adopt, render and the proof."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_plan.cli.main import main
from fabric_plan.discover.folder import read_folder
from fabric_plan.discover.infer import Outcome, infer
from fabric_plan.errors import FabricPlanError
from fabric_plan.inventory.load import load
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.tree import render
from fabric_plan.resources import hardware_roles, layers, templates
from fabric_plan.simulate.prove import prove

CASES = Path(__file__).parent.parent / "cases"
NAMES = sorted(path.name for path in CASES.iterdir() if path.name[0].isdigit())

# What an expectation calls a refusal, and what this tool calls it.
IDS = {
    "no-separating-prefix": "no-separating-prefix",
    "order-mismatch": "order-mismatch",
    "not-a-ring": "not-a-ring",
    "table-cables-missing": "table-cables-missing",
    "second-definition": "second-definition",
    "unparseable-file": "unparseable-file",
}


def adopt(folder: Path) -> Outcome:
    return infer(read_folder(folder, hardware_roles()), hardware_roles())


def expected(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((CASES / name / "expect.yaml").read_text())
    return document


def ends(cable: list[str]) -> frozenset[tuple[str, str]]:
    a, port_a, b, port_b = cable
    return frozenset({(a, port_a), (b, port_b)})


def rotations(order: list[str]) -> list[list[str]]:
    both = [order, order[::-1]]
    return [walk[i:] + walk[:i] for walk in both for i in range(len(walk))]


def message(errors: tuple[FabricPlanError, ...]) -> str:
    return "\n".join(line for error in errors for line in error.lines())


@pytest.mark.parametrize("name", NAMES)
def test_the_case_comes_out_as_expected(name: str) -> None:
    want, got = expected(name), adopt(CASES / name)
    assert bool(got.refusals) == (want["outcome"] == "refuse"), message(got.refusals)
    assert got.scope == want.get("refuse_scope")
    assert (got.topology.kind if got.topology else None) == want["topology"]
    if want["topology"] in ("ring", "triangle"):
        assert list(got.order) in rotations(want["order"])
        assert list(got.order) == want["order"], (
            "the walk starts at the first node, to its lower-ranked neighbour"
        )
    else:
        assert list(got.order) == want["order"]
    found = {frozenset((end.node, end.port) for end in segment.ends): segment for segment in got.segments}
    assert set(found) == {ends(cable) for cable in want["cables"]}
    assert len(got.planes) == want["planes"]
    for plane in (1, 2):
        for cable, subnet in zip(want["cables"], want["subnets"][f"plane{plane}"], strict=False):
            assert str(found[ends(cable)].lanes[plane].subnet) == subnet
        assert bool(want["subnets"][f"plane{plane}"]) == (plane in got.planes)
    if want["outcome"] == "plan":
        assert got.plan is not None
        assert got.plan.nccl_prefix == want["nccl_prefix"]


@pytest.mark.parametrize("name", NAMES)
def test_warnings_are_those_expected_and_no_others(name: str) -> None:
    want, got = expected(name), adopt(CASES / name)
    if want.get("refuse_scope") == "fabric":
        assert want["warnings"] == []
        return
    assert sorted(notice.id for notice in got.notices) == sorted(
        warning["id"] for warning in want["warnings"]
    )
    for warning in want["warnings"]:
        text = next(notice.text for notice in got.notices if notice.id == warning["id"])
        for about in warning["about"]:
            assert about in text


@pytest.mark.parametrize("name", [name for name in NAMES if expected(name)["outcome"] == "refuse"])
def test_a_refusal_names_what_it_must_and_nothing_that_it_must_not(name: str) -> None:
    want, got = expected(name), adopt(CASES / name)
    said = message(got.refusals)
    assert {error.id for error in got.refusals} == {IDS[error] for error in want["errors"]}
    for word in want["refuse_must_name"]:
        assert word in said
    for word in want.get("refuse_must_not_name", []):
        assert word not in said
    assert "90-NM-*" not in said


@pytest.mark.parametrize("name", NAMES)
def test_what_is_adopted_renders_and_proves(name: str) -> None:
    want, got = expected(name), adopt(CASES / name)
    if want.get("refuse_scope") == "fabric":
        assert got.text is None
        return
    assert got.text is not None
    plan = plan_fabric(load(got.text, "adopted.yaml", hardware_roles()).fabric)
    assert prove(plan).ok, prove(plan).failures
    files = render(plan, layers(), templates()).files
    nccl = [
        file.path
        for node in files.values()
        for file in node
        if "/nccl/" in file.path or re.search(r"^(export )?NCCL_", file.content, re.MULTILINE)
    ]
    assert nccl or want["nccl_prefix"] is None
    if want.get("refuse_scope") == "nccl":
        assert nccl == [], "no NCCL environment may be written"


@pytest.mark.parametrize("name", NAMES)
def test_the_verb_writes_an_inventory_or_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    want, out = expected(name), tmp_path / "out.yaml"
    code = main(["adopt", str(CASES / name), "-o", str(out)])
    assert code == (0 if want["outcome"] == "plan" else 1)
    assert out.exists() == (want["outcome"] == "plan")
    assert list(tmp_path.iterdir()) == ([out] if want["outcome"] == "plan" else [])
    assert "Traceback" not in capsys.readouterr().err


def test_the_misordered_ring_plans_once_its_order_is_declared(tmp_path: Path) -> None:
    name = "12-ring4-misordered"
    want = expected(name)["after_fix"]
    folder = Path(shutil.copytree(CASES / name, tmp_path / name))
    declared = yaml.safe_load((folder / "inventory.yaml").read_text())
    for node in declared["nodes"]:
        node["rank"] = want["order"].index(node["name"])
    (folder / "inventory.yaml").write_text(yaml.safe_dump(declared))
    got = adopt(folder)
    assert not got.refusals
    assert got.plan is not None
    assert [node.name for node in got.plan.nodes] == want["order"]
    assert got.plan.nccl_prefix == want["nccl_prefix"]


def test_without_a_declared_order_the_walk_is_the_order(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CASES / "12-ring4-misordered", tmp_path / "case"))
    (folder / "inventory.yaml").unlink()
    got = adopt(folder)
    assert not got.refusals
    assert got.plan is not None
    assert [node.name for node in got.plan.nodes] == ["r0c0", "r0c1", "r1c1", "r1c0"]


def test_the_pair_plans_once_the_two_named_files_are_moved_away(tmp_path: Path) -> None:
    name = "15-nul-file-and-nm-mirror"
    want = expected(name)
    folder = Path(shutil.copytree(CASES / name, tmp_path / name))
    files = list((folder / "nodes/kit-b/etc/netplan").iterdir())
    for file in files:
        if file.name in want["refuse_must_name"]:
            file.unlink()
    got = adopt(folder)
    assert not got.refusals
    assert list(got.order) == want["after_fix"]["order"]
    assert got.plan is not None
    assert got.plan.nccl_prefix == want["after_fix"]["nccl_prefix"]
    assert got.plan.fabric.mtu == 9000, "from a file of its own, merged per key"


def test_swapped_cables_are_compared_with_the_table_cable_by_cable() -> None:
    name = "13-ring4-cable-swapped-two-2-cycles"
    want, got = expected(name), adopt(CASES / name)
    assert got.compared is not None
    for field in ("missing", "unexpected"):
        found = [frozenset((end.node, end.port) for end in pair) for pair in getattr(got.compared, field)]
        assert found == [ends(cable) for cable in want[f"{field}_cables"]]
    assert got.compared.moves == ("swap the ends plugged into bay1 f1 and bay3 f1",)


def test_without_the_table_the_refusal_stands(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CASES / "13-ring4-cable-swapped-two-2-cycles", tmp_path / "case"))
    (folder / "cables.yaml").unlink()
    got = adopt(folder)
    assert [error.id for error in got.refusals] == ["not-a-ring"]
    assert "bay1 and bay2" in message(got.refusals)


def test_an_open_line_is_refused_where_a_ring_was_declared(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CASES / "20-line4-open", tmp_path / "case"))
    declared = (folder / "inventory.yaml").read_text()
    (folder / "inventory.yaml").write_text(f"topology: ring\n{declared}")
    got = adopt(folder)
    assert [error.id for error in got.refusals] == ["topology-mismatch"]
    assert "ln-1 f1" in message(got.refusals)
    assert "ln-4 f0" in message(got.refusals)


def test_a_renumbering_that_works_is_offered_for_twins_that_no_prefix_separates() -> None:
    got = adopt(CASES / "08-triangle-twins-no-separating-prefix")
    said = message(got.refusals)
    assert "dgx-alpha enP2p1s0f0np0 172.21.60.2/24 -> 172.21.160.1/24" in said
    assert "dgx-bravo enP2p1s0f1np1 172.21.60.4/24 -> 172.21.160.3/24" in said
