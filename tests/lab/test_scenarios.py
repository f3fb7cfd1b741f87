"""The rendered files of the example ring on nodes that were in their factory state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.driver import Lab
from lab.errors import LabError
from lab.faults import FAULTS
from tests.lab import traffic
from tests.lab.conftest import INVENTORY
from tests.lab.plan import HAIRPIN, LIBRARY, MESH, RECOVER, Plan, RdmaPath
from tests.lab.tool import Tool
from tests.lab.traffic import ORDERING_CYCLES

UP = f"{LIBRARY}/mesh-up.sh"
DOWN = f"{LIBRARY}/mesh-down.sh"
CARRIER_S = 15
TIMED_OUT = 124


def netdev_of(plan: Plan, name: str, rdma: str) -> str:
    """The net device under an RDMA device."""
    return next(str(f["netdev"]) for f in plan.node(name)["functions"] if f["rdma"] == rdma)


def planned_plane(plan: Plan, name: str, netdev: str) -> int:
    """The plane of a function."""
    return int(next(f["plane"] for f in plan.node(name)["functions"] if f["netdev"] == netdev))


def address_of(plan: Plan, name: str, rdma: str) -> str:
    """The address of an RDMA device."""
    return plan.address(name, netdev_of(plan, name, rdma))


def assert_rules(lab: Lab, plan: Plan, name: str) -> None:
    """Every planned rule is in hardware and no other is there."""
    planned = sorted((r["dev"], r["pref"], r["handle"]) for r in plan.node(name)["rules"])
    live = []
    for function in plan.node(name)["functions"]:
        for entry in traffic.filters(lab, name, function["netdev"]):
            assert entry["options"]["in_hw"], entry
            live.append((function["netdev"], entry["pref"], entry["options"]["handle"]))
    assert sorted(live) == planned


def assert_healthy(lab: Lab, plan: Plan, name: str) -> None:
    """What a node must show after it booted with the plan."""
    addresses = json.loads(lab.out(name, "ip -j -4 address show"))
    found = {link["ifname"]: link for link in addresses}
    started = [unit for unit in plan.units(name) if unit != RECOVER]
    for function in plan.functions(name):
        link = found[function["netdev"]]
        assert link["mtu"] == 9000
        assert [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"]] == [function["address"]]
        state = lab.out(name, f"cat /sys/kernel/debug/fakecx7/{function['pci']}/state")
        size = 8192 if HAIRPIN in started else 1024
        assert f"hairpin_num_queues 4\nhairpin_queue_size {size}" in state
        owner = lab.out(name, f"nmcli -g GENERAL.CONNECTION device show {function['netdev']}")
        assert owner == f"netplan-{function['netdev']}"
    state = lab.out(name, "".join(f"systemctl is-active {unit} || true; " for unit in started) or "true")
    assert state.split() == ["active"] * len(started)
    assert lab.out(name, ORDERING_CYCLES) == ""
    for dev in {rule["dev"] for rule in plan.node(name)["rules"]}:
        pci = next(f["pci"] for f in plan.node(name)["functions"] if f["netdev"] == dev)
        hairpins = lab.out(
            name, f"cat /sys/kernel/debug/mlx5/{pci}/nic/fs/tc/hairpin_table_dump"
        ).splitlines()
        assert hairpins and all(line.endswith("num_channels 4 num_packets 8192") for line in hairpins)
    assert_rules(lab, plan, name)


def write(
    lab: Lab,
    plan: Plan,
    path: RdmaPath,
    *,
    iterations: int = 50,
    port: int = traffic.PERFTEST_PORT,
    limit_s: int = 200,
) -> None:
    """RDMA along a planned path."""
    source = (path.source, path.device, address_of(plan, path.source, path.device))
    target = (path.far, path.far_device, path.far_address)
    traffic.rdma_write(lab, source, target, iterations=iterations, port=port, limit_s=limit_s)


def assert_hardware_paths(lab: Lab, plan: Plan, paths: Iterable[RdmaPath]) -> None:
    """RDMA along paths: the relays' rules count all of it and no kernel forwards a datagram."""
    chosen = list(paths)
    assert chosen
    due = Counter(
        (relay, str(f["netdev"]))
        for path in chosen
        for relay in path.relays
        for f in plan.node(relay)["functions"]
        if f["plane"] == path.plane
    )
    before = lab.each(lambda name: traffic.counters(lab, name))
    with ThreadPoolExecutor(2) as pool:
        ports = range(traffic.PERFTEST_PORT, traffic.PERFTEST_PORT + len(chosen))
        done = [
            pool.submit(write, lab, plan, path, port=port) for path, port in zip(chosen, ports, strict=True)
        ]
        for path, result in zip(chosen, done, strict=True):
            try:
                result.result()
            except LabError as error:
                raise AssertionError(f"{path}: {error}") from error
    after = lab.each(lambda name: traffic.counters(lab, name))
    for (relay, dev), runs in due.items():
        assert after[relay].rules[dev] - before[relay].rules[dev] >= 50 * runs, (relay, dev)
    assert {name: found.kernel for name, found in after.items()} == {
        name: found.kernel for name, found in before.items()
    }


