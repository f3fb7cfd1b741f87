"""Privileges: CAP_NET_RAW alone while rules are made, none while they are held."""

from __future__ import annotations

import shutil

import pytest

from tests.native.harness import BOTH_FORMS, Home, Running, nothing_left

NET_RAW = 1 << 13
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")

needs_setpriv = pytest.mark.skipif(
    shutil.which("setpriv") is None, reason="setpriv (util-linux) is not installed"
)


def capabilities(marker: Running) -> dict[str, int]:
    status = marker.status()
    return {name: int(status[name], 16) for name in CAPABILITY_SETS}


def test_holds_without_any_capability(home: Home) -> None:
    with home.holding(*BOTH_FORMS) as marker:
        assert capabilities(marker) == dict.fromkeys(CAPABILITY_SETS, 0)
        assert marker.status()["NoNewPrivs"] == "1"
        outcome = marker.stop()
    assert nothing_left(outcome.calls)


def test_talks_to_the_device_with_one_capability_and_removes_rules_with_none(home: Home) -> None:
    with home.holding(*BOTH_FORMS) as marker:
        outcome = marker.stop()
    used = [call["capabilities"] for call in outcome.calls]
    assert used == [NET_RAW] * 11 + [0] * 8


@needs_setpriv
def test_works_in_the_bounding_set_of_its_unit(home: Home) -> None:
    """Without CAP_SETPCAP the bounding set stays as the service manager left it, and out of reach."""
    with home.holding(
        *BOTH_FORMS, prefix=("setpriv", "--bounding-set=-all,+net_raw", "--no-new-privs")
    ) as marker:
        assert capabilities(marker) == dict.fromkeys(CAPABILITY_SETS, 0) | {"CapBnd": NET_RAW}
        outcome = marker.stop()
    assert nothing_left(outcome.calls)


@needs_setpriv
def test_refuses_without_net_raw(home: Home) -> None:
    outcome = home.run(*BOTH_FORMS, prefix=("setpriv", "--bounding-set=-net_raw"))
    assert (outcome.code, outcome.calls) == (77, [])
    assert "CAP_NET_RAW is missing, which RDMA-TX rules need\n  hint: run it as root" in outcome.stderr
    assert not home.state_dir.exists()


@needs_setpriv
def test_check_needs_no_privilege(home: Home) -> None:
    home.root.chmod(0o777)
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    if any(parent.stat().st_mode & 0o005 != 0o005 for parent in home.binary.parents):
        binary = home.root / "fabric-plan-marker"
        shutil.copy(home.binary, binary)
        shutil.copytree(home.standin, home.root / "standin")
        home.binary, home.standin = binary, home.root / "standin"
    outcome = home.run(*BOTH_FORMS, "--check", prefix=prefix)
    assert outcome.code == 0, outcome.stderr
    assert {call["capabilities"] for call in outcome.calls} == {0}
