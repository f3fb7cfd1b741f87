"""The real command line against four machines behind real SSH servers: what is promised of an apply."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path

import pytest

from tests.apply.chain import Chain, Result
from tests.apply.machine import FOREIGN, Machine
from tests.scripts.support import plan_of, rendered

pytestmark = pytest.mark.chain

UNCHANGED = {f"spark{i}": "unchanged" for i in (1, 2, 3, 4)}
LIMIT_S = 120.0

# What an apply does on a node for its own sake: its service, its timer. Nothing of the fabric is in it.
OWN_CALLS = re.compile(r"systemd-run --quiet --unit=fabric-plan-|systemctl stop fabric-plan-(run|undo)-")


def calls(machine: Machine) -> list[str]:
    """The state-changing calls on a machine without those that carry an apply out."""
    words = [" ".join(argv) for argv in machine.log]
    return [line for line in words if not OWN_CALLS.match(line)]


def break_rule(machine: Machine) -> str:
    """Let one live rule of a machine rewrite to a wrong MAC; returns where it stands."""
    rule = machine.state["filters"][0]
    rule["new"] = "02:00:00:00:00:01"
    return (
        f"dev {rule['dev']} ingress protocol {rule['protocol']} pref {rule['pref']} handle {rule['handle']}"
    )


def test_the_first_apply_brings_everything(applied: Chain) -> None:
    assert applied.first is not None
    assert applied.ends(applied.first) == dict.fromkeys(applied.machines, "applied")
    plan = plan_of(applied.inventory.read_text(), "mesh.yaml")
    for name, machine in applied.machines.items():
        lasting = machine.lasting()
        for path, file in rendered(plan, name).items():
            assert lasting[path][1] == file.content.encode(), path
        node = plan.node(name)
        assert machine.kernel.addresses == {
            "enP7s7": ["192.168.1.11/24"],
            **{f.function.netdev: [str(f.address)] for f in node.functions},
        }
        assert len(machine.state["filters"]) == len(node.rules)
        assert all(
            device["params"]["hairpin_queue_size"] == [8192, 8192]
            for device in machine.state["devlink"].values()
        )
        assert machine.live().units.keys() >= {"fabric-plan-mesh.service", "fabric-plan-hairpin.service"}
        assert len(machine.kernel.marker_args) == len(node.markers)
        assert machine.timers == {}, "no rollback stays armed"


def test_the_second_apply_changes_nothing(applied: Chain) -> None:
    before = {name: machine.tree() for name, machine in applied.machines.items()}
    result = applied.change("apply", "--json")
    assert result.status == 0
    assert applied.ends(result) == UNCHANGED
    assert applied.logs() == {name: [] for name in applied.machines}
    for name, machine in applied.machines.items():
        now = machine.tree()
        touched = [path for path in before[name].keys() | now if before[name].get(path) != now.get(path)]
        assert touched == [], name


def test_the_second_apply_needs_no_permission(applied: Chain) -> None:
    result = applied.run("apply")
    assert result.status == 0, str(result)
    assert result.stdout.split("\n")[-5:] == [f"spark{i}: unchanged" for i in (1, 2, 3, 4)] + [""]


def test_a_wrong_rule_is_replaced_alone(applied: Chain) -> None:
    good = applied.machines["spark2"].kernel_state()
    where = break_rule(applied.machines["spark2"])
    result = applied.run("apply", "--yes", "--json")
    applied.rest()
    assert result.status == 0, str(result)
    assert applied.ends(result) == {**UNCHANGED, "spark2": "applied"}
    done = calls(applied.machines["spark2"])
    assert [line for line in done if where in line] == done, done
    assert len(done) == 1 and done[0].startswith("tc filter replace")
    assert applied.machines["spark2"].kernel_state() == good
    assert all(machine.log == [] for name, machine in applied.machines.items() if name != "spark2")


def lose_rules(machine: Machine, count: int) -> list[str]:
    """Take live rules of a machine away; returns where they stood, as a fault of tc names them."""
    lost = [machine.state["filters"].pop(0) for _ in range(count)]
    return [f"{rule['dev']} {rule['pref']} {rule['handle']}" for rule in lost]


def test_an_undo_owes_no_more_than_what_stood(applied: Chain) -> None:
    machine = applied.machines["spark2"]
    whole = len(machine.state["filters"])
    refused, _ = lose_rules(machine, 2)
    machine.state["faults"]["refuse_add"] = {refused: True}
    lasting = machine.lasting()
    result = applied.change("apply", "--json")
    assert result.status == 1, str(result)
    assert applied.ends(result) == {**UNCHANGED, "spark2": "rolled back"}
    notes = " ".join(result.json["nodes"]["spark2"]["notes"])
    assert "the mesh is what it was before, which was not whole" in notes, str(result)
    assert machine.lasting() == lasting and machine.timers == {}
    assert len(machine.state["filters"]) == whole - 1
    machine.state["faults"].clear()
    assert applied.ends(applied.change("apply", "--json")) == {**UNCHANGED, "spark2": "applied"}


def test_an_undo_that_loses_what_stood_says_so(applied: Chain) -> None:
    machine = applied.machines["spark2"]
    whole = len(machine.state["filters"])
    (refused,) = lose_rules(machine, 1)
    machine.state["faults"]["refuse_add"] = {refused: True}

    def lose_another() -> None:
        (another,) = lose_rules(machine, 1)
        machine.state["faults"]["refuse_add"][another] = True

    machine.during[r"^tc filter add"] = lose_another
    result = applied.change("apply", "--json")
    assert result.status == 1, str(result)
    assert applied.ends(result) == {**UNCHANGED, "spark2": "rollback failed"}
    machine.state["faults"].clear()
    machine.pass_time()
    assert machine.timers == {}
    assert len(machine.state["filters"]) == whole


def held_up(machine: Machine, pattern: str) -> tuple[threading.Event, threading.Event]:
    """Hold the machine up at its next call like `pattern`; the first event says that it is there."""
    there, on = threading.Event(), threading.Event()

    def hold() -> None:
        there.set()
        on.wait(LIMIT_S)

    machine.during[pattern] = hold
    return there, on


def test_of_two_applies_one_is_refused_and_says_by_whom(applied: Chain) -> None:
    machine = applied.machines["spark2"]
    break_rule(machine)
    there, on = held_up(machine, r"^tc filter replace")
    first = applied.begin("apply", "--yes")
    assert there.wait(LIMIT_S)
    second = applied.run("apply", "--yes")
    assert second.status == 1
    assert re.search(
        r"spark2: root@\S+ has held this node since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", second.stderr
    ), str(second)
    assert all(other.log == [] for name, other in applied.machines.items() if name != "spark2")
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    on.set()
    machine.rest()
    break_rule(machine)
    third = applied.run("apply", "--yes")
    assert third.status == 1 and "has held this node" in third.stderr, str(third)
    machine.pass_time()
    last = applied.change("apply", "--json")
    assert last.status == 0, str(last)
    assert last.json["nodes"]["spark2"]["end"] in ("applied", "unchanged")
    assert applied.run("diff", "--detailed-exitcode").status == 0


def broken(applied: Chain) -> None:
    """Break something of every kind."""
    break_rule(applied.machines["spark2"])
    one = applied.machines["spark3"]
    one.write("/proc/sys/net/ipv4/conf/enp1s0f0np0/rp_filter", "1\n")
    one.write("/etc/fabric-plan/env/nccl.env", "NCCL_DEBUG=TRACE\n", 0o600)
    two = applied.machines["spark4"]
    two.kernel.addresses["enp1s0f1np1"] = []
    two._sync()
    (two.root / "etc/netplan/41-sparkring-plane2.yaml").unlink()


def test_saved_facts_give_the_same_difference(applied: Chain, tmp_path: Path) -> None:
    broken(applied)
    saved = str(tmp_path / "facts.json")
    assert applied.run("collect", "-o", saved).status == 0
    live = applied.run("diff", "--json", "--detailed-exitcode")
    later = applied.run("diff", "--json", "--detailed-exitcode", "--facts", saved)
    assert (live.status, later.status) == (2, 2)
    assert live.stdout == later.stdout
    assert applied.run("diff").stdout == applied.run("diff", "--facts", saved).stdout
    kinds = {change["resource"] for changes in live.json["nodes"].values() for change in changes}
    assert {"rule", "sysctl", "file", "address"} <= kinds


def test_one_node_alone(applied: Chain) -> None:
    broken(applied)
    result = applied.change("apply", "--json", "--node", "spark3")
    assert result.status == 0, str(result)
    assert applied.ends(result) == {"spark3": "applied"}
    assert all(machine.log == [] for name, machine in applied.machines.items() if name != "spark3")
    after = applied.run("diff", "--json", "--node", "spark3", "--detailed-exitcode")
    assert after.status == 0, after.stdout


def test_on_the_node_itself(applied: Chain) -> None:
    machine = applied.machines["spark2"]
    where = break_rule(machine)
    words = ("--local", "--node", "spark2", "--yes", "--json")
    result = applied.run("apply", *words, path=str(machine.ssh.tools))
    applied.rest()
    assert result.status == 0, str(result)
    assert applied.ends(result) == {"spark2": "applied"}
    assert [line for line in calls(machine) if where in line] == calls(machine)


def foreign(machine: Machine) -> dict[str, object]:
    """What is on a machine and not ours."""
    paths = {*FOREIGN, "/usr/local/lib/fabric-plan/fabric-plan-marker", "/etc/machine-id"}
    return {path: found for path, found in machine.lasting().items() if path in paths}


@pytest.fixture
def others(applied: Chain) -> dict[str, dict[str, object]]:
    """What is not ours, before anything is taken away."""
    return {name: foreign(machine) for name, machine in applied.machines.items()}


def said(applied: Chain, result: Result, others: dict[str, dict[str, object]]) -> None:
    """Hold what is true of every removal and rollback."""
    assert result.status == 0, str(result)
    assert applied.ends(result) == dict.fromkeys(applied.machines, "applied")
    assert {name: foreign(machine) for name, machine in applied.machines.items()} == others
    for machine in applied.machines.values():
        assert machine.kernel.addresses["enP7s7"] == ["192.168.1.11/24"]
        assert machine.timers == {}


def test_rollback_gives_back_the_factory_state(applied: Chain, others: dict[str, dict[str, object]]) -> None:
    result = applied.change("rollback", "--json")
    said(applied, result, others)
    for name, machine in applied.machines.items():
        lasting, kernel = applied.factory[name]
        assert machine.lasting() == lasting
        now = machine.kernel_state()
        for key in (
            "filters",
            "qdiscs",
            "routes",
            "forwarding",
            "units",
            "markers",
            "active",
        ):
            assert now[key] == kernel[key], key
        # NetworkManager has read its folder again, others' sections with it; of ours none may be left.
        assert not [section for section in now["nm_conf"] if "fabric-plan" in section]
        assert all(link["addresses"] == [] for dev, link in now["links"].items() if dev != "enP7s7")
    history = applied.run("history", "--json")
    assert [
        (g["number"], g["intent"], g["result"]) for g in history.json["nodes"]["spark1"]["generations"]
    ] == [
        (2, "rollback", "committed"),
        (1, "apply", "committed"),
    ]
    assert history.json["nodes"]["spark1"]["current"] == 2
    assert applied.change("rollback", "--json").status == 0
    assert applied.run("diff", "--detailed-exitcode").status == 0, (
        "a rollback of a rollback is the plan again"
    )


def test_remove_the_mesh(applied: Chain, others: dict[str, dict[str, object]]) -> None:
    result = applied.change("remove mesh", "--json")
    said(applied, result, others)
    for machine in applied.machines.values():
        state = machine.kernel_state()
        assert state["filters"] == [] and state["qdiscs"] == {} and state["markers"] == {}
        assert not any(route["proto"] == "214" for route in state["routes"])
        assert "fabric-plan-mesh.service" not in state["units"]
        assert all(len(machine.kernel.addresses[dev]) == 1 for dev in machine.functions)
        assert not any("mesh" in path or "marker@" in path for path in machine.lasting())
    again = applied.change("remove mesh", "--json")
    assert applied.ends(again) == UNCHANGED


def test_remove_the_second_plane(applied: Chain, others: dict[str, dict[str, object]]) -> None:
    text = 'network:\n  version: 2\n  ethernets:\n    enP2p1s0f0np0:\n      addresses: ["10.99.0.1/24"]\n'
    path = "/etc/netplan/90-NM-0a1b2c3d-0000-4000-8000-000000000001.yaml"
    other = "/etc/netplan/90-NM-0a1b2c3d-0000-4000-8000-000000000002.yaml"
    about_wifi = text.replace("enP2p1s0f0np0", "wlP9s9")
    for machine in applied.machines.values():
        machine.write(path, text, 0o600)
        machine.write(other, about_wifi, 0o600)
    result = applied.change("remove plane2", "--json")
    said(applied, result, others)
    plan = plan_of(applied.inventory.read_text(), "mesh.yaml")
    for name, machine in applied.machines.items():
        lasting = machine.lasting()
        assert path not in lasting
        assert lasting[f"{path}.moved-by-fabric-plan"][1] == text.encode()
        assert lasting[other][1] == about_wifi.encode()
        assert "/etc/netplan/41-sparkring-plane2.yaml" not in lasting
        plane2 = [dev for dev in machine.functions if dev.startswith("enP2")]
        plane1 = [dev for dev in machine.functions if not dev.startswith("enP2")]
        assert all(machine.kernel.addresses[dev] == [] for dev in plane2)
        assert all(len(machine.kernel.addresses[dev]) == 1 for dev in plane1)
        assert not [rule for rule in machine.state["filters"] if rule["dev"] in plane2]
        # Two of the ring's relays have their rules on this plane, the other two on the one that went.
        rules = [rule.dev for rule in plan.node(name).rules if rule.dev in plane1]
        assert sorted(rule["dev"] for rule in machine.state["filters"]) == sorted(rules)


def test_remove_everything(applied: Chain, others: dict[str, dict[str, object]]) -> None:
    result = applied.change("remove everything", "--json")
    said(applied, result, others)
    for name, machine in applied.machines.items():
        lasting, kernel = applied.factory[name]
        assert machine.lasting() == lasting
        now = machine.kernel_state()
        for key in ("filters", "qdiscs", "routes", "forwarding", "units", "markers", "active"):
            assert now[key] == kernel[key], key
        # NetworkManager has read its folder again, others' sections with it; of ours none may be left.
        assert not [section for section in now["nm_conf"] if "fabric-plan" in section]
    history = applied.run("history")
    assert history.status == 0
    assert re.search(r"spark1 +2 \* .* remove ", history.stdout), history.stdout
    again = applied.change("remove everything", "--json")
    assert applied.ends(again) == UNCHANGED
