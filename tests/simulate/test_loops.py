"""Frames that go round in hardware are found, whoever would have to send them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_plan.planner.model import Plan, Rule
from fabric_plan.planner.tags import ETHERTYPE_IPV4, tag
from fabric_plan.simulate.loops import hairpin_loops
from fabric_plan.simulate.prove import prove
from fabric_plan.simulate.wire import Nic, Wire, build
from tests.strategies import Sketch

_TAGS = (ETHERTYPE_IPV4, tag(1))
_MOST = 100  # hops; there are fewer states than that


def _goes_round(wire: Wire) -> bool:
    """Try every tag, source MAC and destination MAC at every function, one frame after the other."""
    macs = [nic.mac for nic in wire.nics] + ["02:ff:ff:ff:ff:ff"]
    return any(
        _walks_on(wire, start, ethertype, src, dst)
        for start, ethertype, src, dst in product(wire.nics, _TAGS, macs, macs)
    )


def _walks_on(wire: Wire, nic: Nic, ethertype: int, src: str, dst: str) -> bool:
    for _ in range(_MOST):
        rule = wire.match(nic, ethertype, src, dst)
        if rule is None:
            return False
        out = wire.by_netdev[nic.node, rule.redirect]
        ethertype, dst = rule.set_type, rule.set_dst_mac
        heard = wire.receivers(out, dst)
        if not heard:
            return False
        nic = heard[0]
    return True


def _ring_of_rules(plan: Plan, src_mac: str | None) -> Plan:
    """Let every node pass frames with tag 2 on to the next one, round the whole ring."""
    nodes = []
    for i, node in enumerate(plan.nodes):
        here, there = node.at("f1", 1).function, plan.nodes[(i + 1) % len(plan.nodes)].at("f1", 1).function
        assert here.mac is not None and there.mac is not None
        rule = Rule(
            dev=here.netdev,
            ethertype=tag(2),
            src_mac=src_mac,
            dst_mac=here.mac,
            set_type=tag(2),
            set_dst_mac=there.mac,
            redirect=node.at("f0", 1).function.netdev,
            pref=890,
            handle=1,
            plane=1,
            senders=("nobody",),
            receiver=there.node,
        )
        nodes.append(replace(node, rules=(*node.rules, rule)))
    return replace(plan, nodes=tuple(nodes))


@pytest.mark.parametrize("src_mac", [None, "02:ff:ff:ff:ff:ff", "02:fa:b0:00:00:01"])
def test_a_frame_that_circles_is_found_whoever_sends_it(src_mac: str | None) -> None:
    proof = prove(_ring_of_rules(Sketch(mesh="opposite").plan(), src_mac))
    (loop,) = [failure for failure in proof.failures if failure.kind == "hairpin-loop"]
    assert loop.path == "n0 to n1 to n2 to n3 to n0, plane 1"
    assert len(loop.trace) == 4 and "0x88b6" in loop.message


def test_planned_rules_never_form_one() -> None:
    for sketch in (Sketch(mesh="universal"), Sketch(nodes=8, mesh="universal"), Sketch(mesh="balanced")):
        plan = sketch.plan()
        assert list(hairpin_loops(build(plan), plan)) == []


@settings(deadline=None, max_examples=25)
@given(st.randoms(use_true_random=False))
def test_the_states_say_what_trying_every_frame_says(chance: random.Random) -> None:
    plan = Sketch(nodes=3).plan()
    wire = build(plan)
    nodes = []
    for node in plan.nodes:
        rules = []
        for handle in range(6):
            into, out = chance.sample(wire.on_node[node.name], 2)
            heard = [nic.mac for nic in wire.nics if nic.segment == out.segment and nic.node != node.name]
            src = chance.choice((None, None, None, chance.choice(wire.nics).mac))
            tags = chance.choice(_TAGS), chance.choice(_TAGS)
            rules.append(
                Rule(
                    dev=into.netdev,
                    ethertype=tags[0],
                    src_mac=src,
                    dst_mac=into.mac,
                    set_type=tags[1],
                    set_dst_mac=chance.choice(heard),
                    redirect=out.netdev,
                    pref=881,
                    handle=handle,
                    plane=1,
                    senders=(),
                    receiver="",
                )
            )
        nodes.append(replace(node, rules=tuple(rules)))
    drawn = replace(plan, nodes=tuple(nodes))
    wire = build(drawn)
    assert bool(list(hairpin_loops(wire, drawn))) == _goes_round(wire)
