"""Which functions a transit kernel passes packets between."""

from __future__ import annotations

from fabric_plan.planner.forward import forwarded_pairs
from tests.strategies import Sketch

_TWINS = [
    {"subnet": "172.20.0.0/24", "addresses": ["172.20.0.1", "172.20.0.2"]},
    {"subnet": "172.20.0.0/24", "addresses": ["172.20.0.101", "172.20.0.102"]},
]
_WITHIN = {
    ("enp1s0f0np0", "enp1s0f1np1"),
    ("enp1s0f1np1", "enp1s0f0np0"),
    ("enP2p1s0f0np0", "enP2p1s0f1np1"),
    ("enP2p1s0f1np1", "enP2p1s0f0np0"),
}


def test_a_ring_node_forwards_from_port_to_port_within_a_plane() -> None:
    plan = Sketch().plan()
    assert set(forwarded_pairs(plan, plan.nodes[0])) == _WITHIN


def test_an_end_of_a_line_forwards_nothing() -> None:
    plan = Sketch(nodes=3, shape="line").plan()
    assert forwarded_pairs(plan, plan.nodes[0]) == ()


def test_where_planes_share_a_subnet_they_cross_in_the_kernels_too() -> None:
    plan = Sketch(pins={0: _TWINS}).plan()
    pairs = set(forwarded_pairs(plan, plan.nodes[2]))
    assert pairs > _WITHIN and ("enp1s0f0np0", "enP2p1s0f1np1") in pairs and len(pairs) == 8


def test_a_twin_that_somebody_else_manages_is_a_way_out_and_no_way_in() -> None:
    plan = Sketch(planes=("managed", "unmanaged"), pins={0: _TWINS}).plan()
    assert set(forwarded_pairs(plan, plan.nodes[0])) == {
        ("enp1s0f0np0", "enp1s0f1np1"),
        ("enp1s0f1np1", "enp1s0f0np0"),
        ("enp1s0f1np1", "enP2p1s0f0np0"),
    }
