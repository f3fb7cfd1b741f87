"""The controller's session against the node program itself: what one asks is what the other answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from fabric_plan.apply.ends import End
from fabric_plan.apply.observer import SILENT
from fabric_plan.apply.session import Session
from fabric_plan.apply.transaction import Identity, Transaction, Work
from fabric_plan.compare.model import Step, StepKind
from fabric_plan.compare.steps import FabricSteps, StagedFile
from fabric_plan.errors import NodeError, TransportError
from fabric_plan.transport.base import Connection, Target
from tests.node.txn.faults import Whole
from tests.node.txn.support import F0, F1, SYSCTLS, expected, tree
from tests.node.txn.world import World


@dataclass
class Direct:
    """A transport to one `World`; `lost` names calls whose answers do not arrive, and how often."""

    world: World
    lost: dict[str, int] = field(default_factory=dict)

    def connect(self, target: Target) -> Connection:
        """Return itself: there is nothing to connect."""
        return self

    @property
    def target(self) -> Target:
        """The one node."""
        return Target("spark1", "127.0.0.1")

    def call(self, verb: str, request: Mapping[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Run the program, then lose the answer where that is due."""
        words = [verb, "--root", str(self.world.root)]
        process = self.world.spawner.start(words, self.world.env(), json.dumps(request))
        assert process.wait(limit_s) == 0
        if self.lost.get(verb, 0) > 0:
            self.lost[verb] -= 1
            raise TransportError("the answer got lost", where="spark1")
        reply: dict[str, Any] = json.loads(process.stdout)
        return reply

    def close(self) -> None:
        """Nothing stays open."""


STEPS = FabricSteps(
    {
        "spark1": (
            Step(StepKind.DAEMON_RELOAD),
            Step(StepKind.SYSCTL),
            Step(StepKind.NM_CONF),
            Step(StepKind.NETPLAN, {"interfaces": []}),
        )
    },
    (
        ("spark1", Step(StepKind.NETPLAN, {"interfaces": [F0]}, "its addresses")),
        ("spark1", Step(StepKind.NETPLAN, {"interfaces": [F1]}, "its addresses")),
        ("spark1", Step(StepKind.HAIRPIN, {"netdev": F0}, "its traffic", idle=True)),
    ),
    {
        "spark1": (
            Step(StepKind.FORWARD),
            Step(StepKind.MESH),
            Step(StepKind.UNITS, {"start": ["fabric-plan-mesh.service"], "stop": []}),
        )
    },
)


def transaction(direct: Direct, settled: Mapping[str, str] | None = None) -> Transaction:
    """Return an apply of the first version on the one node."""
    files = tuple(
        StagedFile(path, mode, content) if mode else StagedFile(path, link=content)
        for path, (mode, content) in tree("v1").items()
    )
    return Transaction(
        {"spark1": Session(direct.target, direct, 60)},
        {"spark1": Work(files, SYSCTLS, (F0, F1))},
        STEPS,
        Identity("tester@here", "apply", "d" * 64, "home", "1.0"),
        lambda: (),
        lambda: settled or {},
        SILENT,
    )


@pytest.mark.parametrize("lost", ["", "begin", "run", "status", "confirm", "release"])
def test_an_apply_whose_answers_get_lost(world: World, lost: str) -> None:
    (end,) = transaction(Direct(world, {lost: 1})).run()
    assert (end.end, end.generation, end.message) == (End.APPLIED, 1, None)
    assert world.files() == expected(tree("v1"))
    assert world.live().rules == "v1" and world.timers == {}


@pytest.mark.parametrize("lost", ["", "undo"])
def test_a_step_that_fails_takes_the_node_back(world: World, lost: str) -> None:
    before = Whole.of(world)
    world.faults["^fabric hairpin"] = "once devlink answers: Device or resource busy"
    (end,) = transaction(Direct(world, {lost: 1})).run()
    assert end.end == End.ROLLED_BACK and "Device or resource busy" in (end.message or "")
    assert Whole.of(world) == before


def test_a_node_that_does_not_settle_goes_back(world: World) -> None:
    before = Whole.of(world)
    (end,) = transaction(Direct(world), {"spark1": "a rule is missing"}).run()
    assert end.end == End.ROLLED_BACK and "a rule is missing" in (end.message or "")
    assert [note for note in end.notes if "hairpin values" in note]
    assert Whole.of(world) == before


def test_a_begin_whose_answers_all_get_lost_changes_nothing_and_runs_out(world: World) -> None:
    before = Whole.of(world)
    with pytest.raises(TransportError) as lost:
        transaction(Direct(world, {"begin": 2})).run()
    assert "a lease that it took ends within 60 s" in lost.value.message
    assert Whole.of(world) == before
    with pytest.raises(NodeError, match="tester@here has held this node since"):
        transaction(Direct(world)).run()
