"""Adopting a rendered tree gives the inventory back: adopt, render, adopt changes nothing any more."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fabric_plan.cli.write_tree import write_tree
from fabric_plan.discover.folder import read_folder
from fabric_plan.discover.infer import infer
from fabric_plan.inventory.load import Loaded, load
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.document import digest, dump, plan_core
from fabric_plan.render.output import plan_document
from fabric_plan.render.tree import render
from fabric_plan.resources import hardware_roles, layers, templates
from fabric_plan.simulate.proof import Proof
from tests.strategies import Sketch, sketches

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "inventories").glob("*.yaml")) + sorted((ROOT / "tests/inventories").glob("*.yaml"))


def loaded(text: str, name: str = "some.yaml") -> Loaded:
    return load(text, name, hardware_roles())


def written(inventory: Loaded, folder: Path, *, whole: bool = True) -> None:
    """Write the rendered tree of `inventory`; without `whole` only what the nodes themselves have."""
    plan = plan_fabric(inventory.fabric)
    rendered = render(plan, layers(), templates())
    proof = Proof(0, 0, 0, (), (), plan.load)
    files = {f"{name}{f.path}": (f.content, 0o600) for name, node in rendered.files.items() for f in node}
    write_tree(folder, files | {"plan.json": (dump(plan_document(plan, rendered, proof)), 0o644)})
    if not whole:
        (folder / "plan.json").unlink()


def adopted(folder: Path) -> str:
    outcome = infer(read_folder(folder, hardware_roles()), hardware_roles())
    assert outcome.text is not None, [error.lines() for error in outcome.refusals]
    return outcome.text


def plan_digest(inventory: Loaded) -> str:
    return digest(plan_core(plan_fabric(inventory.fabric)))


def is_fixed(inventory: Loaded, folder: Path) -> None:
    written(inventory, folder / "first")
    first = adopted(folder / "first")
    assert plan_digest(loaded(first)) == plan_digest(inventory)
    written(loaded(first), folder / "second")
    assert adopted(folder / "second") == first


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_fixed_point(path: Path, tmp_path: Path) -> None:
    original = loaded(path.read_text(), path.name)
    is_fixed(original, tmp_path)
    back = loaded(adopted(tmp_path / "first")).inventory
    # Nothing that somebody wrote is lost; what was chosen for them is now pinned.
    assert back.nodes == original.inventory.nodes
    assert [c.ends for c in back.cables] == [c.ends for c in original.inventory.cables]
    for field in ("mtu", "planes", "hairpin", "mesh", "nccl", "topology"):
        assert getattr(back, field) == getattr(original.inventory, field)


@given(sketch=sketches())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_inventory_is_a_fixed_point(sketch: Sketch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        is_fixed(loaded(sketch.text()), Path(folder))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_nodes_files_alone_give_the_same_fabric(path: Path, tmp_path: Path) -> None:
    """Fetched from the nodes, without plan.json: the cables may be listed otherwise, the fabric is the
    same.
    """
    inventory = loaded(path.read_text(), path.name)
    written(inventory, tmp_path, whole=False)
    back = loaded(adopted(tmp_path))
    before, after = plan_core(plan_fabric(inventory.fabric)), plan_core(plan_fabric(back.fabric))
    for node, part in before["nodes"].items():
        for key in ("rank", "functions", "relay_routes", "rules", "markers"):
            assert after["nodes"][node][key] == part[key]
    assert before["mesh"] == after["mesh"]
    assert before["hairpin"] == after["hairpin"]
