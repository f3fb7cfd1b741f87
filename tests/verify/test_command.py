"""``verify`` on saved facts: what it prints, writes and returns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fabric_plan.cli.main import main
from fabric_plan.facts.saved import collection
from fabric_plan.node.document import Facts
from tests.checks.sound import broken, sound
from tests.checks.test_faults import marker_dead
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import RING4, planned

INVENTORY = str(ROOT / "inventories" / "ring4.yaml")
SCENE = sound(planned(RING4))


def saved(folder: Path, facts: Mapping[str, Facts]) -> str:
    documents = {name: json.loads(json.dumps(found, default=vars)) for name, found in facts.items()}
    path = folder / "facts.json"
    path.write_text(json.dumps(collection(documents, {})))
    return str(path)


def test_a_sound_fabric_is_zero_and_says_what_was_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = saved(tmp_path, SCENE.facts)
    assert main(["verify", "-i", INVENTORY, "--facts", facts, "--since-boot"]) == 0
    out = capsys.readouterr().out
    assert "rules" in out and "up for 4000 s" in out and "fail" not in out and "not proven" not in out


def test_a_fault_is_two_in_words_json_and_junit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = saved(tmp_path, broken(SCENE, {"spark1": marker_dead()}).facts)
    report = tmp_path / "report.xml"
    words = ["verify", "-i", INVENTORY, "--facts", facts, "--junit", str(report), "--json"]
    assert main(words) == 2
    said = capsys.readouterr()
    document: dict[str, Any] = json.loads(said.out)
    (finding,) = document["findings"]
    assert (finding["id"], finding["node"], finding["interface"]) == ("marker", "spark1", "enp1s0f0np0")
    assert [under["id"] for under in finding["consequences"]] == ["marker-unit"]
    assert "fail: spark1 enp1s0f0np0 rocep1s0f0: absent [marker]" in said.err
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None and (suite.get("name"), suite.get("failures")) == ("spark1", "2")
    assert int(suite.get("tests", "0")) == sum(c["node"] == "spark1" for c in document["checks"])


def test_a_node_without_facts_is_not_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = saved(tmp_path, {name: found for name, found in SCENE.facts.items() if name != "spark4"})
    assert main(["verify", "-i", INVENTORY, "--facts", facts]) == 2
    assert "not proven: spark4" in capsys.readouterr().out


def test_one_node_is_reported_alone_with_the_root_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = saved(tmp_path, broken(SCENE, {"spark1": marker_dead()}).facts)
    assert main(["verify", "-i", INVENTORY, "--facts", facts, "--node", "spark2"]) == 0
    assert "spark1" not in capsys.readouterr().out