def test_1_rendered_files_make_a_working_ring(planned: Lab, plan: Plan) -> None:
    planned.each(lambda name: assert_healthy(planned, plan, name))
    assert_hardware_paths(planned, plan, [*plan.cables(planned), *plan.paths()])


def test_1_tcp_reaches_every_address(planned: Lab, plan: Plan) -> None:
    addresses = [str(f["address"]).partition("/")[0] for name in planned.names for f in plan.functions(name)]
    look = "; ".join(
        f"timeout 20 bash -c 'exec 3<>/dev/tcp/{address}/22; head -c 4 <&3 | grep -q SSH-' || echo {address}"
        for address in addresses
    )
    missed = planned.each(lambda name: planned.out(name, look, seconds=600))
    assert missed == dict.fromkeys(planned.names, "")


def test_2_a_reboot_of_one_and_of_all_needs_nobody(meshed: Lab, plan: Plan) -> None:
    for names in (meshed.names[1:2], meshed.names):
        meshed.reboot(*names)
        plan.wait_all_settled(meshed)
        meshed.each(lambda name: assert_healthy(meshed, plan, name))
        assert_hardware_paths(meshed, plan, plan.paths())


def test_3_a_second_mesh_up_touches_no_rule(meshed: Lab, plan: Plan) -> None:
    write(meshed, plan, next(plan.paths()))
    for name in meshed.names:
        devices = [f["netdev"] for f in plan.node(name)["functions"]]

        def rules(name: str = name, devices: list[str] = devices) -> list[tuple[object, ...]]:
            return [
                (dev, e["pref"], e["options"]["handle"], *(a["index"] for a in e["options"]["actions"]))
                for dev in devices
                for e in traffic.filters(meshed, name, dev)
            ]

        def clocks(name: str = name, devices: list[str] = devices) -> list[tuple[int, int]]:
            actions = [
                a
                for dev in devices
                for e in traffic.filters(meshed, name, dev)
                for a in e["options"]["actions"]
            ]
            return [(a["installed"], a["stats"].get("hw_packets", 0)) for a in actions]

        before, ages = rules(), clocks()
        meshed.ssh(name, UP, seconds=300)
        assert rules() == before
        for (old_age, old_count), (age, count) in zip(ages, clocks(), strict=True):
            assert age >= old_age and count >= old_count


