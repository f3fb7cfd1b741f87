"""Cables make a shape, or a refusal that names nodes, cables and the way out."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fabric_plan.errors import RefusalError
from fabric_plan.inventory.load import load
from fabric_plan.resources import hardware_roles
from fabric_plan.topology.detect import detect
from fabric_plan.topology.shape import Topology


def shape(nodes: str, cables: str, **more: Any) -> Topology:
    document = {
        "nodes": [{"name": name} for name in nodes.split()],
        "cables": [{"ends": cable.split("-")} for cable in cables.split()],
        **more,
    }
    return detect(load(yaml.safe_dump(document, sort_keys=False), "x.yaml", hardware_roles()).fabric)


def refusal(nodes: str, cables: str, **more: Any) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        shape(nodes, cables, **more)
    return caught.value


RING = "a.f0-b.f1 b.f0-c.f1 c.f0-d.f1 d.f0-a.f1"


@pytest.mark.parametrize(
    ("nodes", "cables", "kind", "order"),
    [
        ("a b", "a.f0-b.f0", "pair", "a b"),
        ("a b", "a.f0-b.f1 a.f1-b.f0", "pair", "a b"),
        ("a b c", "a.f0-b.f1 b.f0-c.f1", "line", "a b c"),
        ("a b c", "a.f0-b.f1 b.f0-c.f1 c.f0-a.f1", "triangle", "a b c"),
        ("a b c d", RING, "ring", "a b c d"),
        # The walk follows f0 to f1, although the inventory goes the other way round.
        ("a d c b", RING, "ring", "a b c d"),
        # Equal ports joined: toward the second inventory node.
        ("a b c d", "a.f1-b.f1 b.f0-c.f0 c.f1-d.f1 d.f0-a.f0", "ring", "a b c d"),
        ("a d c b", "a.f1-b.f1 b.f0-c.f0 c.f1-d.f1 d.f0-a.f0", "ring", "a d c b"),
        # Any mix that forms a cycle.
        ("a b c d", "a.f0-b.f1 b.f0-c.f0 c.f1-d.f1 d.f0-a.f1", "ring", "a b c d"),
        # Cables in any order, ends either way.
        ("a b c d", "d.f0-a.f1 c.f1-b.f0 a.f0-b.f1 d.f1-c.f0", "ring", "a b c d"),
    ],
)
def test_shapes(nodes: str, cables: str, kind: str, order: str) -> None:
    found = shape(nodes, cables)
    assert (str(found.kind), " ".join(found.order)) == (kind, order)
    for i, cable in enumerate(found.cables):
        here, there = found.order[i], found.order[(i + 1) % len(found.order)]
        if kind != "pair":
            assert {end.node for end in cable.ends} == {here, there}


def test_ranks_that_do_not_walk_the_ring_are_refused_with_the_right_order() -> None:
    error = refusal("a b d c", RING, topology="ring")
    assert error.id == "order-mismatch"
    assert "a b d c" in error.message
    assert "b and d" in error.message
    assert "c and a" in error.message
    assert error.hint is not None
    assert error.hint.endswith("a b c d")


def test_two_double_cabled_pairs_name_the_swap() -> None:
    error = refusal("b1 b2 b3 b4", "b1.f0-b2.f1 b2.f0-b1.f1 b3.f0-b4.f1 b4.f0-b3.f1", topology="ring")
    assert error.id == "not-a-ring"
    assert "b1 and b2 are joined by two cables" in error.message
    assert error.hint == (
        "swap the ends plugged into b1 f1 and b3 f1 (gives b2 f0 - b3 f1 and b4 f0 - b1 f1)"
    )


def test_three_loops_need_two_swaps() -> None:
    pairs = " ".join(f"{a}.f0-{b}.f1 {b}.f0-{a}.f1" for a, b in (("a", "b"), ("c", "d"), ("e", "f")))
    hint = refusal("a b c d e f", pairs).hint
    assert hint is not None
    assert hint.count("swap the ends") == 2


def test_separate_chains_are_refused() -> None:
    error = refusal("a b c d", "a.f0-b.f1 c.f0-d.f1")
    assert error.id == "not-joined"
    assert "a and b" in error.message
    assert "c and d" in error.message


def test_a_declared_ring_that_is_a_line_names_the_missing_cable() -> None:
    error = refusal("a b c d", "a.f0-b.f1 b.f0-c.f1 c.f0-d.f1", topology="ring")
    assert error.id == "topology-mismatch"
    assert "no cable joins a f1 and d f0" in error.message


def test_a_triangle_may_be_declared_a_ring() -> None:
    assert shape("a b c", "a.f0-b.f1 b.f0-c.f1 c.f0-a.f1", topology="ring").kind == "triangle"


def test_rails_and_cables_do_not_mix() -> None:
    error = refusal("a b", "a.f0-b.f0", rails=[{"name": "r", "ends": ["a.f1", "b.f1"]}])
    assert error.id == "mixed-fabric"


def test_a_rail_reaches_everybody() -> None:
    rails = [{"name": "r", "ends": ["a.f0", "b.f0"]}, {"name": "s", "ends": ["b.f1", "c.f1"]}]
    error = refusal("a b c", "", rails=rails)
    assert error.id == "rail-incomplete"
    assert "does not reach c" in error.message
