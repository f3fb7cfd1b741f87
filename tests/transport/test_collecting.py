"""What is asked of a node for its facts."""

from __future__ import annotations

from dataclasses import replace

from fabric_plan.transport.base import Target
from fabric_plan.transport.collecting import question
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned


def test_a_host_that_needs_patience_gets_it() -> None:
    plan = planned((ROOT / "inventories" / "ring4.yaml").read_text())
    node = plan.fabric.nodes[0]
    assert question(Target.of(node), ["a"]) == ({"interfaces": ["a"]}, 20.0)
    slow = replace(node, hardware=node.hardware.model_copy(update={"patience": 8.0}))
    request, limit_s = question(Target.of(slow), [], libraries=["/lib/x"], marks=[])
    assert request == {"libraries": ["/lib/x"], "tool_limit_s": 16.0, "all_limit_s": 36.0}
    assert limit_s == 160.0
