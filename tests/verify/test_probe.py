"""The probe on a fabric of stand-ins: what it says of traffic, of its absence, and of noise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from fabric_plan.checks.model import Check, Verdict, Verification
from fabric_plan.checks.probe import Kind, ProbeRun, Trial, Window, probe_checks, rules_on
from fabric_plan.checks.run import verify
from fabric_plan.checks.scene import Scene
from fabric_plan.node.document import Facts, Tool, Usage
from fabric_plan.verify.probe import missing_tools, obstacles
from tests.checks.test_faults import marker_dead, neighbours
from tests.facts_builder import desired, forwards, read
from tests.planner.test_ring4 import RING4, planned, with_mesh
from tests.verify.world import World, world

PLAN = planned(RING4)
DESIRED = desired(PLAN)
F0, G0 = "enp1s0f0np0", "enP2p1s0f0np0"


def probed(one: World) -> tuple[dict[str, list[Check]], Verification]:
    probe, _ = one.probe()
    checks, after = probe.run()
    by_id: dict[str, list[Check]] = {}
    for check in checks:
        by_id.setdefault(check.id, []).append(check)
    scene = Scene.of(PLAN, DESIRED, after)
    return by_id, verify(scene, more=checks)


@cache
def sound_probe() -> tuple[dict[str, list[Check]], Verification]:
    return probed(world(PLAN))


def verdicts(checks: list[Check]) -> set[Verdict]:
    return {check.verdict for check in checks}


def test_a_sound_fabric_passes_every_trial_both_ways() -> None:
    by_id, verification = sound_probe()
    assert verification.ok, [str(root.check) for root in verification.roots]
    assert {name: len(found) for name, found in by_id.items()} == {
        "ping": 16,
        "bandwidth": 16,
        "latency": 16,
        "far": 4,
        "rule-counter": 8,
        "forwarded": 4,
        "overflow": 16,
        "sequence": 16,
        "plane-share": 8,
    }


def test_control_goes_over_the_management_and_far_trials_carry_the_label() -> None:
    one = world(PLAN)
    probed(one)
    asked = one.asked
    assert {request["peer"] for request in asked} == {f"192.168.1.{11 + i}" for i in range(4)}
    assert [request["flow_label"] for request in asked if "flow_label" in request] == [16383] * 4


@pytest.mark.parametrize("seconds", [2, 7])
def test_bandwidth_is_that_of_as_many_seconds_as_the_hardware_role_says(seconds: int) -> None:
    nodes = tuple(
        replace(node, hardware=node.hardware.model_copy(update={"bandwidth_s": seconds}))
        for node in PLAN.fabric.nodes
    )
    one = world(replace(PLAN, fabric=replace(PLAN.fabric, nodes=nodes)))
    probed(one)
    given = [request for request in one.asked if request["test"] == "ib_write_bw"]
    assert len(given) == 16
    assert all(request["seconds"] == seconds for request in given)


def test_a_dead_marker_with_software_forwarding_is_the_root() -> None:
    by_id, verification = probed(world(PLAN, {"spark1": marker_dead()}, untagged={("spark1", F0)}))
    (root,) = verification.roots
    assert (root.check.id, root.check.node, root.check.interface) == ("marker", "spark1", F0)
    assert {c.id for c in root.consequences} == {"marker-unit", "rule-counter", "forwarded"}
    assert Verdict.PASS in verdicts(by_id["far"])  # it arrives all the same: that is why it is dangerous


def test_a_noisy_idle_window_proves_nothing() -> None:
    by_id, verification = probed(world(PLAN, noise=50))
    assert verdicts(by_id["forwarded"]) == {Verdict.NOT_PROVEN}
    assert "too noisy" in by_id["forwarded"][0].read and not verification.ok


def test_a_little_of_others_traffic_in_both_windows_is_taken_off() -> None:
    by_id, _ = probed(world(PLAN, noise=2))
    assert verdicts(by_id["forwarded"]) == {Verdict.PASS}


def forwarded(count: int | None) -> dict[str, Facts]:
    known = read({}) if count is None else forwards(count)
    return {"spark1": replace(world(PLAN).facts("spark1"), snmp=known)}


@pytest.mark.parametrize(
    ("idle", "busy", "far_s", "verdict"),
    [
        (0, 0, 2.0, Verdict.PASS),
        (0, 29, 2.0, Verdict.PASS),
        (0, 30, 2.0, Verdict.FAIL),  # 1 % of two rules' 1500 frames
        (25, 54, 2.0, Verdict.PASS),
        (25, 55, 2.0, Verdict.FAIL),
        (31, 31, 2.0, Verdict.NOT_PROVEN),
        (15, 59, 4.0, Verdict.PASS),  # twice as long as the idle window: twice its count is others'
        (16, 32, 4.0, Verdict.NOT_PROVEN),
        (None, 0, 2.0, Verdict.NOT_PROVEN),
        (0, None, 2.0, Verdict.NOT_PROVEN),
        (0, -1, 2.0, Verdict.NOT_PROVEN),  # began anew
    ],
)
def test_what_the_kernel_forwarded_is_held_against_the_idle_window(
    idle: int | None, busy: int | None, far_s: float, verdict: Verdict
) -> None:
    far = [path for path in PLAN.paths if not path.direct and path.src < path.dst]
    crossing = [Trial(Kind.FAR, path, 10.0, 1500) for path in far if "spark1" in path.through]
    assert len(crossing) == 1
    start = forwarded(5)
    run = ProbeRun(
        tuple(crossing),
        Window(start, start, 1.0),
        Window(start, forwarded(None if idle is None else 5 + idle), 2.0),
        Window(start, forwarded(None if busy is None else 5 + busy), far_s),
    )
    (check,) = [c for c in probe_checks(PLAN, run) if c.id == "forwarded" and c.node == "spark1"]
    assert check.verdict is verdict, check.read


def test_an_overflowing_queue_is_the_root_of_what_the_far_end_sees() -> None:
    relay, rule = next(iter(rules_on(PLAN).values()))[0]
    _, verification = probed(world(PLAN, overflow=(relay, rule.dev)))
    (root,) = verification.roots
    assert (root.check.id, root.check.node, root.check.interface) == ("overflow", relay, rule.dev)
    assert {c.id for c in root.consequences} == {"sequence"}


def test_a_degraded_function_is_named_with_its_cable() -> None:
    _, verification = probed(world(PLAN, slow={("spark1", "roceP2p1s0f0"): 26.0}))
    bad = [root.check for root in verification.roots]
    assert ("bandwidth", "spark1", G0) in {(c.id, c.node, c.interface) for c in bad}
    assert all((c.node, c.interface) == ("spark1", G0) for c in bad)
    assert "26.00 Gb/s" in bad[0].read and "spark2" in bad[0].subject


def test_a_silent_plane_is_seen() -> None:
    silent = {"enP2p1s0f0np0", "enP2p1s0f1np1"}
    by_id, _ = probed(world(PLAN, silent=silent))
    assert {c.subject for c in by_id["plane-share"] if c.verdict is Verdict.FAIL} == {"plane 2"}


def test_a_plane_of_a_node_on_which_no_rdma_passes_is_one_finding() -> None:
    one = world(PLAN, mute={("spark1", "roceP2p1s0f0"), ("spark1", "roceP2p1s0f1")})
    by_id, verification = probed(one)
    (root,) = verification.roots
    assert (root.check.id, root.check.node, root.check.subject) == ("plane-share", "spark1", "plane 2")
    assert {c.id for c in root.consequences} <= {"bandwidth", "latency", "far", "rule-counter", "forwarded"}
    # One trial a lane shows it; the neighbours, who have less to carry in that plane, are not blamed.
    assert [c.verdict for c in by_id["bandwidth"]].count(Verdict.FAIL) == 2
    assert all("not tried" in c.read for c in by_id["latency"] if c.verdict is Verdict.NOT_PROVEN)
    assert {c.node for c in by_id["plane-share"] if c.verdict is not Verdict.PASS} == {"spark1"}


def test_a_bandwidth_of_nothing_is_a_lane_that_is_dead() -> None:
    by_id, _ = probed(world(PLAN, slow={("spark1", "roceP2p1s0f0"): 0.0}))
    (failed,) = [c for c in by_id["bandwidth"] if c.verdict is Verdict.FAIL]
    assert (failed.node, failed.interface, failed.read) == ("spark1", G0, "ib_write_bw moved nothing")
    left_out = [c for c in by_id["latency"] if c.verdict is not Verdict.PASS]
    assert {c.node for c in left_out} == {"spark1", "spark2"} and verdicts(left_out) == {Verdict.NOT_PROVEN}


def test_without_any_ping_nothing_more_is_tried_over_a_cable() -> None:
    by_id, verification = probed(world(PLAN, lost_pings={("spark1", "10.10.0.11")}))
    (lost,) = [c for c in by_id["ping"] if c.verdict is not Verdict.PASS]
    assert (lost.verdict, lost.node, lost.interface) == (Verdict.FAIL, "spark1", F0)
    left_out = [c for c in (*by_id["bandwidth"], *by_id["latency"]) if c.verdict is not Verdict.PASS]
    assert [c.verdict for c in left_out] == [Verdict.NOT_PROVEN] * 4
    assert all("no ping from spark1 to spark2, plane 1 was answered" in c.read for c in left_out)
    (root,) = verification.roots
    assert root.check is lost


def test_swapped_cables_are_named_by_whom_the_ports_hear() -> None:
    """Nobody answers across them, so the kernel has learned nothing: only the frames of the probe tell."""
    ends = {
        (path.src, str(PLAN.node(path.dst).at(path.into.port, path.plane).address).partition("/")[0])
        for path in PLAN.paths
        if path.direct and "spark1" in (path.src, path.dst)
    }
    nobody = {name: neighbours(lambda n: replace(n, mac=None, states=("FAILED",))) for name in DESIRED}
    _, verification = probed(world(PLAN, nobody, swapped="spark1", lost_pings=ends))
    (root,) = verification.roots
    assert (root.check.id, root.check.node, root.check.interface) == ("cable", "spark1", F0)
    assert "LLDP: spark4" in root.check.read
    assert {c.id for c in root.consequences} >= {"cable", "ping", "bandwidth", "latency", "far"}


def without_perftest(facts: Facts) -> Facts:
    tools = {**facts.tools, "ib_write_bw": Tool(None), "ib_write_lat": Tool(None)}
    return replace(facts, tools=tools)


def test_without_perftest_nothing_of_rdma_is_proven_and_it_says_what_to_install() -> None:
    one = world(PLAN, dict.fromkeys(DESIRED, without_perftest))
    by_id, verification = probed(one)
    for name in ("bandwidth", "latency", "far", "rule-counter", "forwarded", "overflow", "sequence"):
        assert verdicts(by_id[name]) == {Verdict.NOT_PROVEN}, name
    assert verdicts(by_id["plane-share"]) == {Verdict.NOT_PROVEN}
    assert verdicts(by_id["ping"]) == {Verdict.PASS}
    assert not verification.ok
    facts = {name: one.facts(name) for name in DESIRED}
    (first, *_) = missing_tools(facts)
    assert first.verdict is Verdict.NOT_PROVEN and "apt install perftest" in first.mend


def test_a_peer_that_is_down_makes_its_paths_not_proven() -> None:
    one = world(PLAN)
    probe, fake = one.probe()
    fake.unreachable.add("spark3")
    checks, _ = probe.run()
    rdma = [c for c in checks if c.id in ("bandwidth", "far")]
    to_it = [c for c in rdma if c.node == "spark3" or c.subject.startswith("to spark3 ")]
    assert to_it and verdicts(to_it) == {Verdict.NOT_PROVEN}


def test_never_while_rdma_is_in_use_unless_permitted() -> None:
    one = world(PLAN)
    facts = {name: one.facts(name) for name in DESIRED}
    busy = replace(facts["spark2"].rdma, usage=Usage(True, ("rocep1s0f0: RC queue pair of vllm",)))
    facts["spark2"] = replace(facts["spark2"], rdma=busy)
    (stop,) = obstacles(PLAN, facts, busy=False)
    assert (stop.node, stop.verdict) == ("spark2", Verdict.NOT_PROVEN) and "vllm" in stop.read
    assert not list(obstacles(PLAN, facts, busy=True))


@pytest.mark.parametrize("paths", ["opposite", "universal", "balanced"])
def test_every_rule_is_met_by_some_path(paths: str) -> None:
    plan = planned(with_mesh(paths))
    met = {place for rules in rules_on(plan).values() for place in rules}
    assert met == {(node.name, rule) for node in plan.nodes for rule in node.rules}
