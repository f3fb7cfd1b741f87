"""Every call of an apply fails in every way on every node: each node ends old or new, and the report says
which.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from fabric_plan.apply import deploy, session
from fabric_plan.apply.deploy import Deployment, Findings, Options
from fabric_plan.apply.ends import End, Report
from fabric_plan.apply.observer import Observer
from fabric_plan.compare.model import StepKind
from fabric_plan.errors import FabricPlanError, RefusalError, TransportError
from fabric_plan.facts.load import facts_of
from fabric_plan.node.document import Facts, Usage
from fabric_plan.transport.base import Target
from tests.apply.fabric_of_fakes import FakeConnection, FakeFabric, Fault, KilledError
from tests.facts_builder import desired, live
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned

WANTS = desired(planned((ROOT / "inventories" / "ring4.yaml").read_text()))
# The matrix runs on one plane: half the functions, the same order of events.
SMALL = desired(planned((ROOT / "inventories" / "ring4.yaml").read_text() + "planes: {1: managed}\n"))
NODES = tuple(WANTS)


class Clock:
    """A clock that sleeping moves, so that deadlines pass without anybody waiting."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(session, "time", found)
    monkeypatch.setattr(deploy, "time", found)
    known: dict[int, tuple[object, Facts]] = {}

    def facts_once(document: object, *, node: str) -> Facts:
        # The same document is decoded once; it is kept, so that its id stays its own.
        if id(document) not in known:
            known[id(document)] = (document, facts_of(document, node=node))
        return known[id(document)][1]

    monkeypatch.setattr(deploy, "facts_of", facts_once)
    return found


def deployment(fabric: FakeFabric, options: Options | None = None) -> Deployment:
    return Deployment(
        intent="apply",
        fabric="ring4",
        holder="tester@here",
        interfaces={
            name: tuple(function.netdev for function in node.want.functions)
            for name, node in fabric.nodes.items()
        },
        states=lambda: {name: node.want for name, node in fabric.nodes.items()},
        targets={name: Target(name, "127.0.0.1") for name in fabric.nodes},
        transport=fabric,
        options=options or Options(confirm_s=60, allow_disruption=True),
        observer=Observer(),
        ask=lambda findings: True,
    )


def test_first_apply_then_a_second_that_does_nothing() -> None:
    fabric = FakeFabric(WANTS)
    report = deployment(fabric).run()
    assert [end.end for end in report.ends] == [End.APPLIED] * 4
    assert {node.committed for node in fabric.nodes.values()} == {"new"}
    assert all(node.holder is None and not node.armed for node in fabric.nodes.values())
    fabric.calls.clear()
    again = deployment(fabric).run()
    assert [end.end for end in again.ends] == [End.UNCHANGED] * 4
    assert sorted(fabric.calls) == [(name, "collect") for name in NODES]


def test_a_slow_kind_of_host_is_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = FakeFabric(SMALL)
    asked: dict[str, set[float]] = {}
    answer = FakeConnection.call

    def call(self: FakeConnection, verb: str, request: dict[str, object], *, limit_s: float) -> object:
        asked.setdefault(verb, set()).add(limit_s)
        if verb == "collect":
            assert request["tool_limit_s"] == 16.0
        return answer(self, verb, request, limit_s=limit_s)

    monkeypatch.setattr(FakeConnection, "call", call)
    one = deployment(fabric)
    one.targets = {name: replace(target, patience=8.0) for name, target in one.targets.items()}
    assert one.run().ok
    assert asked["collect"] == {160.0} and asked["stage"] == {480.0}


