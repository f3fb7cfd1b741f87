"""mesh-up.sh, rendered and run in bash: what it puts in place, and what it must never touch."""

from __future__ import annotations

import copy
import fcntl
from collections.abc import Callable
from typing import Any

import pytest

from fabric_plan.planner.model import COOKIE_PREFIX, Plan
from tests.scripts.support import MESH_UNIT, Host, plan_of, ring4, where

OTHER_MAC = "02:00:00:00:00:99"


def tc_calls(host: Host) -> list[list[str]]:
    return [call for call in host.calls() if call[0] == "tc"]


def rule_at(host: Host, index: int = 0) -> dict[str, Any]:
    """The live filter of one planned rule."""
    rule = host.node.rules[index]
    found = [f for f in host.state["filters"] if f["cookie"] == rule.cookie]
    assert len(found) == 1, host.state["filters"]
    live: dict[str, Any] = found[0]
    return live


def converged(host: Host) -> Host:
    """Run once from nothing; the state that every other test starts from."""
    result = host.up()
    assert result.returncode == 0, result.stdout
    host.calls()
    return host


def foreign(host: Host, **fields: Any) -> dict[str, Any]:
    """A filter of somebody else on the device of our first rule."""
    host.state["qdiscs"][host.rule.dev] = "clsact"
    live = {
        "dev": host.rule.dev,
        "direction": "ingress",
        "kind": "flower",
        "protocol": "0x88b5",
        "pref": 49152,
        "handle": "0x1",
        "src": "",
        "dst": OTHER_MAC,
        "type": "0800",
        "new": OTHER_MAC,
        "to": host.rule.redirect,
        "to_index": 0,
        "cookie": "",
        "skip_sw": True,
        "in_hw": True,
        **fields,
    }
    host.state["filters"].append(live)
    return live


# ---- first run, second run -----------------------------------------------------------------------


def test_first_run_puts_everything_in_place(host: Host) -> None:
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert sorted(f["cookie"] for f in host.state["filters"]) == sorted(r.cookie for r in host.node.rules)
    assert all(f["in_hw"] and f["skip_sw"] for f in host.state["filters"])
    assert host.state["qdiscs"] == {rule.dev: "clsact" for rule in host.node.rules}
    units = {unit for unit, state in host.state["units"].items() if state == "active"}
    assert units == {f"fabric-plan-marker@{marker.rdma}.service" for marker in host.node.markers}


def test_it_says_to_tc_exactly_what_the_plan_says(host: Host) -> None:
    host.up()
    added = [call for call in tc_calls(host) if call[1] == "filter"]
    assert added == [
        ["tc", "filter", "add", "dev", rule.dev, "ingress", *rule.tc_words()] for rule in host.node.rules
    ]


def test_second_run_changes_nothing(host: Host) -> None:
    converged(host)
    before = host.kernel()
    files = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in host.run_dir.rglob("*") if p.is_file()}
    result = host.up()
    assert (result.returncode, result.stdout) == (0, "")
    assert host.calls() == []
    assert host.kernel() == before
    after = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in host.run_dir.rglob("*") if p.is_file()}
    assert after == files


# ---- one rule is not as planned ------------------------------------------------------------------

WRONG: dict[str, Callable[[Host, dict[str, Any]], Any]] = {
    "destination MAC matched": lambda host, live: live.update(dst=OTHER_MAC),
    "source MAC matched": lambda host, live: live.update(src=OTHER_MAC),
    "any source matched": lambda host, live: live.update(src=""),
    "type set": lambda host, live: live.update(type="88b5"),
    "MAC set": lambda host, live: live.update(new=OTHER_MAC),
    "redirect": lambda host, live: live.update(to="enp1s0f0np0"),
    "redirect to nothing": lambda host, live: live.update(to="*"),
    "cookie of another rule of ours": lambda host, live: live.update(cookie=COOKIE_PREFIX + "0" * 24),
    "may fall back to software": lambda host, live: live.update(skip_sw=False),
    "not in hardware": lambda host, live: live.update(in_hw=False),
}


