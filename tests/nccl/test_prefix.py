"""The separating prefix on the plans that people have, and the renumbering offered where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabric_plan.nccl.renumber import renumbering
from fabric_plan.planner.model import Plan
from fabric_plan.planner.prefix import separating_prefix
from tests.strategies import ALTERNATING, Sketch


def _twins(
    nodes: int, prefix: int, first: tuple[int, int], second: tuple[int, int]
) -> dict[int, list[dict[str, Any]]]:
    """Both functions of each cable in one subnet: plane 1 has the hosts `first`, plane 2 `second`."""
    return {
        i: [
            {
                "subnet": f"172.21.{60 + i}.0/{prefix}",
                "addresses": [f"172.21.{60 + i}.{host}" for host in hosts],
            }
            for hosts in (first, second)
        ]
        for i in range(nodes)
    }


VENDOR = Sketch(nodes=3, pins=_twins(3, 24, (1, 3), (2, 4)))


@pytest.mark.parametrize(
    ("sketch", "prefix"),
    [
        (Sketch(), 24),
        (Sketch(prefix=30), 30),
        (Sketch(prefix=31), 31),
        (Sketch(prefix=30, flips=ALTERNATING), 30),
        (Sketch(planes=("managed",)), 24),
        (Sketch(nodes=2), 24),
        (Sketch(nodes=2, shape="line"), 24),
        (Sketch(nodes=8), 24),
        (Sketch(nodes=4, shape="line"), 24),
        (Sketch(nodes=4, shape="switched"), 24),
        (Sketch(flips=ALTERNATING, pins=_twins(4, 24, (5, 6), (105, 106))), 26),
        (Sketch(pins=_twins(4, 24, (1, 2), (3, 4))), None),
        (Sketch(pins=_twins(4, 24, (1, 2), (5, 6))), 30),
        (Sketch(pins=_twins(4, 24, (4, 5), (6, 7))), 31),
        (VENDOR, None),
    ],
)
def test_separating_prefix(sketch: Sketch, prefix: int | None) -> None:
    assert sketch.plan().nccl_prefix == prefix


def test_the_vendors_triangle_gets_a_renumbering_that_works() -> None:
    plan = VENDOR.plan()
    offered = renumbering(plan)
    assert offered is not None
    assert offered.prefix == 24
    assert [str(move) for move in offered.moves[:2]] == [
        "n0 enP2p1s0f0np0 172.21.60.2/24 -> 172.21.160.1/24",
        "n1 enP2p1s0f1np1 172.21.60.4/24 -> 172.21.160.3/24",
    ]
    assert {move.plane for move in offered.moves} == {2}
    assert _carried_out(plan).nccl_prefix == offered.prefix


def test_the_refusal_comes_with_it() -> None:
    plan = VENDOR.plan()
    (notice,) = (notice for notice in plan.notices if notice.id == "no-separating-prefix")
    for net in ("172.21.60.0/24", "172.21.61.0/24", "172.21.62.0/24"):
        assert net in notice.text
    assert notice.hint is not None
    assert notice.hint.endswith(
        "for example n0 enP2p1s0f0np0 172.21.60.2/24 -> 172.21.160.1/24; n1 enP2p1s0f1np1 172.21.60.4/24 -> "
        "172.21.160.3/24, and the other cables alike (then prefix 24)"
    )


def _carried_out(plan: Plan) -> Plan:
    """Write the renumbering into an inventory, load and plan it."""
    offered = renumbering(plan)
    assert offered is not None
    moved = {(move.end, move.plane): move.new for move in offered.moves}
    pins: dict[int, list[dict[str, Any]]] = {}
    for cable in plan.fabric.cables:
        pins[cable.index] = []
        for plane in plan.fabric.planes:
            ends = [
                moved.get((end, plane)) or plan.node(end.node).at(end.port, plane).address
                for end in cable.ends
            ]
            assert all(ends)
            addresses = [address for address in ends if address is not None]
            pins[cable.index].append(
                {"subnet": str(addresses[0].network), "addresses": [str(address.ip) for address in addresses]}
            )
    return replace(VENDOR, nodes=len(plan.nodes), pins=pins).plan()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(3, 6),
    st.sampled_from((24, 25, 28)),
    st.permutations([1, 2, 3, 4, 5, 6]),
)
def test_whatever_shares_a_subnet_can_be_renumbered(nodes: int, prefix: int, hosts: list[int]) -> None:
    pins = _twins(nodes, prefix, (hosts[0], hosts[1]), (hosts[2], hosts[3]))
    plan = Sketch(nodes=nodes, pins=pins).plan()
    if plan.nccl_prefix is None:
        assert _carried_out(plan).nccl_prefix is not None


def test_a_plan_that_is_fine_needs_no_move() -> None:
    offered = renumbering(Sketch().plan())
    assert offered is not None
    assert offered.moves == ()


def test_no_address_no_prefix() -> None:
    plan = Sketch().plan()
    bare = [replace(node, functions=()) for node in plan.nodes]
    assert separating_prefix(bare) is None
