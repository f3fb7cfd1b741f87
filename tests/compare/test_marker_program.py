"""A marker that the inventory pins by its digest: in the plan, looked at before an apply, and left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fabric_plan.checks.model import Verdict
from fabric_plan.checks.run import verify
from fabric_plan.compare.desired import NODE_FILE
from fabric_plan.compare.diff import diff
from fabric_plan.compare.files import file_changes
from fabric_plan.compare.preflight import preflight
from fabric_plan.node.document import Facts, File
from fabric_plan.render.document import plan_core
from fabric_plan.transport.fake import Fake
from fabric_plan.verify.nodes import Nodes
from tests.checks.sound import broken, sound
from tests.compare.test_diff import F0, link
from tests.facts_builder import desired, live
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned

PATH, DIGEST = "/usr/local/lib/fabric-plan/own-marker", "ab" * 32
TEXT = (ROOT / "inventories" / "ring4.yaml").read_text()
PINNED = f"mesh: {{paths: opposite, marker: {{path: {PATH}, sha256: {DIGEST}}}}}\n"
PLAN = planned(TEXT.replace("mesh: {paths: opposite}\n", PINNED))
WANT = desired(PLAN)["spark1"]


def with_program(facts: Facts, sha256: str | None) -> Facts:
    program = {PATH: File("file", "0755", 0, 0, 9, sha256)} if sha256 else {}
    return replace(facts, files=replace(facts.files, value={**(facts.files.value or {}), **program}))


def test_it_stands_in_the_plan_and_changes_its_digest() -> None:
    usual = planned(TEXT)
    assert plan_core(PLAN)["mesh"] == {
        "paths": "opposite",
        "marker": "built-in",
        "marker_path": PATH,
        "marker_sha256": DIGEST,
    }
    assert plan_core(usual)["mesh"].keys() == {"paths", "marker"}
    node_file = WANT.file(NODE_FILE)
    assert node_file is not None and json.loads(node_file.content)["marker_sha256"] == DIGEST
    assert (desired(usual)["spark1"].marker_path, WANT.marker_path) == (None, PATH)


WRONG = ["marker-program"]


@pytest.mark.parametrize(("sha256", "found"), [(DIGEST, []), ("cd" * 32, WRONG), (None, WRONG)])
def test_another_one_is_refused_before_anything_changes(sha256: str | None, found: list[str]) -> None:
    facts = with_program(link(F0, mtu=1500)(live(WANT)), sha256)
    wrong = preflight({"spark1": WANT}, {"spark1": facts}, {"spark1": diff(WANT, facts)}, take_over=False)
    assert [finding.id for finding in wrong if finding.id != "marker-missing"] == found


def test_it_is_no_file_that_vanished_from_the_plan() -> None:
    assert not list(file_changes(WANT, with_program(live(WANT), DIGEST)))


@pytest.mark.parametrize(
    ("sha256", "verdict"), [(DIGEST, Verdict.PASS), ("cd" * 32, Verdict.FAIL), (None, Verdict.FAIL)]
)
def test_verify_holds_it_against_its_digest(sha256: str | None, verdict: Verdict) -> None:
    every = {node.name: lambda facts: with_program(facts, DIGEST) for node in PLAN.nodes}
    scene = broken(sound(PLAN), {**every, "spark2": lambda facts: with_program(facts, sha256)})
    found = verify(scene)
    checks = {check.node: check for check in found.checks if check.id == "marker-program"}
    assert {node: check.verdict for node, check in checks.items()} == {
        **dict.fromkeys(every, Verdict.PASS),
        "spark2": verdict,
    }
    roots = [(root.check.id, root.check.node) for root in found.roots]
    assert roots == ([] if verdict is Verdict.PASS else [("marker-program", "spark2")])
    assert checks["spark2"].subject == PATH


def test_verify_asks_every_node_about_it() -> None:
    there = sound(PLAN)
    asked: dict[str, dict[str, Any]] = {}

    def answer(node: str, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        asked[node] = request
        document: dict[str, Any] = json.loads(json.dumps(there.facts[node], default=vars))
        return document

    with Nodes(PLAN, there.desired, [node.name for node in PLAN.nodes], Fake(answer)) as nodes:
        nodes.collect()
    assert {node: request["paths"] for node, request in asked.items()} == {
        node: [PATH] for node in there.facts
    }


def test_without_a_pin_there_is_no_check() -> None:
    assert not [check for check in verify(sound(planned(TEXT))).checks if check.id == "marker-program"]
