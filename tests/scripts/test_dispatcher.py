"""The NetworkManager dispatcher script: a fabric function that came up has the mesh checked."""

from __future__ import annotations

import pytest

from tests.scripts.support import MESH_UNIT, Host

SCRIPT = "etc/NetworkManager/dispatcher.d/90-fabric-plan"
DEV = "enp1s0f0np0"


def dispatch(host: Host, *arguments: str) -> list[list[str]]:
    result = host.run(host.root / SCRIPT, *arguments)
    assert (result.returncode, result.stdout) == (0, "")
    return host.calls()


@pytest.mark.parametrize("action", ["up", "reapply"])
def test_a_fabric_function_that_came_up_is_checked(host: Host, action: str) -> None:
    host.state["units"][MESH_UNIT] = "active"
    assert dispatch(host, DEV, action) == [["systemctl", "--no-block", "reload", MESH_UNIT]]


def test_a_mesh_that_failed_because_a_link_was_late_gets_another_chance(host: Host) -> None:
    host.state["units"][MESH_UNIT] = "failed"
    assert dispatch(host, DEV, "up") == [["systemctl", "--no-block", "start", MESH_UNIT]]


@pytest.mark.parametrize("state", ["activating", "inactive", "deactivating"])
def test_a_mesh_that_is_starting_or_stopped_is_left_alone(host: Host, state: str) -> None:
    host.state["units"][MESH_UNIT] = state
    assert dispatch(host, DEV, "up") == []


@pytest.mark.parametrize(
    "arguments", [("enP7s7", "up"), (DEV, "down"), (DEV, "dhcp4-change"), ("", "hostname"), ()]
)
def test_other_interfaces_and_events_do_nothing(host: Host, arguments: tuple[str, ...]) -> None:
    host.state["units"][MESH_UNIT] = "active"
    assert dispatch(host, *arguments) == []
