"""Every fault of the lab's table does what the table says."""

from __future__ import annotations

import shutil

import pytest

from lab.driver import Lab
from lab.errors import LabError
from lab.faults import FAULTS, debugfs_path
from tests.lab import traffic
from tests.lab.test_fabric import prepare_hairpin, rule, through

RELOAD = "devlink dev reload pci/{pci} action driver_reinit"


def relay_rule(lab: Lab) -> tuple[str, str]:
    """The relay's name and the command that adds its first rule, clsact included."""
    _, out, relay, first, second, _, arrival = through(lab)
    return relay.name, f"tc qdisc add dev {first.netdev} clsact; {rule(first, out, arrival, second)}"


def test_rules_are_refused(lab: Lab) -> None:
    name, add = relay_rule(lab)
    first = through(lab)[3]
    lab.fault(name, "rule_errno", first.netdev, "95")
    refused = lab.ssh(name, add, check=False)
    assert not refused.ok and "injected fault 95" in refused.err
    assert traffic.filters(lab, name, first.netdev) == []
    lab.fault(name, "rule_errno", first.netdev, "0")
    assert lab.ssh(name, add.partition("; ")[2]).ok


def test_another_guid_refuses_the_redirect(lab: Lab) -> None:
    name, add = relay_rule(lab)
    lab.fault(name, "system_image_guid", through(lab)[4].netdev, "0x1234")
    refused = lab.ssh(name, add, check=False)
    assert not refused.ok and "not on same switch HW" in refused.err


def test_dscp_trust_refuses_a_hairpin(lab: Lab) -> None:
    name, add = relay_rule(lab)
    netdev = through(lab)[3].netdev
    lab.ssh(name, f"dcb app add dev {netdev} dscp-prio 26:3")
    refused = lab.ssh(name, add, check=False)
    assert not refused.ok and "only PCP trust state supported for hairpin" in refused.err
    lab.ssh(name, f"dcb app del dev {netdev} dscp-prio 26:3")
    assert lab.ssh(name, add.partition("; ")[2]).ok


def test_switchdev_is_refused(factory: Lab) -> None:
    pci = factory.spec.nodes[0].functions[0].pci
    refused = factory.ssh(factory.names[0], f"devlink dev eswitch set pci/{pci} mode switchdev", check=False)
    assert not refused.ok and "switchdev" in refused.err


def test_offload_can_be_off_but_not_under_rules(lab: Lab) -> None:
    name, add = relay_rule(lab)
    first = through(lab)[3].netdev
    lab.ssh(name, f"ethtool -K {first} hw-tc-offload off")
    refused = lab.ssh(name, add, check=False)
    assert not refused.ok and "TC offload is disabled on net device" in refused.err
    lab.ssh(name, f"ethtool -K {first} hw-tc-offload on; {add.partition('; ')[2]}")
    lab.ssh(name, f"ethtool -K {first} hw-tc-offload off", check=False)
    assert "hw-tc-offload: on" in lab.out(name, f"ethtool -k {first}")


def test_driver_values_take_effect_with_a_reload_and_end_with_a_boot(lab: Lab) -> None:
    name, function = lab.names[0], lab.spec.nodes[0].functions[0]
    state = f"cat /sys/kernel/debug/fakecx7/{function.pci}/state"
    index = lab.out(name, f"cat /sys/class/net/{function.netdev}/ifindex")
    lab.ssh(
        name, f"devlink dev param set pci/{function.pci} name hairpin_queue_size value 8192 cmode driverinit"
    )
    shown = lab.out(name, f"devlink dev param show pci/{function.pci} name hairpin_queue_size")
    assert "value 8192" in shown and "hairpin_queue_size 1024" in lab.out(name, state)
    lab.ssh(name, RELOAD.format(pci=function.pci))
    assert "hairpin_queue_size 8192" in lab.out(name, state)
    lab.wait(name, "the function's name", f"test -e /sys/class/net/{function.netdev}")
    lab.wait(name, "its RDMA device", f"test -e /sys/class/infiniband/{function.rdma}")
    assert lab.out(name, f"cat /sys/class/net/{function.netdev}/ifindex") != index
    lab.power_cut(name)
    assert "hairpin_queue_size 1024" in lab.out(name, state)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("busy", "injected reload fault"),
        ("sf", "mlx5_core: reload is unsupported when SFs are allocated"),
        ("lag", "mlx5_core: reload is unsupported in Lag mode"),
    ],
)
def test_reloads_are_refused(lab: Lab, value: str, words: str) -> None:
    name, function = lab.names[0], lab.spec.nodes[0].functions[0]
    lab.fault(name, "reload", function.netdev, value)
    refused = lab.ssh(name, RELOAD.format(pci=function.pci), check=False)
    assert not refused.ok and words in refused.err
    assert lab.ssh(name, f"test -e /sys/class/net/{function.netdev}").ok


def test_a_reload_that_fails_leaves_no_function(lab: Lab) -> None:
    name, function = lab.names[0], lab.spec.nodes[0].functions[0]
    lab.fault(name, "reload", function.pci, "fail")
    assert not lab.ssh(name, RELOAD.format(pci=function.pci), check=False).ok
    assert not lab.ssh(name, f"test -e /sys/class/net/{function.netdev}", check=False).ok
    assert '"reload_failed":true' in lab.out(name, "devlink -j dev show")
    lab.fault(name, "reload", function.pci, "none")
    lab.ssh(name, RELOAD.format(pci=function.pci))
    lab.wait(name, "the function to come back", f"test -e /sys/class/net/{function.netdev}")