@pytest.mark.parametrize("verb", ["renew", "rdma-use", "status", "confirm", "collect"])
def test_a_node_out_of_reach_for_a_while_stops_nothing(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tries in a row fail, from the second question on: for the first facts nobody waits."""
    monkeypatch.setattr(session, "RENEW_AFTER_S", -1.0)
    monkeypatch.setattr(session, "RENEW_PART", 0.0)
    fabric = FakeFabric(SMALL)
    seen = Counter[str]()
    answer = FakeConnection.call

    def call(self: FakeConnection, asked: str, request: dict[str, object], *, limit_s: float) -> object:
        if (self.target.name, asked) == (NODES[0], verb):
            seen[asked] += 1
            if seen[asked] in (2, 3, 4) or (verb == "confirm" and seen[asked] == 1):
                raise TransportError("the connection is dead", where=self.target.name)
        return answer(self, asked, request, limit_s=limit_s)

    monkeypatch.setattr(FakeConnection, "call", call)
    report = deployment(fabric).run()
    assert seen[verb] > 4 and report.ok, (seen, report.ends)


def test_disruptive_steps_run_one_at_a_time_and_reloads_after_addresses() -> None:
    fabric = FakeFabric(WANTS)
    told: list[str] = []
    one = deployment(fabric)
    one.observer = Observer(told.append)
    one.run()
    disruptive = [line for line in told if "disrupts" in line]
    kinds = [line.split(": ")[1].split()[0] for line in disruptive]
    assert kinds == ["netplan"] * 16 + ["hairpin"] * 16
    assert [line.split(":")[0] for line in disruptive] == [
        n for _ in range(2) for n in NODES for _ in range(4)
    ]
    for node in fabric.nodes.values():
        assert node.done[0] == StepKind.PLACE
        assert node.done[-1] in (StepKind.MESH, StepKind.UNITS)
        assert node.done.index("mesh") > max(i for i, kind in enumerate(node.done) if kind == "hairpin")


def test_no_node_goes_back_while_another_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "RENEW_AFTER_S", -1.0)
    fabric = FakeFabric(SMALL)
    deployment(fabric).run()
    runs = [call for call in fabric.calls if call[1] in ("run", "renew")]
    disruptive = runs[len(NODES) : -2 * len(NODES)]
    # All four are renewed before each step of one.
    assert len(disruptive) == 16 * 5 + 4
    assert all({name for name, verb in disruptive[i : i + 4]} == set(NODES) for i in range(0, 80, 5))
    assert all(disruptive[i + 4][1] == "run" for i in range(0, 80, 5))


@pytest.mark.parametrize(
    ("patience", "confirm_s", "fresh_s"), [(1.0, 180, 10), (15.0, 1800, 150), (15.0, 180, 30), (1.0, 30, 5)]
)
def test_a_lease_is_renewed_when_it_is_no_longer_fresh(
    clock: Clock, patience: float, confirm_s: int, fresh_s: int
) -> None:
    fabric = FakeFabric(SMALL)
    target = Target(NODES[0], "127.0.0.1", patience=patience)
    one = session.Session(target, fabric, confirm_s, renewed_s=clock.monotonic())
    clock.sleep(fresh_s - 0.5)
    one.renew()
    assert fabric.nodes[NODES[0]].done == []
    clock.sleep(1)
    one.renew()
    assert fabric.nodes[NODES[0]].done == ["renew"]


def test_a_rule_that_is_wrong_on_one_node_is_that_nodes_mesh_alone() -> None:
    fabric = FakeFabric(WANTS)
    for node in fabric.nodes.values():
        node.lives = node.committed = "new"
    wrong = fabric.nodes["spark2"]
    facts = live(wrong.want)
    dev = wrong.want.rules[0].dev
    rules = tuple(replace(rule, set_dst_mac="02:00:00:00:00:01") for rule in facts.tc[dev].rules.value or ())
    wrong.old = replace(
        facts, tc={**facts.tc, dev: replace(facts.tc[dev], rules=replace(facts.tc[dev].rules, value=rules))}
    )
    wrong.lives = "old"
    report = deployment(fabric, Options(confirm_s=60)).run()
    assert {end.node: end.end for end in report.ends} == {
        "spark1": End.UNCHANGED,
        "spark2": End.APPLIED,
        "spark3": End.UNCHANGED,
        "spark4": End.UNCHANGED,
    }
    assert [kind for kind in wrong.done if kind not in ("place", "forward")] == ["mesh"]
    assert all(node.done == [] for name, node in fabric.nodes.items() if name != "spark2")


def test_disruption_needs_permission_and_nothing_is_touched_without() -> None:
    fabric = FakeFabric(WANTS)
    with pytest.raises(RefusalError) as caught:
        deployment(fabric, Options(confirm_s=60)).run()
    assert caught.value.id == "disruption-not-allowed"
    assert {verb for _, verb in fabric.calls} <= {"collect", "rehearse"}


def test_no_is_no() -> None:
    fabric = FakeFabric(WANTS)
    one = deployment(fabric)
    seen: list[Findings] = []

    def ask(findings: Findings) -> bool:
        seen.append(findings)
        return False

    one.ask = ask
    with pytest.raises(RefusalError, match="nothing was changed"):
        one.run()
    assert seen[0].diffs["spark1"].differs
    assert {verb for _, verb in fabric.calls} <= {"collect", "rehearse"}


@pytest.mark.parametrize("user", NODES)
def test_rdma_in_use_anywhere_stops_before_anything(user: str) -> None:
    fabric = FakeFabric(WANTS)
    node = fabric.nodes[user]
    node.old = replace(node.old, rdma=replace(node.old.rdma, usage=Usage(True, ("sglang pid 7",))))
    with pytest.raises(RefusalError) as caught:
        deployment(fabric).run()
    assert caught.value.id == "rdma-in-use"
    assert {verb for _, verb in fabric.calls} <= {"collect", "rehearse"}


def test_rdma_that_begins_during_the_apply_stops_the_reload() -> None:
    """An engine that starts on spark4 after the preflight: the first reload is refused and every node goes
    back.
    """
    fabric = FakeFabric(WANTS)
    one = deployment(fabric)

    def engine_starts(text: str) -> None:
        if "hairpin" in text and not fabric.hit:
            fabric.hit = True
            full = live(fabric.nodes["spark4"].want)
            busy = replace(full, rdma=replace(full.rdma, usage=Usage(True, ("sglang pid 7",))))
            document = json.loads(json.dumps(busy, default=vars))
            fabric.nodes["spark4"].document = lambda: document  # type: ignore[method-assign]

    one.observer = Observer(engine_starts)
    report = one.run()
    assert {end.end for end in report.ends} == {End.ROLLED_BACK}
    assert any("RDMA is in use" in (end.message or "") for end in report.ends)
    assert not any("hairpin" in node.done for node in fabric.nodes.values())


def run(fabric: FakeFabric) -> Report | FabricPlanError | KilledError:
    try:
        return deployment(fabric).run()
    except (FabricPlanError, KilledError) as error:
        return error


def calls_of_a_good_run() -> dict[tuple[str, str], int]:
    fabric = FakeFabric(SMALL)
    deployment(fabric).run()
    return dict(fabric.counts)


VERBS = ("collect", "rehearse", "begin", "stage", "run", "rdma-use", "status", "confirm", "release")
KINDS = ("before", "after", "dead", "refuse", "killed", "killed-after")


def positions(verb: str, most: int) -> list[int]:
    """The first calls, one in the middle and the last: the others repeat what these say."""
    return sorted({1, 2, 3, most // 2, most - 1, most} & set(range(1, most + 1)))


def faults() -> Iterator[Fault]:
    counts = calls_of_a_good_run()
    for node, verb in product(NODES, VERBS):
        most = counts.get((node, verb), 0)
        for nth, kind in product(positions(verb, most), KINDS):
            if not (kind == "refuse" and verb in ("collect", "status", "release")):
                yield Fault(node, verb, nth, kind)
        if verb == "run":
            for nth in positions(verb, most):
                yield Fault(node, verb, nth, "step")


def judge(fabric: FakeFabric, result: Report | FabricPlanError | KilledError) -> list[str]:
    """Return what is wrong after a faulty run and after every timer: a stranded node, or a report that is not
    true.
    """
    wrong = []
    at_the_report = {name: (node.lives, node.committed) for name, node in fabric.nodes.items()}
    fabric.later()
    for name, node in fabric.nodes.items():
        if node.lives != node.committed:
            wrong.append(f"{name} is stranded: {node.lives} lives, {node.committed} is committed")
        if node.armed:
            wrong.append(f"{name} stays armed")
    if isinstance(result, FabricPlanError):
        changed = [name for name, state in at_the_report.items() if state != ("old", "old")]
        wrong += [f"{name} was changed, and only an error was raised" for name in changed]
    elif isinstance(result, Report):
        for end in result.ends:
            node, before = fabric.nodes[end.node], at_the_report[end.node]
            if end.end is End.APPLIED and node.committed != "new":
                wrong.append(f"{end.node} is said to be applied and is not")
            if end.end in (End.ROLLED_BACK, End.UNTOUCHED) and before != ("old", "old"):
                wrong.append(f"{end.node} is said to be {end.end} and is {before}")
            if end.end is End.ROLLBACK_FAILED and end.node not in (fabric.fault.node if fabric.fault else ""):
                wrong.append(f"{end.node} could not go back without a fault of its own")
        if result.ok and {node.committed for node in fabric.nodes.values()} != {"new"}:
            wrong.append("all is said to be well and is not")
    return wrong


def try_all(chosen: list[Fault]) -> None:
    hit, stranded = 0, []
    for fault in chosen:
        fabric = FakeFabric(SMALL, fault)
        result = run(fabric)
        hit += fabric.hit
        stranded += [f"{fault}: {text}" for text in judge(fabric, result)]
    print(
        f"\nfault matrix of the controller: {len(chosen)} faults, {hit} hit, {len(stranded)} "
        "stranded or untrue"
    )
    assert not stranded, "\n".join(stranded[:20])
    assert hit == len(chosen)


def test_faults_of_one_node() -> None:
    try_all([fault for fault in faults() if fault.node == "spark3"][::2])


@pytest.mark.faults
def test_the_fault_matrix() -> None:
    chosen = list(faults())
    assert len(chosen) > 400
    try_all(chosen)


@pytest.mark.parametrize("node", NODES)
def test_a_failing_step_takes_every_node_back_and_names_it(node: str) -> None:
    fabric = FakeFabric(WANTS, Fault(node, "run", 3, "step"))
    result = run(fabric)
    assert isinstance(result, Report)
    assert {end.end for end in result.ends} == {End.ROLLED_BACK}
    said = {end.node: end.message for end in result.ends if end.message}
    assert list(said) == [node]
    assert "the tool said no" in (said[node] or "")


def test_a_locked_node_stops_all_before_anything() -> None:
    fabric = FakeFabric(WANTS, Fault("spark3", "begin", 1, "refuse"))
    result = run(fabric)
    assert isinstance(result, FabricPlanError)
    assert "refused begin" in result.message
    assert all(node.holder is None for node in fabric.nodes.values())
    assert all(node.done == [] for node in fabric.nodes.values())


def test_an_unreachable_node_stops_all_before_anything() -> None:
    fabric = FakeFabric(WANTS)
    fabric.unreachable.add("spark4")
    result = run(fabric)
    assert isinstance(result, FabricPlanError)
    assert result.where == "spark4"
    assert {verb for _, verb in fabric.calls} == {"collect"}
