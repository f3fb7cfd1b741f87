"""How many routes and rules each shape needs, how full the fullest queue gets, and what message size that
leaves.
"""

from __future__ import annotations

import pytest

from tests.strategies import Sketch

# Nodes: routes a node, rules a node, messages in the busiest queue, bytes a peer at three quarters of 512
# KiB.
RINGS = {
    3: (0, 0, 0.0, None),
    4: (4, 4, 0.5, 786432),
    5: (4, 4, 0.5, 786432),
    6: (8, 8, 1.5, 262144),
    7: (8, 8, 1.5, 262144),
    8: (12, 12, 3.0, 131072),
}


@pytest.mark.parametrize(("nodes", "row"), RINGS.items())
def test_a_ring(nodes: int, row: tuple[int, int, float, int | None]) -> None:
    routes, rules, busiest, bound = row
    plan = Sketch(nodes=nodes, mesh="universal").plan()
    assert {len(node.relay_routes) for node in plan.nodes} == {routes}
    assert {len(node.rules) for node in plan.nodes} == {rules}
    assert sum(len(node.relay_routes) for node in plan.nodes) == routes * nodes
    assert plan.load.busiest == busiest
    assert plan.load.bound == bound


@pytest.mark.parametrize("nodes", range(3, 9))
def test_a_line(nodes: int) -> None:
    plan = Sketch(nodes=nodes, shape="line", mesh="universal").plan()
    inner = set(plan.topology.order[1:-1])
    for node in plan.nodes:
        if node.name in inner:
            assert len(node.relay_routes) == 2 * (nodes - 3)
            assert len(node.rules) == 2 * (nodes - 1)
        else:
            assert len(node.relay_routes) == 2 * (nodes - 2)
            assert len(node.rules) == 0


@pytest.mark.parametrize("shape", ["ring", "switched"])
def test_where_everybody_reaches_everybody_nothing_is_relayed(shape: str) -> None:
    plan = Sketch(nodes=3, shape=shape, mesh="universal").plan()
    assert not plan.mesh