def test_4_a_refused_rule_fails_the_unit_and_forwards_nothing(meshed: Lab, plan: Plan) -> None:
    path = next(plan.paths())
    relay = path.relay
    rule = next(r for r in plan.node(relay)["rules"])
    pci = next(f["pci"] for f in plan.node(relay)["functions"] if f["netdev"] == rule["dev"])
    meshed.fault(relay, "rule_errno", pci, "95", at_boot=True)
    meshed.reboot(relay)
    plan.wait_settled(meshed, relay)
    assert meshed.ssh(relay, f"systemctl is-active {MESH}", check=False).out.strip() == "failed"
    journal = meshed.out(relay, f"journalctl -b -u {MESH} --no-pager")
    assert rule["dev"] in journal and "injected fault 95" in journal
    assert traffic.filters(meshed, relay, rule["dev"]) == []
    # the sender's marker runs, so tagged frames do arrive here: nothing may carry them on
    before = traffic.forwarded(meshed, relay)
    arrived = meshed.counters(relay, rule["dev"])["rx_packets_phy"]
    blocked = next(
        p for p in plan.paths() if p.relay == relay and p.plane == planned_plane(plan, relay, rule["dev"])
    )
    with pytest.raises(LabError):
        write(meshed, plan, blocked, iterations=5, limit_s=traffic.LOST_S)
    assert traffic.forwarded(meshed, relay) == before
    assert meshed.counters(relay, rule["dev"])["rx_packets_phy"] > arrived
    assert not meshed.ssh(relay, UP, check=False, seconds=300).ok


def test_5_what_a_function_reload_takes_comes_back_by_itself(meshed: Lab, plan: Plan) -> None:
    relay = next(plan.paths()).relay
    rule = plan.node(relay)["rules"][0]
    dev = rule["dev"]
    function = next(f for f in plan.node(relay)["functions"] if f["netdev"] == dev)
    planned = sum(r["dev"] == dev for r in plan.node(relay)["rules"])
    left = meshed.out(
        relay,
        f"devlink dev reload pci/{function['pci']} action driver_reinit >/dev/null && "
        f"{{ tc filter show dev {dev} ingress; ip -4 -o address show dev {dev}; }} 2>/dev/null || true",
        seconds=300,
    )
    assert left == ""
    # the dispatcher runs mesh-up when NetworkManager has the function again
    meshed.wait(
        relay,
        "the rules to come back",
        f"test $(tc filter show dev {dev} ingress 2>/dev/null | grep -cw in_hw) = {planned}",
        seconds=400,
    )
    plan.wait_all_settled(meshed)
    assert_healthy(meshed, plan, relay)
    assert_hardware_paths(meshed, plan, (p for p in plan.paths() if relay in (p.source, p.far, p.relay)))


def test_6_a_cable_pulled_and_put_back(meshed: Lab, plan: Plan) -> None:
    cable = meshed.spec.cables[0]
    node = meshed.spec.node(cable.a.node)
    netdev = node.function(cable.a.port, 1).netdev
    kept = (
        f"{{ ip -4 -o route show dev {netdev}; ip -4 -o address show dev {netdev}; }} | sed 's/ linkdown//'"
    )
    before = meshed.out(node.name, kept)
    meshed.fault(node.name, "cable", cable.a.port, "0")
    meshed.wait(node.name, "the link to go", f"test $(cat /sys/class/net/{netdev}/carrier) = 0")
    # NetworkManager waits some seconds before it takes a profile down for want of a carrier
    changes = meshed.ssh(node.name, f"timeout {CARRIER_S} ip -4 monitor address route", check=False)
    assert changes.code == TIMED_OUT and "Deleted" not in changes.out
    assert meshed.out(node.name, kept) == before
    meshed.fault(node.name, "cable", cable.a.port, FAULTS["cable"].off)
    meshed.wait(node.name, "the link to come", f"test $(cat /sys/class/net/{netdev}/carrier) = 1")
    assert_hardware_paths(meshed, plan, (p for p in plan.paths() if node.name in (p.source, p.relay)))


