"""Discover: the same answers from facts as from folders, cables that were heard, and nothing guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fabric_plan.cli.main import main
from fabric_plan.discover.evidence import Login
from fabric_plan.discover.from_facts import evidence, found_node
from fabric_plan.discover.infer import Outcome, infer
from fabric_plan.discover.live import Asked, ask, probe
from fabric_plan.errors import FabricPlanError
from fabric_plan.node.document import Facts
from fabric_plan.resources import hardware_roles
from fabric_plan.transport.fake import Fake
from tests.discover.documents import document, empty, hearing, of_case, spark
from tests.discover.test_cases import CASES, NAMES, adopt, expected

P1 = {"f0": "enp1s0f0np0", "f1": "enp1s0f1np1"}
P2 = {"f0": "enP2p1s0f0np0", "f1": "enP2p1s0f1np1"}
DUMPED = [name for name in NAMES if any((CASES / name).glob("nodes/*/ip-addr.json"))]


@pytest.fixture
def blank(tmp_path: Path) -> Facts:
    return empty(tmp_path / "blank")


def discovered(facts: Mapping[str, Facts], *, ranked: bool = True) -> Outcome:
    role = hardware_roles()["dgx-spark"]
    nodes = tuple(found_node(name, role, one, Login()) for name, one in facts.items())
    return infer(evidence(nodes, facts, ranked=ranked, declared=None), hardware_roles())


def messages(outcome: Outcome) -> str:
    return "\n".join(line for error in outcome.refusals for line in error.lines())


def ring(blank: Facts, cables: Sequence[tuple[str, str, str, str]]) -> dict[str, Facts]:
    """Return four Sparks that hear each other over `cables`, without any address."""
    heard: dict[str, list[tuple[str, str | None, str]]] = {f"s{i}": [] for i in range(1, 5)}
    for a, port_a, b, port_b in cables:
        for plane in (P1, P2):
            heard[a].append((plane[port_a], b, plane[port_b]))
            heard[b].append((plane[port_b], a, plane[port_a]))
    return {name: hearing(spark(name, i, blank), *heard[name]) for i, name in enumerate(heard, start=1)}


RING = [
    ("s1", "f0", "s2", "f1"),
    ("s2", "f0", "s3", "f1"),
    ("s3", "f0", "s4", "f1"),
    ("s4", "f0", "s1", "f1"),
]


@pytest.mark.parametrize("name", DUMPED)
def test_saved_facts_give_what_the_folder_gives(name: str, tmp_path: Path, blank: Facts) -> None:
    order = [node["name"] for node in _declared(name)]
    for node in order:
        facts = of_case(CASES / name / "nodes" / node, blank)
        (tmp_path / f"{node}.json").write_text(json.dumps(document(facts)))
    out = tmp_path / "out" / "inventory.yaml"
    code = main(["discover", *order, "--facts", str(tmp_path), "-o", str(out)])
    folder = adopt(CASES / name)
    assert code == (0 if folder.text is not None else 1)
    assert out.exists() == (folder.text is not None)
    if folder.text is not None:
        kept = [line for line in folder.text.splitlines() if "mgmt" not in line]
        assert out.read_text().splitlines() == kept, "only the folder's inventory.yaml knows the way in"


def _declared(name: str) -> list[dict[str, Any]]:
    import yaml

    nodes: list[dict[str, Any]] = yaml.safe_load((CASES / name / "inventory.yaml").read_text())["nodes"]
    return nodes


def test_broken_and_contradicting_files_are_named_from_facts_too(blank: Facts) -> None:
    name = "15-nul-file-and-nm-mirror"
    facts = {
        node: of_case(CASES / name / "nodes" / node, spark(node, i, blank, _kit(i)))
        for i, node in enumerate(("kit-a", "kit-b"), start=1)
    }
    said = messages(discovered(facts))
    for word in expected(name)["refuse_must_name"]:
        assert word in said
    for word in expected(name)["refuse_must_not_name"]:
        assert word not in said


def _kit(i: int) -> dict[str, str]:
    return {"enp1s0f0np0": f"10.55.100.{10 + i}/24", "enP2p1s0f0np0": f"10.55.101.{10 + i}/24"}


def test_nodes_that_only_hear_each_other_become_a_ring(blank: Facts) -> None:
    got = discovered(ring(blank, RING))
    assert not got.refusals, messages(got)
    assert list(got.order) == ["s1", "s2", "s3", "s4"]
    assert {segment.basis for segment in got.segments} == {"lldp"}
    assert {notice.id for notice in got.notices} == {"cable-without-addresses"}
    assert got.text is not None
    assert "subnet:" not in got.text, "no address was there, so none is pinned"


def test_factory_addresses_do_not_stand_in_the_way_of_what_was_heard(blank: Facts) -> None:
    """Out of the box every port chooses a link-local address: no cabling, and no contradiction either."""
    from dataclasses import replace

    facts = ring(blank, RING)
    for i, name in enumerate(facts):
        chosen = {dev: f"169.254.{i}.{j}/16" for j, dev in enumerate([*P1.values(), *P2.values()])}
        facts[name] = replace(spark(name, i + 1, blank, chosen), lldp=facts[name].lldp)
    got = discovered(facts)
    assert not got.refusals, messages(got)
    assert got.text is not None and "169.254" not in got.text
    assert list(got.order) == ["s1", "s2", "s3", "s4"]


def test_two_loops_are_refused_with_the_fewest_swaps(blank: Facts) -> None:
    cables = [
        ("s1", "f0", "s2", "f1"),
        ("s2", "f0", "s1", "f1"),
        ("s3", "f0", "s4", "f1"),
        ("s4", "f0", "s3", "f1"),
    ]
    said = messages(discovered(ring(blank, cables)))
    assert said.count("swap the ends") == 1
    assert "s1 f1" in said
    assert "s3 f1" in said


def test_addresses_that_contradict_the_cable_are_refused(blank: Facts) -> None:
    facts = {
        "a": hearing(spark("a", 1, blank, {P1["f0"]: "10.1.0.1/24"}), (P1["f0"], "b", P1["f1"])),
        "b": spark("b", 2, blank, {P1["f0"]: "10.1.0.2/24"}),
    }
    got = discovered(facts)
    assert [error.id for error in got.refusals] == ["heard-otherwise"]
    assert "a f0 hears b f1" in messages(got)


def test_a_port_that_hears_two_others_has_a_switch_behind_it(blank: Facts) -> None:
    facts = {name: spark(name, i, blank) for i, name in enumerate(("a", "b", "c"), start=1)}
    facts["a"] = hearing(facts["a"], (P1["f0"], "b", P1["f0"]), (P1["f0"], "c", P1["f0"]))
    assert "heard-several" in [error.id for error in discovered(facts).refusals]


def test_a_rail_whose_switch_lets_the_frames_through_is_a_rail(blank: Facts) -> None:
    names = ("a", "b", "c")
    facts = {n: spark(n, i, blank, {P1["f0"]: f"10.1.0.{i}/24"}) for i, n in enumerate(names, start=1)}
    for name in names:
        facts[name] = hearing(facts[name], *((P1["f0"], other, P1["f0"]) for other in names if other != name))
    got = discovered(facts)
    assert not got.refusals, messages(got)
    assert got.topology is not None and got.topology.kind == "switched"


def test_a_cable_from_a_node_to_itself_is_refused_and_a_twin_is_not_one(blank: Facts) -> None:
    facts = {
        name: spark(name, i, blank, {P1["f0"]: f"10.1.0.{i}/24"}) for i, name in enumerate("ab", start=1)
    }
    facts["a"] = hearing(facts["a"], (P1["f0"], "a", P2["f0"]), (P1["f0"], "b", P1["f0"]))
    assert not discovered(facts).refusals
    facts["a"] = hearing(facts["a"], (P1["f1"], "a", P1["f0"]))
    assert "a f0 and a f1 hear each other" in messages(discovered(facts))


def test_a_neighbour_is_known_by_its_mac_alone(blank: Facts) -> None:
    facts = {name: spark(name, i, blank) for i, name in enumerate(("a", "b"), start=1)}
    facts["a"] = hearing(facts["a"], (P1["f0"], None, "a6:3c:99:00:02:06"))
    (segment,) = discovered(facts).segments
    assert str(segment) == "a f0 - b f1", "plane 2's function hears it too: one cable a port"


def test_an_unknown_neighbour_is_reported_and_not_guessed(blank: Facts) -> None:
    facts = {
        "a": hearing(spark("a", 1, blank, {P1["f0"]: "10.1.0.1/24"}), (P1["f1"], "tor-switch", "swp7")),
        "b": spark("b", 2, blank, {P1["f0"]: "10.1.0.2/24"}),
    }
    got = discovered(facts)
    assert not got.refusals
    assert any(n.id == "unknown-link" and n.text.startswith("b f1 has a link") for n in got.notices)
    assert any("tor-switch swp7" in n.text and n.id == "unknown-neighbour" for n in got.notices)


def test_nothing_to_go_by_is_said_with_the_ways_out(blank: Facts) -> None:
    said = messages(discovered({name: spark(name, i, blank) for i, name in enumerate(("a", "b"), start=1)}))
    assert "no cable can be told" in said
    assert "--probe-cables" in said


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("spark1", Asked(None, "spark1")),
        ("spark1.lan", Asked(None, "spark1.lan")),
        ("nvidia@192.168.1.11:2222", Asked(None, "192.168.1.11", "nvidia", 2222)),
        ("one=nvidia@192.168.1.11", Asked("one", "192.168.1.11", "nvidia")),
    ],
)
def test_how_a_node_is_named(word: str, want: Asked) -> None:
    assert Asked.parse(word) == want


@pytest.mark.parametrize("word", ["", "a b", "-oProxyCommand=x", "a;b", "x=", "h:port", "../x"])
def test_what_is_no_node(word: str) -> None:
    with pytest.raises(FabricPlanError):
        Asked.parse(word)


class Wired:
    """A transport whose nodes answer with facts, and to a probe with whom their cables lead to."""

    def __init__(self, facts: Mapping[str, Facts], cables: Sequence[tuple[str, str, str, str]]) -> None:
        self.facts = facts
        self.asked: dict[str, list[str]] = {}
        self.skipped: dict[str, dict[str, str]] = {}
        self.peer = {}
        for a, port_a, b, port_b in cables:
            for plane in (P1, P2):
                self.peer[a, plane[port_a]] = (b, plane[port_b])
                self.peer[b, plane[port_b]] = (a, plane[port_a])

    def answer(self, node: str, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        if verb == "collect":
            return document(self.facts[node])
        self.asked[node] = request["interfaces"]
        there = [(dev, self.peer[node, dev]) for dev in request["interfaces"] if (node, dev) in self.peer]
        heard = [{"dev": dev, "system": who, "port": port} for dev, (who, port) in there]
        return {"heard": heard, "skipped": self.skipped.get(node, {})}


def test_probing_asks_the_fabric_functions_and_finds_the_ring(
    blank: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired = Wired(
        {name: spark(name, i, blank) for i, name in enumerate(("s1", "s2", "s3", "s4"), start=1)}, RING
    )
    fake = Fake(wired.answer)
    monkeypatch.setattr("fabric_plan.cli.discover.transport_of", lambda options: fake)
    out = tmp_path / "home.yaml"
    assert main(["discover", "s1", "s2", "s3", "s4", "--probe-cables", "-o", str(out)]) == 0
    text = out.read_text()
    assert [line.strip() for line in text.splitlines() if "ends" in line] == [
        "- ends: [s1.f0, s2.f1]",
        "- ends: [s2.f0, s3.f1]",
        "- ends: [s3.f0, s4.f1]",
        "- ends: [s4.f0, s1.f1]",
    ]
    assert set(wired.asked) == {"s1", "s2", "s3", "s4"}
    for interfaces in wired.asked.values():
        assert sorted(interfaces) == sorted([*P1.values(), *P2.values()]), "never enP7s7"


def test_the_way_in_is_not_probed_even_over_the_fabric(
    blank: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    facts = {name: spark(name, i, blank) for i, name in enumerate(("s1", "s2"), start=1)}
    ssh = facts["s1"].ssh
    assert ssh is not None
    facts["s1"] = replace(facts["s1"], ssh=replace(ssh, dev=P1["f1"]))
    wired = Wired(facts, [("s1", "f0", "s2", "f0")])
    monkeypatch.setattr("fabric_plan.cli.discover.transport_of", lambda options: Fake(wired.answer))
    wired.skipped["s2"] = {P1["f1"]: "carries a default route"}
    assert main(["discover", "s1", "s2", "--probe-cables", "-o", str(tmp_path / "x.yaml")]) == 0
    assert f"s2 {P1['f1']} was not probed: it carries a default route" in capsys.readouterr().err
    assert P1["f1"] not in wired.asked["s1"]


def test_every_node_that_cannot_be_reached_is_named(blank: Facts) -> None:
    fake = Fake(Wired({"a": spark("a", 1, blank)}, []).answer, unreachable={"b", "c"})
    with pytest.raises(FabricPlanError) as caught:
        ask(fake, [Asked(None, name) for name in ("a", "b", "c")], lambda text: None)
    assert caught.value.where == "b"
    assert "also: c" in caught.value.message


def test_a_probe_without_sense_is_an_error(blank: Facts) -> None:
    fake = Fake(lambda node, verb, request: {"heard": [{"dev": 3}]})
    connection = fake.connect(Asked("a", "a").target)
    with pytest.raises(FabricPlanError, match="makes no sense"):
        probe({"a": connection}, {"a": ["enp1s0f0np0"]}, lambda text: None)
