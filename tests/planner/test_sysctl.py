"""Kernel settings stand where they are needed and nowhere else."""

from __future__ import annotations

from fabric_plan.planner.sysctl import sysctls
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned

RING4 = (ROOT / "inventories" / "ring4.yaml").read_text()


def names(text: str) -> dict[str, set[str]]:
    plan = planned(text)
    found: dict[str, set[str]] = {}
    for setting in sysctls(plan, plan.node("spark1")):
        found.setdefault(setting.scope, set()).add(setting.name)
    return found


def test_every_cabled_function_of_a_ring_answers_for_itself_and_forwards() -> None:
    found = names(RING4)
    assert set(found) == {"all", "default", "enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1"}
    assert found["enp1s0f0np0"] >= {"arp_ignore", "arp_announce", "rp_filter", "forwarding"}
    assert found["all"] == {"send_redirects", "accept_redirects"}


def test_twins_of_a_plane_that_nobody_uses_are_kept_quiet() -> None:
    found = names(RING4 + "planes: {1: managed}\n")
    assert found["enP2p1s0f0np0"] == {"arp_ignore", "arp_announce", "rp_filter"}
    assert "forwarding" in found["enp1s0f0np0"]


def test_an_unmanaged_plane_is_never_written() -> None:
    text = RING4.replace("mesh: {paths: opposite}", "planes: {1: managed, 2: unmanaged}")
    assert set(names(text)) == {"all", "default", "enp1s0f0np0", "enp1s0f1np1"}