def test_6_a_neighbour_that_reboots_takes_nothing_with_it(meshed: Lab, plan: Plan) -> None:
    relay = next(plan.paths()).relay
    beside = next(path for path in plan.cables(meshed) if relay not in (path.source, path.far))
    with ThreadPoolExecutor(1) as pool:
        reboot = pool.submit(meshed.reboot, relay)
        runs = 0
        while not reboot.done():
            write(meshed, plan, beside)
            runs += 1
        reboot.result()
    assert runs
    plan.wait_all_settled(meshed)
    for name in meshed.names:
        assert_rules(meshed, plan, name)
    assert_hardware_paths(meshed, plan, plan.paths())


SNAPSHOT = r"""
for d in $(ls /sys/class/net); do tc qdisc show dev $d; tc filter show dev $d ingress; done
ip -4 rule; ip -4 route show table all | sort; ip -4 neigh show nud permanent | sort; iptables -S
nft list ruleset | sed 's/counter packets [0-9]* bytes [0-9]*//'
sysctl -a 2>/dev/null | grep -E '^net.ipv4.(ip_forward|conf)' | sort
"""


def test_7_mesh_down_leaves_a_node_as_it_was(meshed: Lab, plan: Plan) -> None:
    name = next(plan.paths()).relay
    state = f"( {SNAPSHOT} ) 2>&1"
    # a boot in which the mesh was never up
    meshed.ssh(name, f"systemctl disable -q {MESH}")
    meshed.reboot(name)
    plan.wait_addresses(meshed, name)
    plan.meet(meshed, name)
    without = meshed.out(name, state)
    assert "rdma_tx" not in without and "88b5" not in without
    for down in (f"systemctl stop {MESH}", f"systemctl stop {MESH}", f"{DOWN} --force"):
        meshed.ssh(name, f"systemctl start {MESH}", seconds=400)
        plan.wait_settled(meshed, name)
        assert meshed.out(name, state) != without
        meshed.ssh(name, down, seconds=300)
        assert meshed.out(name, state) == without
        meshed.ssh(name, f"systemctl stop {MESH}", seconds=300)


@pytest.mark.parametrize("pinned", [False, True])
def test_8_arp_is_pinned_to_its_plane(meshed: Lab, plan: Plan, pinned: bool) -> None:
    cable = meshed.spec.cables[0]
    near, far = meshed.spec.node(cable.a.node), meshed.spec.node(cable.b.node)
    if not pinned:
        for node, port in ((near, cable.a.port), (far, cable.b.port)):
            for plane in (1, 2):
                netdev = node.function(port, plane).netdev
                meshed.ssh(
                    node.name,
                    f"sysctl -qw net.ipv4.conf.{netdev}.arp_ignore=0 net.ipv4.conf.{netdev}.arp_announce=0",
                )
    netdev = near.function(cable.a.port, 1).netdev
    right = far.function(cable.b.port, 1)
    target = plan.address(far.name, right.netdev)
    seen = traffic.resolved(meshed, near.name, netdev, target, 10)
    assert (set(seen) == {right.mac}) is pinned


def test_9_a_swapped_card_is_found_by_the_checks(meshed: Lab, plan: Plan) -> None:
    path = next(plan.paths())
    rule = next(r for r in plan.node(path.relay)["rules"])
    function = next(f for f in plan.node(path.relay)["functions"] if f["netdev"] == rule["dev"])
    meshed.nic_swap(path.relay, {function["pci"]: "4c:bb:47:99:00:01"})
    plan.wait_settled(meshed, path.relay)
    live = meshed.out(path.relay, f"cat /sys/class/net/{function['netdev']}/address")
    (entry,) = traffic.filters(meshed, path.relay, rule["dev"])
    assert entry["options"]["keys"]["dst_mac"] == function["mac"] != live
    # the rule is in hardware and right by its own lights, and no frame will ever match it
    assert entry["options"]["in_hw"]
    done = Tool(meshed, INVENTORY).run("verify")
    roots = [(f["node"], f["interface"], f["id"]) for f in done.document.get("findings", ())]
    assert roots == [(path.relay, rule["dev"], "identity")], done.findings
