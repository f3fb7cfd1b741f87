"""A cable put in the middle renumbers those after it: render warns, and pin keeps what there was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabric_plan.cli.main import main
from tests.golden_trees import ROOT

RING4 = (ROOT / "inventories" / "ring4.yaml").read_text()
MOVED = (
    RING4.replace("  - ends: [spark1.f0, spark2.f1]\n", "").rstrip("\n")
    + "\n  - ends: [spark1.f0, spark2.f1]\n"
)


def subnets(directory: Path) -> dict[str, dict[str, str]]:
    document = json.loads((directory / "plan.json").read_text())
    return {
        "-".join(sorted(e["node"] for e in cable["ends"])): cable["subnets"] for cable in document["cables"]
    }


def test_moved_cables_are_named_and_pin_keeps_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory, out = tmp_path / "home.yaml", tmp_path / "build"
    inventory.write_text(RING4)
    assert main(["render", "-i", str(inventory), "-o", str(out)]) == 0
    before = subnets(out)
    inventory.write_text(MOVED)
    capsys.readouterr()
    assert main(["pin", "-i", str(inventory), "--from", str(out / "plan.json"), "--write"]) == 0
    assert main(["render", "-i", str(inventory), "-o", str(out)]) == 0
    assert "subnets-renumbered" not in capsys.readouterr().out
    assert subnets(out) == before
    assert inventory.read_text().startswith(RING4.splitlines()[0])

    inventory.write_text(MOVED)
    assert main(["render", "-i", str(inventory), "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "[subnets-renumbered]" in said
    assert "spark2 f0 - spark3 f1, plane 1: 10.10.2.0/24 becomes 10.10.0.0/24" in said


def test_pin_prints_the_same_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = tmp_path / "home.yaml"
    inventory.write_text(RING4)
    assert main(["pin", "-i", str(inventory)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("planes: [{subnet: ") == 4
    assert inventory.read_text() == RING4
    inventory.write_text(printed)
    assert main(["pin", "-i", str(inventory)]) == 0
    assert capsys.readouterr().out == printed


def test_a_form_that_cannot_be_edited_is_said_with_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "home.yaml"
    inventory.write_text(
        RING4.replace("  - ends: [spark1.f0, spark2.f1]", "  - {ends: [spark1.f0, spark2.f1]}")
    )
    assert main(["pin", "-i", str(inventory), "--write"]) == 1
    assert "planes: [{subnet: 10.10.0.0/24}, {subnet: 10.10.1.0/24}]" in capsys.readouterr().err
