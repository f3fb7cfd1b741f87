"""Correct plans prove, with the counts that the topology asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fabric_plan.inventory.load import load
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.resources import hardware_roles
from fabric_plan.simulate.prove import prove
from tests.strategies import ALTERNATING, Sketch, sketches

INVENTORIES = Path(__file__).parents[2] / "inventories"

# Sketch, RDMA paths, TCP flows.
_COUNTED = [
    (Sketch(mesh="off"), 16, 192),
    (Sketch(mesh="opposite"), 24, 192),
    (Sketch(mesh="universal"), 32, 192),
    (Sketch(mesh="balanced"), 24, 192),
    (Sketch(mesh="opposite", flips=ALTERNATING), 24, 192),
    (Sketch(mesh="universal", flips=ALTERNATING), 32, 192),
    (Sketch(mesh="balanced", flips=ALTERNATING), 24, 192),
    (Sketch(mesh="universal", flips=(False, False, True, False)), 32, 192),
    (Sketch(mesh="opposite", planes=("managed",)), 12, 48),
    (Sketch(mesh="universal", planes=("managed",)), 16, 48),
    (Sketch(mesh="opposite", prefix=30), 24, 192),
    (Sketch(mesh="opposite", prefix=31, flips=ALTERNATING), 24, 192),
    (Sketch(mesh="universal", prefix=31), 32, 192),
    (Sketch(mesh="opposite", marker="rewrite-probe"), 24, 192),
    (Sketch(nodes=3, mesh="universal"), 12, 96),
    (Sketch(nodes=2, shape="line"), 4, 8),
    (Sketch(nodes=2, shape="ring"), 8, 32),
    (Sketch(nodes=5, mesh="universal"), 20 + 20, 320),
    (Sketch(nodes=6, mesh="universal"), 24 + 48, 480),
    (Sketch(nodes=7, mesh="universal"), 28 + 56, 672),
    (Sketch(nodes=8, mesh="universal"), 32 + 96, 896),
    (Sketch(nodes=3, shape="line", mesh="universal"), 8 + 4, 40),
    (Sketch(nodes=4, shape="line", mesh="universal"), 12 + 12, 104),
    (Sketch(nodes=4, shape="switched"), 48, 192),
    (Sketch(nodes=4, shape="switched", rails=1), 24, 48),
]


@pytest.mark.parametrize(("sketch", "paths", "flows"), _COUNTED)
def test_correct_plans_prove_with_their_counts(sketch: Sketch, paths: int, flows: int) -> None:
    proof = prove(sketch.plan())
    assert not proof.failures
    assert (proof.ok, proof.rdma_paths, proof.tcp_flows, proof.kernel_forwarded) == (True, paths, flows, 0)


def test_the_four_ring_example_gives_its_figures_and_hops() -> None:
    text = (INVENTORIES / "ring4.yaml").read_text()
    plan = plan_fabric(load(text, "ring4.yaml", hardware_roles()).fabric)
    proof = prove(plan)
    assert (proof.ok, proof.rdma_paths, proof.queue_bound_per_peer, proof.size_cap) == (
        True,
        24,
        786432,
        262144,
    )
    trip = next(trip for trip in proof.hops if str(trip.path) == "spark1 to spark3, plane 1 through spark2")
    assert [str(step) for step in trip.steps] == [
        "spark1 enp1s0f0np0 sends 0x88b5 to 4c:bb:47:02:00:02",
        "spark2 enp1s0f1np1 relays IPv4 to 4c:bb:47:03:00:02",
        "spark3 enp1s0f1np1 receives IPv4 to 4c:bb:47:03:00:02",
    ]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(sketches())
def test_whatever_is_planned_proves(sketch: Sketch) -> None:
    proof = prove(sketch.plan())
    assert [str(failure) for failure in proof.failures] == []
    assert proof.kernel_forwarded == 0
