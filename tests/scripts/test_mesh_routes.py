"""mesh-up.sh: the routes that it checks and adds, and the markers that it starts and stops."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scripts.support import Host
from tests.scripts.test_mesh_up import converged


def route_to(host: Host, to: str) -> dict[str, Any]:
    (found,) = (route for route in host.state["routes"] if route["to"] == to)
    route: dict[str, Any] = found
    return route


@pytest.mark.parametrize("to", ["10.10.2.0/24", "10.10.2.11"])
def test_a_missing_route_is_added_as_ours(host: Host, to: str) -> None:
    converged(host)
    host.state["routes"].remove(route_to(host, to))
    assert host.up().returncode == 0
    (call,) = host.calls()
    source = ["src", "10.10.0.10"] if to.endswith(".11") else []
    target = to if "/" in to else f"{to}/32"
    assert call == [
        *("ip", "-4", "route", "add", target, "via", "10.10.0.11", "dev", "enp1s0f0np0", *source),
        *("proto", "214"),
    ]
    assert host.up().stdout == ""


@pytest.mark.parametrize("change", [{"via": "10.10.0.99"}, {"dev": "enp1s0f1np1"}, {"src": "10.10.6.11"}])
def test_a_wrong_route_is_outranked_not_removed(host: Host, change: dict[str, str]) -> None:
    converged(host)
    wrong = route_to(host, "10.10.2.11")
    wrong.update(change)
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert [call[:4] for call in host.calls()] == [["ip", "-4", "route", "add"]]
    assert wrong in host.state["routes"]


def test_a_route_that_outranks_ours_is_reported(host: Host) -> None:
    route_to(host, "10.10.2.11").update(via="10.10.0.99", metric="0")
    result = host.up()
    assert result.returncode == 1
    assert (
        "route 10.10.2.11/32 via 10.10.0.11 dev enp1s0f0np0: RTNETLINK answers: File exists" in result.stdout
    )
    assert "in its place stands: 10.10.2.11 via 10.10.0.99" in result.stdout


def test_routes_of_ours_that_are_no_longer_planned_go(host: Host) -> None:
    converged(host)
    mine = {
        "to": "10.10.99.0/24",
        "via": "10.10.0.11",
        "dev": "enp1s0f0np0",
        "src": None,
        "proto": "214",
        "metric": "0",
    }
    theirs = [
        {**mine, "to": "10.77.0.0/16", "proto": "boot"},
        {**mine, "to": "10.78.0.0/16", "dev": "enP7s7"},
    ]
    host.state["routes"] += [mine, *theirs]
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert [call[:5] for call in host.calls()] == [["ip", "-4", "route", "del", "10.10.99.0/24"]]
    assert all(route in host.state["routes"] for route in theirs)


# ---- markers -------------------------------------------------------------------------------------


def test_markers_are_started_and_stopped_by_their_units_alone(host: Host) -> None:
    converged(host)
    kept = f"fabric-plan-marker@{host.node.markers[0].rdma}.service"
    dead = f"fabric-plan-marker@{host.node.markers[1].rdma}.service"
    host.state["units"].update({dead: "failed", "fabric-plan-marker@mlx5_9.service": "active"})
    assert host.up().returncode == 0
    assert host.calls() == [
        ["systemctl", "--no-block", "stop", "fabric-plan-marker@mlx5_9.service"],
        ["systemctl", "--no-block", "start", dead],
    ]
    assert host.state["units"][kept] == "active"


def test_a_marker_that_cannot_start_fails_the_run(host: Host) -> None:
    unit = f"fabric-plan-marker@{host.node.markers[0].rdma}.service"
    host.fault("refuse_unit", unit)
    result = host.up()
    assert result.returncode == 1
    assert f"{unit}: cannot be started" in result.stdout
