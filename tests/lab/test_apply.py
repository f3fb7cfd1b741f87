"""`apply`, `rollback` and `remove` on the lab's nodes, whole and cut: real kernels, netplan, NetworkManager
and systemd. What *in hardware* means here is the lab's word.
"""

from __future__ import annotations

import os
import signal
from difflib import ndiff

import pytest

from fabric_plan.node.transaction.state import LIVE
from lab.driver import Lab
from lab.faults import FAULTS
from tests.lab.plan import Plan
from tests.lab.test_scenarios import assert_hardware_paths, assert_healthy
from tests.lab.tool import Done, Tool

VICTIM = "spark3"
RECORD = "/run/fabric-plan/apply.json"
SECONDS = 1200
CUT_S = 60

# All that apply could leave behind, and all that lives: two nodes in the same state print the same. Not
# driver values, for no driver is reloaded to bring them back; nor the kernel's own qdisc, whose quantum
# is that of the MTU at the time.
STATE = r"""
etc="netplan NetworkManager systemd/system sysctl.d fabric-plan"
for d in $(printf '/etc/%s ' $etc) /usr/local/lib/fabric-plan; do
  find $d -type f -exec sha256sum {} + -o -type l -printf '%p -> %l\n' 2>/dev/null | sort
done
for f in /sys/class/net/en[pP]*f[01]np[01]; do
  d=${f##*/}; echo "$d $(cat $f/mtu)"; ip -4 -o addr show dev $d | awk '{print $2, $4}'
  tc qdisc show dev $d | grep -v fq_codel; tc filter show dev $d ingress
  grep -v hairpin /sys/kernel/debug/fakecx7/$(basename $(readlink $f/device))/state
done
ip -4 rule; ip -4 neigh show nud permanent | sort
# NetworkManager counts the metric of the management port up in the order in which ports come up at a boot.
ip -4 route show table all | grep -v linkdown | sed '/dev enP7s7/s/ metric [0-9]*//' | sort; iptables -S
find /run/netplan /run/sysctl.d /run/systemd/system.control ! -type d 2>/dev/null
systemctl list-units --no-legend --plain 'fabric-plan-*' | awk '{print $1, $3}'
"""


# What a failed trial puts back. What a removed fabric had set stays until a boot: no file says what it was.
SETTINGS = "sysctl -a 2>/dev/null | grep -E '^net.ipv4.(ip_forward|conf.*(arp|rp_filter|redirects))'"


def states(lab: Lab, look: str = STATE) -> dict[str, str]:
    """What is on each node and lives there."""
    return lab.each(lambda name: lab.out(name, look))


def assert_states(lab: Lab, before: dict[str, str], look: str = STATE) -> None:
    """Every node is in the state that it was in."""
    now = states(lab, look)
    assert {
        name: [line for line in ndiff(text.splitlines(), now[name].splitlines()) if line[0] in "+-"]
        for name, text in before.items()
    } == {name: [] for name in before}


def assert_ends(done: Done, end: str) -> None:
    """Every node came to the same end."""
    assert done.document, done.said
    messages = {name: node["message"] for name, node in done.document["nodes"].items()}
    assert set(done.ends.values()) == {end}, (done.ends, messages, done.said)


def wait_for_steps(lab: Lab, name: str) -> None:
    """Wait until a node has files of the trial in effect and is at work."""
    at_work = "|".join(LIVE[:2])
    look = f'grep -qE \'"phase": ?"({at_work})"\' {RECORD} && ls /run/netplan/41-*.yaml'
    lab.wait(name, "the trial to be under way", look, seconds=SECONDS)


def wait_for_the_end(lab: Lab, name: str) -> None:
    """Wait until nothing of a trial is left on a node."""
    over = f'test ! -e {RECORD} || grep -qE \'"phase": ?"(rolled-back|committed)"\' {RECORD}'
    timers = "test -z \"$(systemctl list-timers --all --no-legend 'fabric-plan-undo-*')\""
    lab.wait(name, "the node's own rollback", f"{{ {over}; }} && {timers}", seconds=SECONDS)


def test_a_second_apply_changes_nothing(looked_at: Tool) -> None:
    before = states(looked_at.lab)
    done = looked_at.run("apply")
    assert done.status == 0, done.said
    assert_ends(done, "unchanged")
    assert_states(looked_at.lab, before)