@pytest.mark.parametrize(("value", "ends"), [("hang", True), ("hang-hard", False)])
def test_a_reload_that_never_returns(lab: Lab, value: str, ends: bool) -> None:
    name, function = lab.names[0], lab.spec.nodes[0].functions[0]
    lab.fault(name, "reload", function.pci, value)
    reload = RELOAD.format(pci=function.pci)
    # in a unit of its own: what cannot be killed must not hold the connection
    lab.ssh(name, f"systemd-run -q --unit=hang --property=TimeoutStopSec=2 {reload}")
    lab.wait(name, "the reload to hang", "pgrep -x devlink")
    lab.ssh(name, "pkill -KILL -x devlink")
    gone = "! pgrep -x devlink"
    if ends:
        lab.wait(name, "the killed reload to end", gone)
        return
    with pytest.raises(LabError, match="in vain"):
        lab.wait(name, "the killed reload to end", gone, seconds=8)
    lab.fault(name, "reload", function.pci, "none")
    lab.wait(name, "the reload to end once the fault is lifted", gone)


def test_a_pulled_cable_takes_the_link_of_both_ends(lab: Lab) -> None:
    cable = lab.spec.cables[0]
    near, far = lab.spec.node(cable.a.node), lab.spec.node(cable.b.node)
    for value, carrier in (("0", "0"), ("1", "1")):
        lab.fault(near.name, "cable", cable.a.port, value)
        for node, port in ((near, cable.a.port), (far, cable.b.port)):
            for plane in (1, 2):
                netdev = node.function(port, plane).netdev
                lab.wait(
                    node.name,
                    f"carrier {carrier}",
                    f"test $(cat /sys/class/net/{netdev}/carrier) = {carrier}",
                )


def test_a_full_queue_loses_frames_where_mlx5_counts_them(lab: Lab) -> None:
    prepare_hairpin(lab)
    start, out, relay, first, _, far, arrival = through(lab)
    lab.fault(relay.name, "overflow", first.netdev, "10")
    before = lab.counters(relay.name, first.netdev)["rx_out_of_buffer"]
    traffic.rdma_write(
        lab, (start.name, out.rdma, "10.79.0.1"), (far.name, arrival.rdma, "10.79.0.2"), iterations=50
    )
    assert lab.counters(relay.name, first.netdev)["rx_out_of_buffer"] - before >= 5


def test_a_black_hole_counts_and_forwards_nothing(lab: Lab) -> None:
    prepare_hairpin(lab)
    start, out, relay, first, _, far, arrival = through(lab)
    lab.fault(relay.name, "blackhole", first.netdev, "Y")
    ends = (start.name, out.rdma, "10.79.0.1"), (far.name, arrival.rdma, "10.79.0.2")
    with pytest.raises(LabError):
        traffic.rdma_write(lab, *ends, iterations=5, limit_s=traffic.LOST_S)
    assert traffic.hardware_packets(lab, relay.name, first.netdev) > 0


def test_a_swapped_card_has_other_addresses(lab: Lab) -> None:
    node = lab.spec.nodes[0]
    old, new = node.functions[0], "4c:bb:47:99:00:01"
    lab.nic_swap(node.name, {old.pci: new})
    assert lab.out(node.name, f"cat /sys/class/net/{old.netdev}/address") == new
    other = node.functions[1]
    assert lab.out(node.name, f"cat /sys/class/net/{other.netdev}/address") == other.mac


def test_a_fault_can_be_there_from_boot_on(lab: Lab) -> None:
    name, function = lab.names[0], lab.spec.nodes[0].functions[0]
    lab.fault(name, "rule_errno", function.pci, "95", at_boot=True)
    lab.power_cut(name)
    assert lab.out(name, f"cat /sys/kernel/debug/fakecx7/{function.pci}/rule_errno") == "95"


def test_a_state_that_is_kept_again_replaces_the_one_before(lab: Lab) -> None:
    name, state = lab.names[0], "kept-again"
    for content in ("first", "second"):
        lab.ssh(name, f"echo {content} > /root/kept")
        lab.save(state)
        lab.restore(state)
        assert lab.out(name, "cat /root/kept") == content
    shutil.rmtree(lab.saves / state)


def test_a_card_that_is_not_there_is_not_swapped(factory: Lab) -> None:
    with pytest.raises(LabError, match="no function enp1s0f0np0"):
        factory.nic_swap(factory.names[0], {"enp1s0f0np0": "4c:bb:47:99:00:01"})


def test_every_file_fault_is_there(factory: Lab) -> None:
    node = factory.spec.nodes[0]
    targets = {"function": node.functions[0].netdev, "port": "f0"}
    for name, fault in FAULTS.items():
        if fault.scope in targets:
            path = debugfs_path(node, name, targets[fault.scope])
            assert factory.ssh(node.name, f"cat /sys/kernel/debug/fakecx7/{path}").ok


def test_unknown_faults_and_targets_are_refused(factory: Lab) -> None:
    node = factory.spec.nodes[0]
    with pytest.raises(LabError, match="no fault"):
        debugfs_path(node, "gremlin", "f0")
    with pytest.raises(LabError, match="is none"):
        debugfs_path(node, "overflow", "f0")
