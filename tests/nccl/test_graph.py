"""The graph files: their bytes, and which device each channel is on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fabric_plan.errors import RoleError
from fabric_plan.inventory.load import load
from fabric_plan.nccl.graph import GraphKind, graph_view, kinds
from fabric_plan.nccl.lint import lint_against
from fabric_plan.nccl.neighbours import devices
from fabric_plan.planner.model import Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.templates import Templates
from fabric_plan.render.tree import render
from fabric_plan.resources import hardware_roles, layers, templates
from tests.strategies import ALTERNATING, Sketch, sketches

INVENTORIES = Path(__file__).parents[2] / "inventories"


def _ring4() -> Plan:
    return plan_fabric(load((INVENTORIES / "ring4.yaml").read_text(), "ring4.yaml", hardware_roles()).fabric)


# The other layers have nothing to say here, and every example is rendered.
LAYER = tuple(layer for layer in layers() if layer.layer == "nccl")


def graph_texts(plan: Plan, node: str) -> dict[str, str]:
    """The graph files of one node by stem."""
    files = render(plan, LAYER, templates()).files[node]
    return {Path(file.path).stem: file.content for file in files if "/fabric-plan/nccl/" in file.path}


def _channels(plan: Plan, rank: int, kind: GraphKind) -> list[tuple[int, int]]:
    return [(channel.first, channel.second) for channel in graph_view(plan, plan.nodes[rank], kind).channels]


_CHANNEL = (
    '    <channel>\n      <net dev="{0}"/>\n      <gpu dev="0"/>\n      <net dev="{1}"/>\n    </channel>\n'
)
_GRAPH = (
    '  <graph id="{0}" pattern="{1}" crossnic="1" nchannels="4" speedintra="12" speedinter="12" '
    'latencyinter="0" typeintra="LOC" typeinter="P2C" samechannels="1">\n'
)


def _expected(pairs: list[tuple[str, str]]) -> str:
    channels = "".join(_CHANNEL.format(*pair) for pair in pairs)
    graphs = "".join(_GRAPH.format(*head) + channels + "  </graph>\n" for head in ((0, 4), (1, 3)))
    return f'<graphs version="1">\n{graphs}</graphs>\n'


def test_the_bytes_of_the_four_ring() -> None:
    """Every f0 goes to the next rank, so f1 faces the previous one: devices 1 and 3."""
    assert graph_texts(_ring4(), "spark1") == {
        "ring": _expected([("1", "0"), ("3", "2")] * 2),
        "link-prev": _expected([("1", "1"), ("3", "3")] * 2),
        "link-next": _expected([("0", "0"), ("2", "2")] * 2),
    }


def test_ranks_decide_not_positions() -> None:
    """With every f0 toward the rank before, the walk of the cables runs against the ranks."""
    plan = Sketch(flips=(True, True, True, True)).plan()
    assert plan.topology.order == ("n0", "n3", "n2", "n1")
    assert _channels(plan, 0, GraphKind.RING) == [(0, 1), (2, 3)] * 2


def test_alternating_cabling() -> None:
    plan = Sketch(flips=ALTERNATING).plan()
    assert _channels(plan, 0, GraphKind.RING) == [(1, 0), (3, 2)] * 2
    assert _channels(plan, 1, GraphKind.RING) == [(0, 1), (2, 3)] * 2


def test_a_pair_of_two_cables_uses_all_four_devices() -> None:
    plan = Sketch(nodes=2).plan()
    assert _channels(plan, 0, GraphKind.RING) == [(0, 0), (2, 2), (1, 1), (3, 3)]


def test_a_line_has_links_alone_and_none_past_its_end() -> None:
    plan = Sketch(nodes=3, shape="line").plan()
    assert [kinds(plan, node) for node in plan.nodes] == [
        (GraphKind.LINK_NEXT,),
        (GraphKind.LINK_PREV, GraphKind.LINK_NEXT),
        (GraphKind.LINK_PREV,),
    ]


def test_switched_rails_take_turns() -> None:
    plan = Sketch(nodes=4, shape="switched").plan()
    assert _channels(plan, 2, GraphKind.RING) == [(0, 0), (2, 2), (1, 1), (3, 3)]


def test_devices_count_what_is_cabled() -> None:
    plan = Sketch(nodes=2, shape="line", flips=(True, False)).plan()
    assert [planned.function.rdma for planned in devices(plan.nodes[0])] == ["rocep1s0f1", "roceP2p1s0f1"]
    assert _channels(plan, 0, GraphKind.RING) == [(0, 0), (1, 1)] * 2


def test_one_plane_repeats_its_device() -> None:
    plan = Sketch(planes=("managed",)).plan()
    assert _channels(plan, 0, GraphKind.RING) == [(1, 0)] * 4


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(sketches())
def test_every_graph_is_clean_and_right_by_the_cables(sketch: Sketch) -> None:
    plan = sketch.plan()
    rendered = render(plan, LAYER, templates())
    for node in plan.nodes:
        texts = {
            Path(file.path).stem: file.content
            for file in rendered.files[node.name]
            if "/fabric-plan/nccl/" in file.path
        }
        assert set(texts) == {str(kind) for kind in kinds(plan, node)}
        for kind, text in texts.items():
            assert lint_against(text.encode(), plan, node, GraphKind(kind)) == ()
            assert text.isascii()
            assert "\t" not in text


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(sketches())
def test_the_sender_of_a_channel_has_one_device_in_the_listeners_subnet(sketch: Sketch) -> None:
    plan = sketch.plan()
    if plan.nccl_prefix is None:
        return
    shift = 32 - plan.nccl_prefix
    for node in plan.nodes:
        for kind in kinds(plan, node):
            step = 1 if kind is GraphKind.LINK_NEXT else -1
            peer = plan.nodes[(node.rank + step) % len(plan.nodes)]
            for channel in graph_view(plan, node, kind).channels:
                listener = devices(node)[channel.first]
                assert listener.address is not None
                net = int(listener.address.ip) >> shift
                (sender,) = (
                    other
                    for other in devices(peer)
                    if other.address and int(other.address.ip) >> shift == net
                )
                assert sender.cable is listener.cable
                assert sender.function.plane == listener.function.plane


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: '<?xml version="1.0"?>\n' + text, "declaration"),
        (lambda text: text.replace('typeintra="LOC" ', ""), "typeintra"),
        (lambda text: text.replace("channel.nets[0]", "channel.nets[1]"), "does not face"),
        (lambda text: text.replace("graph.speed_inter", "graph.gpu"), "speedinter"),
    ],
)
def test_a_changed_template_that_nccl_would_not_take_does_not_render(
    damage: Callable[[str], str], said: str
) -> None:
    def read(name: str) -> str:
        return damage(templates().read(name)) if name == "nccl-graph.xml.j2" else templates().read(name)

    with pytest.raises(RoleError) as raised:
        render(_ring4(), LAYER, Templates(read))
    assert said in raised.value.message