@pytest.mark.parametrize("what", list(WRONG))
def test_a_wrong_rule_is_replaced_and_no_other_touched(host: Host, what: str) -> None:
    converged(host)
    want = host.kernel()["filters"]
    WRONG[what](host, rule_at(host))
    result = host.up()
    assert result.returncode == 0, result.stdout
    (call,) = host.calls()
    assert call == ["tc", "filter", "replace", "dev", host.rule.dev, "ingress", *host.rule.tc_words()]
    assert sorted(host.state["filters"], key=str) == sorted(want, key=str)
    assert host.up().stdout == ""


def test_a_rule_of_ours_with_another_protocol_in_the_place_is_taken_out_first(host: Host) -> None:
    converged(host)
    rule_at(host).update(protocol="0x88b6", cookie=COOKIE_PREFIX + "1" * 24)
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert [call[2] for call in tc_calls(host)] == ["del", "add"]
    assert rule_at(host)["protocol"] == "0x88b5"


def test_a_missing_rule_is_added_alone(host: Host) -> None:
    converged(host)
    host.state["filters"].remove(rule_at(host))
    assert host.up().returncode == 0
    (call,) = host.calls()
    assert call[:6] == ["tc", "filter", "add", "dev", host.rule.dev, "ingress"]


def test_the_egress_function_was_reloaded_so_the_rule_leads_nowhere(host: Host) -> None:
    converged(host)
    with host.edit() as state:
        # Everything about the rule still looks right; only the device behind the name is another one.
        state["links"][host.rule.redirect]["index"] = 77
    result = host.up()
    assert result.returncode == 0, result.stdout
    (call,) = host.calls()
    assert call[:5] == ["tc", "filter", "replace", "dev", host.rule.dev]
    assert rule_at(host)["to_index"] == 77
    assert host.up().stdout == "" and host.calls() == []


def test_a_live_rule_that_no_note_tells_about_is_put_in_again(host: Host) -> None:
    converged(host)
    (host.run_dir / "rules").unlink()
    assert host.up().returncode == 0
    assert [call[2] for call in tc_calls(host)] == ["replace"] * len(host.node.rules)
    assert host.up().stdout == ""


def test_a_refused_replace_becomes_delete_and_add(host: Host) -> None:
    converged(host)
    rule_at(host)["new"] = OTHER_MAC
    host.fault("refuse_replace", where(host.rule))
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert [call[2] for call in tc_calls(host)] == ["replace", "del", "add"]
    assert rule_at(host)["new"] == host.rule.set_dst_mac


def test_two_rules_that_changed_places(make_host: Callable[..., Host]) -> None:
    host = converged(make_host(universal6(), "n1"))
    by_place: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for live in host.state["filters"]:
        by_place.setdefault((live["dev"], live["pref"]), []).append(live)
    first, second = host.state["filters"][0], copy.deepcopy(host.state["filters"][0])
    # A second rule of ours stands under the next handle with what the first one should match.
    second.update(handle="0x2", cookie=COOKIE_PREFIX + "2" * 24)
    first.update(dst=OTHER_MAC, cookie=COOKIE_PREFIX + "3" * 24)
    host.state["filters"].append(second)
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert sorted(f["cookie"] for f in host.state["filters"]) == sorted(r.cookie for r in host.node.rules)


# ---- hardware says no ----------------------------------------------------------------------------


def test_a_rule_that_the_driver_refuses_fails_the_run_and_is_named(host: Host) -> None:
    host.fault("no_offload", host.rule.dev)
    result = host.up()
    assert result.returncode == 1
    assert f"{host.rule.dev} pref {host.rule.pref} handle 0x{host.rule.handle:x}" in result.stdout
    assert "not in hardware: Error: TC offload is disabled on net device." in result.stdout
    # The other rule is in place all the same.
    assert [f["cookie"] for f in host.state["filters"]] == [host.node.rules[1].cookie]
    host.no_faults()
    assert host.up().returncode == 0


