"""The environments: what is in them, for which library and topology, and that consumers can read them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from fabric_plan.inventory.load import load
from fabric_plan.inventory.schema import NcclLibrary
from fabric_plan.nccl.env import exact_or_prefix, nccl_env, nccl_names, nccl_notes, peer_map, rocenante_env
from fabric_plan.nccl.graph import kinds
from fabric_plan.planner.model import NodePlan, Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.tree import render
from fabric_plan.resources import hardware_roles, layers, templates
from tests.strategies import ALTERNATING, Sketch, sketches

INVENTORIES = Path(__file__).parents[2] / "inventories"

_COMMON = {
    "NCCL_SOCKET_IFNAME": "enP7s7",
    "GLOO_SOCKET_IFNAME": "enP7s7",
    "NCCL_IB_HCA": "rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1",
    "NCCL_IB_MERGE_NICS": "0",
    "NCCL_CROSS_NIC": "1",
    "NCCL_MIN_NCHANNELS": "4",
    "NCCL_MAX_NCHANNELS": "4",
    "NCCL_ALGO": "Ring",
}


def _ring4(replaced: str = "", by: str = "") -> Plan:
    text = (INVENTORIES / "ring4.yaml").read_text()
    assert replaced in text
    return plan_fabric(load(text.replace(replaced, by, 1), "ring4.yaml", hardware_roles()).fabric)


def _values(plan: Plan, node: NodePlan | None = None) -> dict[str, str]:
    return {line.name: line.value for line in nccl_env(plan, node or plan.nodes[0])}


def _rocenante(plan: Plan) -> dict[str, str]:
    return {line.name: line.value for line in rocenante_env(plan, plan.nodes[0])}


def test_stock_ring() -> None:
    assert _values(_ring4()) == {
        **_COMMON,
        "NCCL_GRAPH_FILE": "/etc/fabric-plan/nccl/ring.xml",
        "NCCL_CUMEM_ENABLE": "1",
        "NCCL_RUNTIME_CONNECT": "1",
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_SUBNET_PREFIX_LEN": "24",
    }


def test_patched_ring() -> None:
    assert _values(_ring4("mesh:", "nccl: {library: patched}\nmesh:")) == {
        **_COMMON,
        "NCCL_IB_SUBNET_PREFIX_LEN": "24",
        "NCCL_SWITCHLESS_RING_ONLY": "1",
        "NCCL_SKIP_TREE_CONNECT": "1",
        "NCCL_IB_EXTENDED_IPV4_GIDS": "1",
        "NCCL_IB_PRESERVE_PCI_DOMAIN": "1",
        "NCCL_IB_ROUTE_DIAGNOSTICS": "1",
        "NCCL_IB_QPS_PER_CONNECTION": "1",
        "NCCL_P2P_LEVEL": "SYS",
    }


def test_no_library_is_asked_for_what_only_the_other_knows() -> None:
    stock, patched = set(nccl_names(NcclLibrary.STOCK)), set(nccl_names(NcclLibrary.PATCHED))
    assert {"NCCL_GRAPH_FILE", "NCCL_IB_SUBNET_AWARE_ROUTING", "NCCL_CUMEM_ENABLE"} <= stock - patched
    assert {"NCCL_SWITCHLESS_RING_ONLY", "NCCL_IB_EXTENDED_IPV4_GIDS"} <= patched - stock


@pytest.mark.parametrize(
    ("sketch", "algorithm", "graph"),
    [
        (Sketch(nodes=3), "Ring", True),
        (Sketch(nodes=4, flips=ALTERNATING), "Ring", True),
        (Sketch(nodes=2), None, True),
        (Sketch(nodes=2, shape="line"), None, True),
        (Sketch(nodes=4, shape="switched"), None, True),
        (Sketch(nodes=4, shape="line"), None, False),
    ],
)
def test_trees_are_kept_where_they_find_their_way(sketch: Sketch, algorithm: str | None, graph: bool) -> None:
    values = _values(sketch.plan())
    assert values.get("NCCL_ALGO") == algorithm
    assert ("NCCL_GRAPH_FILE" in values) is graph
    assert values["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"


def test_a_line_says_why_it_has_no_ring() -> None:
    head = " ".join(nccl_notes(Sketch(nodes=4, shape="line").plan()))
    assert "No ring over all 4 ranks" in head
    assert "link-prev.xml" in head
    assert "share no cable" not in head
    assert nccl_notes(Sketch(nodes=4).plan()) == ()


def test_a_line_whose_ranks_do_not_follow_it_says_which_have_no_link() -> None:
    document = Sketch(nodes=3, shape="line").document()
    document["nodes"] = [document["nodes"][i] for i in (0, 2, 1)]
    plan = plan_fabric(load(yaml.safe_dump(document), "line.yaml", hardware_roles()).fabric)
    assert nccl_notes(plan)[-1] == "Ranks that follow each other but share no cable have none: 0 and 1."
    assert [len(kinds(plan, node)) for node in plan.nodes] == [0, 1, 1]


def test_devices_without_a_cable_are_left_out() -> None:
    plan = Sketch(nodes=4, shape="line").plan()
    assert _values(plan, plan.nodes[0])["NCCL_IB_HCA"] == "rocep1s0f0,roceP2p1s0f0"
    assert _values(plan, plan.nodes[1])["NCCL_IB_HCA"] == _COMMON["NCCL_IB_HCA"]


@pytest.mark.parametrize(
    ("wanted", "others", "written"),
    [
        (("mlx5_1", "mlx5_2"), ("mlx5_0", "mlx5_1", "mlx5_2"), "mlx5_1,mlx5_2"),
        (("mlx5_1", "mlx5_2"), ("mlx5_1", "mlx5_2", "mlx5_10"), "=mlx5_1,mlx5_2"),
        (("mlx5_1", "mlx5_10"), ("mlx5_1", "mlx5_10"), "mlx5_1,mlx5_10"),
        (("mlx5_10",), ("mlx5_1", "mlx5_10"), "mlx5_10"),
    ],
)
def test_names_are_exact_only_where_a_prefix_would_bring_another_along(
    wanted: tuple[str, ...], others: tuple[str, ...], written: str
) -> None:
    assert exact_or_prefix(wanted, others) == written


def test_rdma_names_of_the_inventory_reach_the_list() -> None:
    text = (INVENTORIES / "ring4.yaml").read_text()
    for mac, name in (("4c:bb:47:01:00:01", "mlx5_1"), ("4c:bb:47:01:00:02", "mlx5_10")):
        text = text.replace(f'{{mac: "{mac}"}}', f'{{mac: "{mac}", rdma: {name}}}')
    plan = plan_fabric(load(text, "ring4.yaml", hardware_roles()).fabric)
    assert _values(plan)["NCCL_IB_HCA"] == "mlx5_1,mlx5_10,roceP2p1s0f0,roceP2p1s0f1"


def test_rocenante_on_the_meshed_four_ring() -> None:
    assert _rocenante(_ring4()) == {
        "DSV41_ROCE_RING": "1",
        "SGLANG_ROCE_ALLREDUCE": "1",
        "SGLANG_ROCE_MAX_SIZE": "262144",
        "DSV41_ROCE_GATHER": "262144",
        "B12X_ROCE_HCA": "rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1",
        "B12X_ROCE_PEER_HCA_MAPS": "1=0/2,2=0/3,3=1/3;0=1/3,2=0/2,3=0/3;0=1/2,1=1/3,3=0/2;0=0/2,1=1/2,2=1/3",
        "B12X_ROCE_TWO_WAVE_THRESHOLD_BYTES": "0",
    }


def test_rocenante_without_the_mesh() -> None:
    plan = _ring4("mesh: {paths: opposite}", "mesh: off")
    assert _rocenante(plan) == {"DSV41_ROCE_RING": "0", "SGLANG_ROCE_ALLREDUCE": "0"}
    assert _rocenante(Sketch(shape="switched").plan()) == {"DSV41_ROCE_RING": "0"}


def test_a_small_queue_means_a_small_cap() -> None:
    plan = _ring4("mesh: {paths: opposite}", "mesh: {paths: opposite}\nhairpin: {queue_size: 1024}")
    assert _rocenante(plan)["SGLANG_ROCE_MAX_SIZE"] == "81920"


def test_maps_go_by_rank_whatever_the_cabling() -> None:
    """With every f0 toward the rank before, the walk of the cables is n0 n3 n2 n1."""
    reverse = Sketch(mesh="opposite", flips=(True, True, True, True)).plan()
    assert reverse.topology.order == ("n0", "n3", "n2", "n1")
    # n0 at position 0, n2 at 2: plane 1 leaves by f0 toward n3, plane 2 by f1 toward n1.
    assert peer_map(reverse, reverse.nodes[0]) == "1=1/3,2=0/3,3=0/2"
    # n3 at position 1, n1 at 3: plane 1 goes n3 n2 n1, so n1 sends back by f1; plane 2 by f0 through n0.
    assert peer_map(reverse, reverse.nodes[1]) == "0=0/2,2=1/3,3=1/2"


@pytest.mark.parametrize("mesh", ["opposite", "universal", "balanced"])
def test_both_ends_of_a_pair_use_the_same_paths(mesh: str) -> None:
    plan = Sketch(mesh=mesh, flips=ALTERNATING).plan()
    for node in plan.nodes:
        for entry in peer_map(plan, node).split(","):
            rank, slots = entry.split("=")
            peer = plan.nodes[int(rank)]
            back = dict(each.split("=") for each in peer_map(plan, peer).split(","))[str(node.rank)]
            for mine, theirs in zip(slots.split("/"), back.split("/"), strict=True):
                assert _way(plan, node, peer, int(mine)) == _way(plan, peer, node, int(theirs))[::-1]


def _way(plan: Plan, node: NodePlan, peer: NodePlan, device: int) -> list[str]:
    function = node.functions[device].function
    wanted = (node.name, peer.name, function.plane, function.port)
    (path,) = (path for path in plan.paths if (path.src, path.dst, path.plane, path.out.port) == wanted)
    return [path.src, *path.through, path.dst]


def test_longer_rings_and_single_planes_have_maps() -> None:
    six = Sketch(nodes=6, mesh="universal").plan()
    assert peer_map(six, six.nodes[0]) == "1=0/2,2=0/2,3=0/3,4=1/3,5=1/3"
    one = Sketch(mesh="opposite", planes=("managed",)).plan()
    assert peer_map(one, one.nodes[0]) == "1=0/0,2=0/0,3=1/1"


def test_nothing_pins_a_gid_index() -> None:
    plan = _ring4()
    names = [line.name for node in plan.nodes for line in (*nccl_env(plan, node), *rocenante_env(plan, node))]
    assert not [name for name in names if "GID_INDEX" in name]


_LINE = re.compile(r"[A-Z][A-Z0-9_]*=[A-Za-z0-9_.,:;=/@+-]*")


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(sketches())
def test_every_environment_reads_the_same_for_systemd_and_docker(sketch: Sketch) -> None:
    plan = sketch.plan()
    rendered = render(plan, (layer for layer in layers() if layer.layer == "nccl"), templates())
    for node in plan.nodes:
        files = {file.path: file for file in rendered.files[node.name]}
        assert ("/etc/fabric-plan/env/nccl.env" in files) == (plan.nccl_prefix is not None)
        for path, file in files.items():
            if not path.startswith("/etc/fabric-plan/env/"):
                continue
            assert file.mode == "0644"
            *lines, last = file.content.split("\n")
            assert last == ""
            for before, line in zip(["", *lines], lines, strict=False):
                assert line.startswith("# ") or (_LINE.fullmatch(line) and before.startswith("# "))


def test_without_a_separating_prefix_there_is_no_nccl_environment() -> None:
    pins = {
        i: [
            {
                "subnet": f"172.21.{i}.0/24",
                "addresses": [f"172.21.{i}.{1 + plane}", f"172.21.{i}.{3 + plane}"],
            }
            for plane in range(2)
        ]
        for i in range(3)
    }
    plan = Sketch(nodes=3, pins=pins).plan()
    assert plan.nccl_prefix is None
    assert nccl_env(plan, plan.nodes[0]) == ()
    paths = {file.path for file in render(plan, layers(), templates()).files["n0"]}
    assert not [path for path in paths if "/nccl" in path]
    assert "/etc/fabric-plan/env/rocenante.env" in paths