def test_the_probe_is_green_after_a_reboot_of_all(applied: Tool, plan: Plan) -> None:
    lab = applied.lab
    for names in lab.batches():
        lab.reboot(*names)
    plan.wait_all_settled(lab)
    done = applied.run("verify", "--since-boot", "--probe")
    assert done.status == 0, done.findings
    lab.each(lambda name: assert_healthy(lab, plan, name))
    assert_hardware_paths(lab, plan, plan.paths())


@pytest.mark.parametrize("refused", ["a rule", "a reload"])
def test_what_the_card_refuses_is_undone_and_comes_once_it_is_allowed(
    applied: Tool, plan: Plan, refused: str
) -> None:
    lab = applied.lab
    rule = applied.plan.node(VICTIM).rules[0]
    if refused == "a rule":
        name, value = "rule_errno", "95"
        lab.ssh(VICTIM, f"tc filter del dev {rule.dev} ingress pref {rule.pref}")
    else:
        name, value = "reload", "busy"
        pci = next(f["pci"] for f in plan.functions(VICTIM) if f["netdev"] == rule.dev)
        param = f"devlink dev param set pci/{pci} name hairpin_queue_size value 1024 cmode driverinit"
        lab.ssh(VICTIM, f"{param} && devlink dev reload pci/{pci} action driver_reinit", seconds=300)
        here = f"tc filter show dev {rule.dev} ingress 2>/dev/null | grep -qw in_hw"
        lab.wait(VICTIM, "the rules to come back", here, seconds=400)
        plan.wait_all_settled(lab)
    before, settings = states(lab), states(lab, SETTINGS)
    lab.fault(VICTIM, name, rule.dev, value)
    done = applied.change("apply")
    assert done.status == 1 and done.ends[VICTIM] == "rolled back", (done.ends, done.said)
    assert rule.dev in done.document["nodes"][VICTIM]["message"], done.document
    assert_states(lab, before)
    assert_states(lab, settings, SETTINGS)
    lab.fault(VICTIM, name, rule.dev, FAULTS[name].off)
    done = applied.change("apply")
    assert done.ends[VICTIM] == "applied", (done.ends, done.said)
    assert_healthy(lab, plan, VICTIM)


def test_rollback_gives_the_factory_state_back(applied: Tool, factory_states: dict[str, str]) -> None:
    assert_ends(applied.change("rollback"), "applied")
    assert_states(applied.lab, factory_states)


def test_remove_everything_leaves_nothing_though_a_connection_is_cut(
    applied: Tool, factory_states: dict[str, str]
) -> None:
    lab = applied.lab
    process = applied.begin_change("remove", "everything")
    wait_for_steps(lab, VICTIM)
    # All that comes to its SSH server is lost for a while, ours too: the node mends it by itself.
    cut = "nft add table inet cut; nft 'add chain inet cut in { type filter hook input priority -9; }'"
    cut += "; nft add rule inet cut in tcp dport 22 drop"
    mend = f"systemd-run -q --on-active={CUT_S} nft delete table inet cut"
    lab.ssh(VICTIM, f"{mend} && {{ ({cut}) & }}", check=False)
    lab.drop_connections([VICTIM])
    assert_ends(applied.end(process), "applied")
    assert_states(lab, factory_states)
    assert_ends(applied.change("remove", "everything"), "unchanged")


def test_a_power_cut_in_the_middle_leaves_every_node_as_it_was(
    unapplied: Tool, factory_states: dict[str, str]
) -> None:
    lab = unapplied.lab
    process = unapplied.begin_change("apply")
    wait_for_steps(lab, VICTIM)
    lab.power_cut(VICTIM)
    done = unapplied.end(process)
    assert done.status == 1, done.said
    assert "applied" not in done.ends.values(), done.ends
    lab.each(lambda name: wait_for_the_end(lab, name))
    assert_states(lab, factory_states)


def test_a_controller_that_vanishes_leaves_every_node_as_it_was(
    unapplied: Tool, factory_states: dict[str, str]
) -> None:
    lab = unapplied.lab
    settings = states(lab, SETTINGS)
    process = unapplied.begin_change("apply", confirm_s=240)
    wait_for_steps(lab, VICTIM)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    lab.each(lambda name: wait_for_the_end(lab, name))
    assert_states(lab, factory_states)
    assert_states(lab, settings, SETTINGS)