def test_a_rule_that_lands_in_software_fails_the_run_and_is_named(host: Host) -> None:
    host.fault("not_in_hw", where(host.rule))
    result = host.up()
    assert result.returncode == 1
    assert f"error: {host.rule.dev} pref {host.rule.pref} handle 0x{host.rule.handle:x}" in result.stdout
    assert "is not in hardware" in result.stdout
    host.calls()
    result = host.up()
    assert result.returncode == 1
    # Tried once more, not over and over.
    assert [call[2] for call in tc_calls(host)] == ["replace"]


def test_the_function_to_redirect_to_is_gone(host: Host) -> None:
    with host.edit() as state:
        state["links"][host.rule.redirect]["present"] = False
    result = host.up()
    assert result.returncode == 1
    assert f"the function {host.rule.redirect} that it sends to is not there" in result.stdout
    assert f"waited 0 s for {host.rule.redirect}: the function itself" in result.stdout


def test_filters_that_cannot_be_read_fail_the_run(host: Host) -> None:
    converged(host)
    host.fault("unreadable", host.rule.dev)
    result = host.up()
    assert result.returncode == 1
    assert f"{host.rule.dev}: its filters cannot be read" in result.stdout


# ---- qdiscs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ingress", "clsact"])
def test_a_qdisc_that_is_there_is_used(host: Host, kind: str) -> None:
    for rule in host.node.rules:
        host.state["qdiscs"][rule.dev] = kind
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert not [call for call in host.calls() if call[1] == "qdisc"]
    assert set(host.state["qdiscs"].values()) == {kind}


def test_a_refused_qdisc_is_named(host: Host) -> None:
    host.fault("refuse_qdisc", host.rule.dev)
    result = host.up()
    assert result.returncode == 1
    assert (
        f"{host.rule.dev}: the kernel refused clsact: Error: Specified qdisc kind is unknown."
        in result.stdout
    )
    # Nothing is noted as ours that is not.
    assert host.rule.dev not in (host.run_dir / "qdiscs").read_text()


# ---- ours and others' ----------------------------------------------------------------------------


def test_stale_rules_of_ours_go_from_every_function(host: Host) -> None:
    converged(host)
    planned = {rule.dev for rule in host.node.rules}
    (elsewhere,) = (
        {p.function.netdev for p in host.node.functions if p.function.plane == 1} - planned - {"enp1s0f1np1"}
    )
    cookie = COOKIE_PREFIX + "7" * 24
    foreign(host, pref=885, cookie=cookie)
    host.state["qdiscs"][elsewhere] = "ingress"
    foreign(host, dev=elsewhere, pref=881, cookie=cookie)
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("removed, no longer planned") == 2
    assert [call[2] for call in tc_calls(host)] == ["del", "del"]
    assert not [f for f in host.state["filters"] if f["cookie"] == cookie]
    # A qdisc of somebody else stays.
    assert host.state["qdiscs"][elsewhere] == "ingress"


def test_a_foreign_rule_is_left_and_reported(host: Host) -> None:
    theirs = [
        foreign(host),
        foreign(host, pref=5, kind="matchall", protocol="all", text="not_in_hw"),
        foreign(host, pref=49151, cookie="00112233445566778899aabbccddeeff", dst="02:00:00:00:00:98"),
    ]
    result = host.up()
    assert result.returncode == 0, result.stdout
    assert f"{host.rule.dev} pref 49152 handle 0x1: not ours, left alone" in result.stdout
    assert result.stdout.count("not ours, left alone") == 3
    assert all(f in host.state["filters"] for f in theirs)
    assert not [call for call in host.calls() if "del" in call]


