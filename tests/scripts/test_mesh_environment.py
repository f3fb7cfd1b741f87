"""mesh-up.sh: the environment in effect, by what the driver is proven to work with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scripts.support import Host
from tests.scripts.test_mesh_up import universal6


def in_effect(host: Host) -> None:
    result = host.run("hairpin.sh")
    assert result.returncode == 0, result.stdout


def test_the_cap_follows_the_queue_in_effect_not_the_pending_one(host: Host) -> None:
    with host.edit() as state:
        for device in state["devlink"].values():
            device["params"]["hairpin_queue_size"][0] = 8192  # pending: set and never reloaded
    host.up()
    assert host.environment()["SGLANG_ROCE_MAX_SIZE"] == "81920"
    in_effect(host)
    host.up()
    assert host.environment()["SGLANG_ROCE_MAX_SIZE"] == "262144"
    assert host.environment()["DSV41_ROCE_GATHER"] == "262144"


def test_one_small_queue_is_enough_for_the_small_cap(host: Host) -> None:
    in_effect(host)
    (host.run_dir / "hairpin/0002:01:00.1").unlink()
    host.up()
    assert host.environment()["SGLANG_ROCE_MAX_SIZE"] == "81920"


def test_a_driver_that_does_not_answer_gets_the_small_cap(host: Host) -> None:
    in_effect(host)
    host.fault("devlink_hangs", "0000:01:00.0")
    assert host.up(FABRIC_PLAN_CALL_LIMIT="1").returncode == 0
    assert host.environment()["SGLANG_ROCE_MAX_SIZE"] == "81920"


def test_what_the_driver_holds_counts_before_any_note(host: Host) -> None:
    in_effect(host)
    dump = "Hairpin peer_vhca_id 3 prio 0 refcnt 1 num_channels 4 num_packets {}\n"
    path = "/sys/kernel/debug/mlx5/{}/nic/fs/tc/hairpin_table_dump"
    for planned in host.node.functions:
        host.put(path.format(planned.function.pci), dump.format(8192))
    host.put(path.format("0002:01:00.0"), dump.format(8192) + dump.format(2048))
    host.up()
    assert host.environment()["SGLANG_ROCE_MAX_SIZE"] == "81920"


def test_the_cap_never_exceeds_what_the_load_allows(make_host: Callable[..., Host]) -> None:
    host = make_host(universal6(), "n1")
    bound = host.plan.load.bound
    assert bound == 262144
    host.up()
    # Unproven queues count as 1024 entries: an eighth of the planned bound.
    assert host.environment()["SGLANG_ROCE_MAX_SIZE"] == str(bound // 8)


def test_the_rest_of_the_environment_is_the_plan(host: Host) -> None:
    host.up()
    planned = (host.root / "etc/fabric-plan/env/rocenante.env").read_text()
    want = dict(line.split("=", 1) for line in planned.splitlines() if line and not line.startswith("#"))
    got = host.environment()
    assert got.pop("NCCL_IB_GID_INDEX") == "3"
    sizes = {"SGLANG_ROCE_MAX_SIZE": "81920", "DSV41_ROCE_GATHER": "81920"}
    assert got == {**want, **sizes}


def test_a_mesh_that_is_not_whole_keeps_the_engine_off_it(host: Host) -> None:
    host.fault("no_offload", host.rule.dev)
    host.up()
    got = host.environment()
    assert (got["DSV41_ROCE_RING"], got["SGLANG_ROCE_ALLREDUCE"]) == ("0", "0")
    assert "DSV41_ROCE_GATHER" not in got


def test_a_gid_index_is_pinned_only_where_all_functions_share_it(host: Host) -> None:
    with host.edit() as state:
        link = state["links"]["enp1s0f0np0"]
        link["gids"].insert(2, ["fe80:0000:0000:0000:0000:0000:0000:0009", "RoCE v2"])
    host.up()
    assert "NCCL_IB_GID_INDEX" not in host.environment()


@pytest.mark.parametrize("spoil", ["type", "address"])
def test_a_gid_is_found_by_address_and_type(host: Host, spoil: str) -> None:
    with host.edit() as state:
        gid = state["links"]["enp1s0f0np0"]["gids"][3]
        gid[{"type": 1, "address": 0}[spoil]] = {
            "type": "IB/RoCE v1",
            "address": "0000:0000:0000:0000:0000:ffff:0a0a:0063",
        }[spoil]
    host.up()
    assert "NCCL_IB_GID_INDEX" not in host.environment()


def test_a_gid_of_the_same_address_on_another_netdev_does_not_count(host: Host) -> None:
    host.put("/sys/class/infiniband/rocep1s0f0/ports/1/gid_attrs/ndevs/3", "vlan7\n")
    host.up()
    assert "NCCL_IB_GID_INDEX" not in host.environment()
