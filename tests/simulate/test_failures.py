"""What a failure says: its kind, the path, the hops up to where it went wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from fabric_plan.planner.model import Plan, Rule
from fabric_plan.simulate.proof import Failure
from fabric_plan.simulate.prove import prove
from tests.simulate.mutations import Mutation, mutations, with_node
from tests.strategies import Sketch

# What was done to the plan, and the kinds of failure that always come of it.
_KINDS = {
    "wrong dst_mac": {"foreign-match", "no-rule"},
    "wrong src_mac": {"no-rule"},
    "wrong tag": {"no-rule"},
    "wrong redirect": {"redirect"},
    "rule on another device": {"no-rule", "redirect", "foreign-match"},
    "redirect to nothing": {"no-device", "redirect"},
    "missing rule": {"no-rule"},
    "rule twice": {"rule-collision"},
    "missing marker": {"kernel-forwarded"},
    "marker twice": {"two-markers"},
    "marker on another device": {"no-device", "kernel-forwarded"},
    "marker without a destination": {"kernel-forwarded"},
    "marker tags a neighbour": {"stray-marker"},
    "missing route": {"no-route"},
    "gateway off the cable": {"gateway", "arp"},
    "missing relay route": {"no-relay-route"},
    "relay route through the wrong neighbour": {"no-relay-route", "stray-route", "route-source"},
    "foreign source": {"route-source"},
    "duplicate address": {"duplicate-address"},
    "two planes in one subnet": {"shared-subnet", "address-outside"},
    "address outside its subnet": {"address-outside", "no-route"},
    "network address": {"address-outside"},
    "missing address": {"no-address"},
    "missing MAC": {"no-mac"},
    "unmanaged": {"unmanaged"},
    "duplicate MAC": {"duplicate-mac"},
    "swapped cable ends": {"address-outside", "arp"},
    "cable pulled out": {"no-cable", "arp"},
    "missing reverse path": {"no-mirror"},
}


@cache
def _mutated() -> dict[str, list[Mutation]]:
    found: dict[str, list[Mutation]] = {}
    for mutation in mutations(Sketch(mesh="opposite").plan()):
        found.setdefault(mutation.what, []).append(mutation)
    return found


@pytest.mark.parametrize("what", _KINDS)
def test_a_fault_has_its_kind(what: str) -> None:
    some = _mutated()[what]
    for mutation in some[:: max(1, len(some) // 6)]:
        assert {failure.kind for failure in prove(mutation.plan).failures} >= _KINDS[what]


def _broken(change: Callable[[Rule], Rule]) -> tuple[Failure, ...]:
    """Break the rule by which n1 relays from n0 to n2 in plane 1."""
    plan = Sketch(mesh="opposite").plan()
    node = plan.node("n1")
    rules = tuple(change(rule) if rule.senders == ("n0",) else rule for rule in node.rules)
    return prove(with_node(plan, replace(node, rules=rules))).failures


def test_a_frame_to_a_stranger_is_lost_on_the_second_cable() -> None:
    (failure,) = _broken(lambda rule: replace(rule, set_dst_mac="02:de:ad:00:00:01"))
    assert (failure.kind, failure.path) == ("lost", "n0 to n2, plane 1 through n1")
    assert failure.trace == (
        "n0 enp1s0f0np0 sends 0x88b5 to 02:fa:b0:01:01:01",
        "n1 enp1s0f1np1 relays IPv4 to 02:de:ad:00:00:01",
    )
    assert failure.message == "nobody on the cable of n1 enp1s0f0np0 accepts frames to 02:de:ad:00:00:01"


def test_a_frame_that_keeps_its_tag_ends_at_the_far_node() -> None:
    (failure,) = _broken(lambda rule: replace(rule, set_type=0x88B5))
    assert (failure.kind, failure.path) == ("tagged-at-end", "n0 to n2, plane 1 through n1")
    assert failure.trace[-1] == "n2 enp1s0f1np1 drops 0x88b5 to 02:fa:b0:02:01:01"


def test_a_frame_to_the_far_twin_leaves_its_plane() -> None:
    (failure,) = _broken(lambda rule: replace(rule, set_dst_mac="02:fa:b0:02:01:02"))
    assert (failure.kind, failure.path) == ("off-path", "n0 to n2, plane 1 through n1")
    assert failure.trace[-1].startswith("n2 enP2p1s0f1np1 receives")


def test_a_tag_that_no_marker_sets_leaves_it_to_the_kernel_and_is_counted() -> None:
    plan = Sketch(mesh="opposite").plan()
    node = plan.node("n0")
    proof = prove(with_node(plan, replace(node, markers=node.markers[1:])))
    (failure,) = [failure for failure in proof.failures if failure.kind == "kernel-forwarded"]
    assert (proof.kernel_forwarded, proof.rdma_paths) == (1, 23)
    assert failure.trace[-1] == "n1 enp1s0f1np1 forwards IPv4 to 02:fa:b0:01:01:01"


def _rerouted(plan: Plan, node: str, toward: str) -> Plan:
    """Send everything that `node` routes through the neighbour `toward`."""
    changed = plan.node(node)
    path = next(p for p in plan.paths if p.src == node and p.dst == toward and p.direct and p.plane == 1)
    via = plan.node(toward).at(path.into.port, 1).address
    dev = changed.at(path.out.port, 1).function.netdev
    assert via is not None
    routes = tuple(replace(r, via=via.ip, dev=dev) if r.plane == 1 else r for r in changed.kernel_routes)
    return with_node(plan, replace(changed, kernel_routes=routes))


def test_two_kernels_that_send_a_packet_to_each_other_are_both_named() -> None:
    proof = prove(_rerouted(Sketch(nodes=5, shape="line").plan(), "n2", "n1"))
    loops = [failure for failure in proof.failures if failure.kind == "tcp-loop"]
    assert loops and all("it goes round n1, n2" in failure.message for failure in loops)
    assert loops[0].path.startswith("n1 to n3 ") and loops[0].trace == (
        "n1 enp1s0f0np0 sends to n2 enp1s0f1np1",
        "n2 enp1s0f1np1 sends to n1 enp1s0f0np0",
    )


def test_the_long_way_round_arrives_and_is_a_failure_all_the_same() -> None:
    proof = prove(_rerouted(Sketch(nodes=4).plan(), "n0", "n3"))
    (failure,) = proof.failures
    assert (failure.kind, failure.path) == ("detour", "n0 to n1 10.10.2.10, TCP")
    assert "n0 sends it away" in failure.message and len(failure.trace) == 3


def test_one_cause_is_told_once_with_how_many_flows_it_breaks() -> None:
    plan = Sketch(nodes=8).plan()
    node = plan.nodes[0]
    proof = prove(with_node(plan, replace(node, kernel_routes=node.kernel_routes[1:])))
    (failure,) = proof.failures
    assert failure.path.startswith("n0 to ") and "more flows break there" in failure.message


@pytest.mark.parametrize(("nodes", "kinds"), [(65, set()), (66, {"ttl"})])
def test_a_line_is_too_long_when_its_ttl_is_used_up(nodes: int, kinds: set[str]) -> None:
    proof = prove(Sketch(nodes=nodes, shape="line", planes=("managed",)).plan())
    assert {failure.kind for failure in proof.failures} == kinds