def test_a_foreign_rule_in_our_place_is_never_overwritten(host: Host) -> None:
    theirs = foreign(host, pref=host.rule.pref, handle=f"0x{host.rule.handle:x}")
    result = host.up()
    assert result.returncode == 1
    assert "a filter that is not ours stands there; remove it with: tc filter del" in result.stdout
    assert theirs in host.state["filters"]
    assert len(tc_calls(host)) == 1 + len(host.node.rules) - 1  # the other device's qdisc and rule


# ---- late, half-finished, twice at once ----------------------------------------------------------


@pytest.mark.parametrize("fault", ["late_function", "late_carrier", "late_address"])
def test_what_is_late_is_waited_for(host: Host, fault: str) -> None:
    if fault == "late_function":
        with host.edit() as state:
            state["links"][host.rule.dev]["present"] = False
    host.fault(fault, host.rule.dev, 3)
    result = host.up(FABRIC_PLAN_WAIT="30")
    assert result.returncode == 0, result.stdout
    assert len(host.state["filters"]) == len(host.node.rules)
    assert "waited" not in result.stdout


def test_an_address_that_never_comes_is_named_and_the_rest_is_done(host: Host) -> None:
    host.fault("late_address", "enp1s0f0np0")
    result = host.up()
    assert result.returncode == 1
    assert "error: waited 0 s for enp1s0f0np0: its address 10.10.0.10/24" in result.stdout
    assert len(host.state["filters"]) == len(host.node.rules)


def test_a_dead_cable_is_named_but_is_no_fault_of_this_node(host: Host) -> None:
    host.fault("late_carrier", "enp1s0f0np0")
    result = host.up()
    assert result.returncode == 0
    assert "waited 0 s for enp1s0f0np0: carrier: is the cable in and the neighbour up?" in result.stdout


def test_a_run_that_is_cut_anywhere_is_made_good_by_the_next(make_host: Callable[..., Host]) -> None:
    whole = make_host(ring4(), "spark1")
    whole.up()
    count = len(whole.calls())
    assert count >= 6
    want = whole.kernel()
    for cut in range(count):
        host = make_host(ring4(), "spark1")
        host.state["die_after"] = cut
        assert host.up().returncode == -9
        host.state["die_after"] = None
        assert len(host.calls()) == cut + 1
        result = host.up()
        assert result.returncode == 0, result.stdout
        assert sorted(host.kernel()["filters"], key=str) == sorted(want["filters"], key=str)
        assert {**host.kernel(), "filters": []} == {**want, "filters": []}
        host.calls()
        assert host.up().stdout == "" and host.calls() == []


def test_a_second_run_waits_for_the_first_and_gives_up_in_time(host: Host) -> None:
    host.run_dir.mkdir(parents=True)
    with (host.run_dir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = host.up(FABRIC_PLAN_LOCK_WAIT="0")
        assert result.returncode == 1
        assert "somebody has held" in result.stdout
        assert host.calls() == []
    assert host.up().returncode == 0


def test_it_runs_as_the_unit_runs_it(host: Host) -> None:
    """Nothing but the environment of a service: no HOME, no TERM, another locale."""
    host.state["units"][MESH_UNIT] = "activating"
    assert host.up(LC_ALL="de_DE.UTF-8", LANG="de_DE.UTF-8").returncode == 0


def universal6() -> Plan:
    """Six nodes: two relays on the longest path, so two tags, and rules with handles past the first."""

    def port(node: int, plane_1: int, plane_2: int) -> str:
        return ", ".join(f"{{mac: '02:00:00:0{node}:00:0{end}'}}" for end in (plane_1, plane_2))

    nodes = "".join(
        f"  - {{name: n{n}, mgmt: 192.0.2.{n}, ports: {{f0: [{port(n, 1, 5)}], f1: [{port(n, 2, 6)}]}}}}\n"
        for n in range(1, 7)
    )
    cables = "".join(f"  - ends: [n{n}.f0, n{n % 6 + 1}.f1]\n" for n in range(1, 7))
    return plan_of(f"fabric: six\nmesh: {{paths: universal}}\nnodes:\n{nodes}cables:\n{cables}")
