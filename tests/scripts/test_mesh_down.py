"""mesh-down.sh: it takes away what is ours, all of it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fabric_plan.planner.model import COOKIE_PREFIX
from tests.scripts.support import Host, ring4, where
from tests.scripts.test_mesh_up import converged, foreign

ENGINE = "link rocep1s0f0/1 lqpn 300 rqpn 301 type RC state RTS rq-psn 1 sq-psn 2 pid 4242 comm python3"


@pytest.mark.parametrize("node", ["spark1", "spark2", "spark3", "spark4"])
def test_up_and_down_leave_the_node_as_it_was(make_host: Callable[..., Host], node: str) -> None:
    host = make_host(ring4(), node)
    # A route that NetworkManager lost is one that mesh-up adds, and mesh-down takes away again.
    host.state["routes"] = [route for route in host.state["routes"] if route["proto"] != "static"]
    before = host.kernel()
    assert host.up().returncode == 0
    assert host.kernel() != before
    result = host.run("mesh-down.sh")
    assert result.returncode == 0, result.stdout
    assert host.kernel() == before
    assert "active" not in host.state["units"].values()
    assert [p.name for p in host.run_dir.iterdir()] == ["lock"]


def test_a_second_run_has_nothing_to_do(host: Host) -> None:
    converged(host)
    host.run("mesh-down.sh")
    host.calls()
    result = host.run("mesh-down.sh")
    assert (result.returncode, result.stdout) == (0, "")
    assert host.calls() == []


def test_it_works_on_a_node_where_nothing_ever_ran(host: Host) -> None:
    before = host.kernel()
    assert host.run("mesh-down.sh").returncode == 0
    assert host.kernel() == before and host.calls() == []


def test_what_is_not_ours_stays(host: Host) -> None:
    theirs = foreign(host)
    other = {
        "to": "10.77.0.0/16",
        "via": "10.10.0.11",
        "dev": "enp1s0f0np0",
        "src": None,
        "proto": "boot",
        "metric": "0",
    }
    elsewhere = {**other, "to": "10.78.0.0/16", "dev": "enP7s7", "proto": "214"}
    host.state["routes"] += [other, elsewhere]
    before = host.kernel()
    converged(host)
    assert host.run("mesh-down.sh").returncode == 0
    assert host.kernel() == before
    assert theirs in host.state["filters"]


def test_a_qdisc_of_ours_stays_while_somebody_elses_filter_hangs_on_it(host: Host) -> None:
    converged(host)
    theirs = foreign(host, direction="egress")
    result = host.run("mesh-down.sh")
    assert result.returncode == 0
    assert f"{host.rule.dev}: clsact stays, other filters hang on it" in result.stdout
    assert host.state["qdiscs"] == {host.rule.dev: "clsact"}
    assert host.state["filters"] == [theirs]


def test_a_qdisc_on_a_device_made_anew_is_not_ours(host: Host) -> None:
    converged(host)
    with host.edit() as state:
        state["links"][host.rule.dev]["index"] = 88
        state["filters"] = []
    assert host.run("mesh-down.sh").returncode == 0
    assert host.state["qdiscs"] == {host.rule.dev: "clsact"}


def test_rules_of_an_older_plan_go_too(host: Host) -> None:
    foreign(host, dev="enp1s0f0np0", pref=884, cookie=COOKIE_PREFIX + "0" * 24)
    host.state["qdiscs"]["enp1s0f0np0"] = "clsact"
    assert host.run("mesh-down.sh").returncode == 0
    assert host.state["filters"] == []


def test_it_refuses_while_rdma_is_in_use(host: Host) -> None:
    converged(host)
    before = host.kernel()
    host.state["rdma"]["qp"].append(ENGINE)
    result = host.run("mesh-down.sh")
    assert result.returncode == 1
    assert "RDMA is in use on this node" in result.stdout and "pid 4242" in result.stdout
    assert host.kernel() == before and host.calls() == []
    # The unit has decided already, and says so.
    assert host.run("mesh-down.sh", "--force").returncode == 0


def test_an_unknown_argument_changes_nothing(host: Host) -> None:
    converged(host)
    result = host.run("mesh-down.sh", "--forse")
    assert result.returncode == 1 and "--forse" in result.stdout
    assert host.calls() == []


def test_what_cannot_be_removed_is_named_and_the_rest_goes(host: Host) -> None:
    converged(host)
    host.fault("refuse_delete", where(host.rule))
    result = host.run("mesh-down.sh")
    assert result.returncode == 1
    assert (
        f"{host.rule.dev} pref {host.rule.pref} handle 0x{host.rule.handle:x}: cannot be removed"
        in result.stdout
    )
    assert [f["cookie"] for f in host.state["filters"]] == [host.rule.cookie]
