"""A watch on a fabric that changes between the looks: events, JSON lines, Prometheus text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import jsonschema
import pytest

import fabric_plan.cli.verify as command
import fabric_plan.verify.watch as watching
from fabric_plan.checks.drift import Event, Look, What
from fabric_plan.cli.main import main
from fabric_plan.errors import FabricPlanError
from fabric_plan.node.document import Facts
from fabric_plan.transport.fake import Fake
from fabric_plan.verify.nodes import Nodes
from fabric_plan.verify.watch import Watch, replace_text
from tests.checks.test_faults import gids, marker_dead, rules_gone
from tests.compare.test_diff import link
from tests.facts_builder import desired
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import RING4, planned
from tests.verify.world import World, world

PLAN = planned(RING4)
DESIRED = desired(PLAN)
F0, G0 = "enp1s0f0np0", "enP2p1s0f0np0"
Change = Callable[[World, Fake], None]


def watched(*changes: Change, textfile: Path | None = None) -> list[list[Event]]:
    """Return the events of each look; a change comes about before the look of its number."""
    one = world(PLAN)
    fake = Fake(one.answer)
    nodes = Nodes(PLAN, DESIRED, list(DESIRED), fake)
    told: list[list[Event]] = []
    left = list(changes)

    def tell(look: Look, events: tuple[Event, ...], at_unix: float) -> None:
        told.append(list(events))

    def wait(seconds: float) -> bool:
        if left:
            left.pop(0)(one, fake)
            return True
        return False

    Watch(PLAN, DESIRED, nodes, 1.0, tell, textfile, wait).run()
    return told


def facts_of(node: str, change: Callable[[Facts], Facts]) -> Change:
    def apply(one: World, fake: Fake) -> None:
        one.scene = replace(one.scene, facts={**one.scene.facts, node: change(one.scene.facts[node])})

    return apply


def counted(amounts: dict[tuple[str, str], int]) -> Change:
    return lambda one, fake: one.counted.update(amounts)


def whats(events: list[Event]) -> list[tuple[What, str, str | None, str | None]]:
    return [(event.what, event.node, event.interface, event.id) for event in events]


def test_nothing_happens_and_nothing_is_said() -> None:
    assert watched(lambda one, fake: None) == [[], []]


def test_a_finding_comes_and_goes() -> None:
    sound = world(PLAN).scene.facts["spark1"]
    told = watched(facts_of("spark1", rules_gone(G0)), facts_of("spark1", lambda facts: sound))
    assert whats(told[1]) == [(What.FINDING, "spark1", G0, "rule")]
    assert whats(told[2]) == [(What.MENDED, "spark1", G0, "rule")]


def test_a_gid_that_moves_is_an_event_and_no_finding() -> None:
    move = gids(lambda g: replace(g, index=4) if g.netdev == F0 else g)
    assert whats(watched(facts_of("spark1", move))[1]) == [(What.GID_MOVED, "spark1", F0, None)]


def test_the_mac_of_a_peer_that_changes_is_the_root() -> None:
    change = link(F0, mac="4c:bb:47:ff:00:09", permanent_mac="4c:bb:47:ff:00:09")
    (event, *more) = watched(facts_of("spark2", change))[1]
    assert (event.what, event.node, event.interface, event.id) == (What.FINDING, "spark2", F0, "identity")
    assert {one.id for one in more} <= {"cable"}


def test_rising_drops_are_told_once_for_each_rise() -> None:
    told = watched(counted({("spark2", f"{F0} overflow"): 5}), lambda one, fake: None)
    assert whats(told[1]) == [(What.DROPS, "spark2", F0, None)] and told[2] == []


@pytest.mark.parametrize(("plane2", "silent"), [(0, True), (9_000_000, False)])
def test_a_plane_that_carries_nothing(plane2: int, silent: bool) -> None:
    moved = counted({("spark1", "rocep1s0f0 sent"): 9_000_000, ("spark1", "roceP2p1s0f0 sent"): plane2})
    expected = [(What.PLANE_SILENT, "spark1", None, None)] if silent else []
    assert whats(watched(moved)[1]) == expected


def test_a_node_that_goes_away_and_comes_back() -> None:
    told = watched(
        lambda one, fake: fake.unreachable.add("spark3"), lambda one, fake: fake.unreachable.clear()
    )
    assert whats(told[1]) == [(What.FINDING, "spark3", None, "facts")]
    assert whats(told[2]) == [(What.MENDED, "spark3", None, "facts")]


def test_prometheus_text_is_whole_and_well_formed(tmp_path: Path) -> None:
    place = tmp_path / "fabric.prom"
    watched(facts_of("spark1", marker_dead()), textfile=place)
    text = place.read_text()
    line = re.compile(r'fabric_plan_\w+(\{\w+="[^"\n]*"(,\w+="[^"\n]*")*\})? -?[0-9.]+')
    assert all(line.fullmatch(row) for row in text.splitlines() if not row.startswith("# "))
    assert 'fabric_plan_finding{node="spark1",id="marker",device="enp1s0f0np0",what="rocep1s0f0"} 1' in text
    assert "fabric_plan_ok 0\n" in text and 'fabric_plan_node_up{node="spark4"} 1' in text
    names = [row.split()[2] for row in text.splitlines() if row.startswith("# TYPE")]
    assert len(names) == len(set(names)) and {"fabric_plan_rule_packets_total"} <= set(names)
    assert [path.name for path in tmp_path.iterdir()] == [
        "fabric.prom"
    ] and place.stat().st_mode & 0o777 == 0o644


def test_a_textfile_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(FabricPlanError, match="cannot write"):
        replace_text(tmp_path / "taken", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_json_lines_from_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = world(PLAN)
    fake = Fake(one.answer)
    monkeypatch.setattr(command, "transport_of", lambda options: fake)
    looks = iter([True, False])

    def wait(seconds: float) -> bool:
        facts_of("spark1", rules_gone(G0))(one, fake)
        return next(looks)

    monkeypatch.setattr(command, "Watch", partial(Watch, wait=wait))
    inventory = str(ROOT / "inventories" / "ring4.yaml")
    assert main(["verify", "-i", inventory, "--watch", "--once-per", "1", "--json"]) == 0
    lines = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert [row["event"] for row in lines] == ["look", "look", "finding"]
    assert (lines[2]["node"], lines[2]["interface"], lines[2]["id"]) == ("spark1", G0, "rule")
    assert {row["schema"] for row in lines} == {watching.SCHEMA}
    schema = json.loads((ROOT / "docs" / "schema" / "watch.json").read_text())
    for row in lines:
        jsonschema.Draft202012Validator(schema).validate(row)
    named = set(schema["properties"]["event"]["enum"])
    assert named == {"look", *What} and all(row.keys() <= schema["properties"].keys() for row in lines)
